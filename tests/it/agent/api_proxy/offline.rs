//! Cache entries that outlive a restart. Dropping a session and its proxy is `kill -9`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyward_agent::api_proxy::ApiProxyOptions;
use keyward_agent::encrypted_file::PersistOptions;
use keyward_agent::secrets::DerivedTokenOptions;
use keyward_emulators::secrets::{Operation, Role};
use keyward_machine::secret_string::SecretString;

use crate::harness::session::{Session, World, minutes};
use crate::harness::vault::{FetchedResponse, Proxied, cache, fetch, options};

const HOUR: Duration = Duration::from_hours(1);

/// A session and a proxy with persistent state.
struct PersistentProxy {
    world: World,
    folder: tempfile::TempDir,
    key: &'static str,
    values: Option<&'static str>,
    child: Option<DerivedTokenOptions>,
}

/// Its running parts.
struct Running {
    session: Session,
    proxied: Proxied,
}

impl PersistentProxy {
    fn new(role: Role) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut world = World::new(role);
        world.keep_state(folder.path(), true);
        Self { world, folder, key: "a key", values: None, child: None }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("vault.cache")
    }

    fn start(&self) -> Running {
        let mut persistent = cache(Duration::ZERO, HOUR);
        persistent.persist = Some(PersistOptions { file: self.file(), seal: SecretString::from(self.key) });
        if let Some(values) = self.values {
            persistent.values = vec![keyward_agent::api_proxy::Rule::parse(values).unwrap()];
        }
        let session = self.world.start();
        let proxied = Proxied::for_child_token(
            &self.world,
            &session,
            ApiProxyOptions { cache: Some(persistent), ..options() },
            self.child.clone(),
        );
        Running { session, proxied }
    }

    /// Caches one lease and one value, saves them, and kills the process.
    async fn filled(&self) -> (FetchedResponse, FetchedResponse) {
        let mut running = self.start();
        running.session.serving().await;
        let lease = running.proxied.get("database/creds/dev").await;
        let value = running.proxied.get("secret/data/example").await;
        assert_eq!((lease.cache(), value.cache()), ("MISS", "MISS"));
        minutes(1).await;
        (lease, value)
    }

    /// Files that were moved aside.
    fn aside(&self) -> PathBuf {
        self.folder.path().join("vault.cache.refused")
    }
}

fn hour() -> Role {
    Role { ttl: HOUR, max_ttl: None, ..Role::default() }
}

fn id(response: &FetchedResponse) -> String {
    response.json()["lease_id"].as_str().unwrap_or_else(|| panic!("{response:?}")).to_owned()
}

fn left(response: &FetchedResponse) -> u64 {
    response.json()["lease_duration"].as_u64().unwrap()
}

fn age(response: &FetchedResponse) -> u64 {
    response.headers["age"].to_str().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn leases_and_values_are_served_after_a_kill_while_the_server_is_away_and_all_heals_once_it_is_back() {
    let persistent = PersistentProxy::new(hour());
    let (lease, value) = persistent.filled().await;
    persistent.world.faults().go_away().await;
    minutes(3).await;
    let mut running = persistent.start();
    running.session.serving().await;
    let again = running.proxied.get("database/creds/dev").await;
    assert_eq!((again.cache(), id(&again)), ("HIT", id(&lease)));
    assert!((300..=360).contains(&left(&again)), "{} s are left of ten minutes after four", left(&again));
    let stale = running.proxied.get("secret/data/example").await;
    assert_eq!((stale.status, stale.cache(), stale.text.trim()), (200, "STALE", value.text.trim()));
    assert!((240..=300).contains(&age(&stale)), "it is {} s old", age(&stale));
    assert_eq!(running.proxied.get("secret/data/other").await.status, 502);

    persistent.world.faults().come_back().await;
    minutes(30).await;
    assert_eq!(running.proxied.get("secret/data/example").await.cache(), "MISS");
    let later = running.proxied.get("database/creds/dev").await;
    assert_eq!((later.cache(), id(&later)), ("HIT", id(&lease)), "the agent went on renewing it");
    assert_eq!((persistent.world.faults().leases_issued(), persistent.world.count(Operation::Login)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn values_grow_older_while_the_agent_is_off_and_end_at_their_bound() {
    let persistent = PersistentProxy::new(hour());
    persistent.filled().await;
    persistent.world.faults().go_away().await;
    minutes(45).await;
    let running = persistent.start();
    let stale = running.proxied.get("secret/data/example").await;
    assert_eq!(stale.cache(), "STALE");
    assert!((46 * 60..48 * 60).contains(&age(&stale)), "it is {} s old", age(&stale));
    assert_ne!(running.proxied.get("database/creds/dev").await.status, 200, "it ended while nobody ran");
    minutes(20).await;
    assert_ne!(running.proxied.get("secret/data/example").await.status, 200, "an hour is over");
    drop(running);
    let running = persistent.start();
    assert_ne!(running.proxied.get("secret/data/example").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn values_outlast_the_token_that_ended_while_the_agent_was_off() {
    let persistent =
        PersistentProxy::new(Role { ttl: Duration::from_mins(10), max_ttl: Some(Duration::from_mins(10)), ..hour() });
    let (lease, _) = persistent.filled().await;
    persistent.world.faults().go_away().await;
    minutes(15).await;
    let mut running = persistent.start();
    minutes(1).await;
    assert!(running.session.token().is_none());
    assert_eq!(running.proxied.get("secret/data/example").await.cache(), "STALE");
    persistent.world.faults().come_back().await;
    running.session.serving().await;
    assert_eq!(running.proxied.get("secret/data/example").await.cache(), "MISS");
    assert_ne!(id(&running.proxied.get("database/creds/dev").await), id(&lease));
}

#[tokio::test(start_paused = true)]
async fn entries_of_a_token_that_was_revoked_while_the_agent_was_off_are_dropped() {
    let persistent = PersistentProxy::new(hour());
    let (lease, _) = persistent.filled().await;
    persistent.world.faults().revoke_all();
    let mut running = persistent.start();
    running.session.serving().await;
    assert_eq!(persistent.world.count(Operation::Login), 2);
    let next = running.proxied.get("database/creds/dev").await;
    assert_eq!(next.cache(), "MISS");
    assert_ne!(id(&next), id(&lease));
    persistent.world.faults().go_away().await;
    assert_ne!(
        running.proxied.get("secret/data/example").await.status,
        200,
        "the token was taken away, and what it read"
    );
}

#[tokio::test(start_paused = true)]
async fn a_listener_with_a_child_token_keeps_values_and_not_those_of_another_child() {
    let child = |policy: &str| {
        let (policies, ttl) = (vec![policy.to_owned()], Duration::from_mins(10));
        Some(DerivedTokenOptions { policies, ttl, ..DerivedTokenOptions::default() })
    };
    let persistent = PersistentProxy { child: child("read"), ..PersistentProxy::new(hour()) };
    let (lease, _) = persistent.filled().await;
    // As another child at each start, the token is another.
    persistent.world.faults().revoke_all();
    let mut running = persistent.start();
    running.session.serving().await;
    assert_ne!(id(&running.proxied.get("database/creds/dev").await), id(&lease));
    persistent.world.faults().go_away().await;
    assert_eq!(running.proxied.get("secret/data/example").await.cache(), "STALE");
    minutes(1).await;
    drop(running);
    let persistent = PersistentProxy { child: child("less"), ..persistent };
    assert_ne!(persistent.start().proxied.get("secret/data/example").await.status, 200, "it may read less");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_ended_while_the_agent_was_off_is_noticed_at_once() {
    let persistent = PersistentProxy::new(hour());
    let (lease, _) = persistent.filled().await;
    let mut running = persistent.start();
    // Revoked by another client while the agent is stopped.
    drop(running);
    let root = persistent.world.secrets.token(&Role::default());
    let url = format!("{}/v1/sys/leases/revoke", persistent.world.secrets.url());
    let body = serde_json::json!({ "lease_id": id(&lease) }).to_string();
    let request = reqwest::Client::new().put(url).header("content-type", "application/json").body(body);
    let token = SecretString::expose_secret(&root).to_owned();
    assert!(request.header("x-vault-token", token).send().await.unwrap().status().is_success());
    running = persistent.start();
    running.session.serving().await;
    minutes(1).await;
    let next = running.proxied.get("database/creds/dev").await;
    assert_eq!(next.cache(), "MISS");
    assert_ne!(id(&next), id(&lease));
}

#[tokio::test(start_paused = true)]
async fn twenty_kills_leave_one_lease_and_cleared_entries_stay_cleared() {
    let persistent = PersistentProxy::new(hour());
    let (lease, _) = persistent.filled().await;
    for _ in 0..20 {
        let mut running = persistent.start();
        running.session.serving().await;
        assert_eq!(id(&running.proxied.get("database/creds/dev").await), id(&lease));
        minutes(1).await;
    }
    assert_eq!(persistent.world.faults().leases_issued(), 1);
    let mut running = persistent.start();
    running.session.serving().await;
    let clear = running.proxied.client.post(format!("{}/agent/v1/cache-clear", running.proxied.url));
    let clear = fetch(clear.header("x-vault-request", "true").body(r#"{"type":"all"}"#)).await;
    assert_eq!(clear.json()["cleared"], 2, "{clear:?}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    drop(running);
    persistent.world.faults().go_away().await;
    assert_ne!(persistent.start().proxied.get("secret/data/example").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn the_file_is_readable_by_its_owner_only_and_encrypted() {
    let persistent = PersistentProxy::new(hour());
    let (lease, value) = persistent.filled().await;
    let bytes = std::fs::read(persistent.file()).unwrap();
    assert_eq!(std::fs::metadata(persistent.file()).unwrap().permissions().mode() & 0o7777, 0o600);
    let (lease, value) = (lease.json(), value.json());
    let secrets = [
        &lease["data"]["username"],
        &lease["data"]["password"],
        &lease["lease_id"],
        &value["data"]["data"]["greeting"],
    ];
    for text in secrets.into_iter().map(|text| text.as_str().unwrap()).chain(["secret/data", "database"]) {
        assert!(!bytes.windows(text.len()).any(|part| part == text.as_bytes()), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_saves_the_latest_entries() {
    let persistent = PersistentProxy::new(hour());
    let mut running = persistent.start();
    running.session.serving().await;
    let lease = running.proxied.get("database/creds/dev").await;
    running.proxied.stop.cancel();
    while running.proxied.servers.join_next().await.is_some() {}
    drop(running);
    let mut running = persistent.start();
    running.session.serving().await;
    assert_eq!(id(&running.proxied.get("database/creds/dev").await), id(&lease));
}

#[tokio::test(start_paused = true)]
async fn a_changed_or_foreign_file_is_moved_aside_and_not_used() {
    let damage: [fn(&mut PersistentProxy, &Path); 10] = [
        |_, file| {
            let mut bytes = std::fs::read(file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(file, bytes).unwrap();
        },
        |_, file| {
            let bytes = std::fs::read(file).unwrap();
            std::fs::write(file, &bytes[..bytes.len() - 1]).unwrap();
        },
        |_, file| std::fs::write(file, "not what we write").unwrap(),
        |_, file| std::fs::write(file, "").unwrap(),
        |_, file| {
            std::fs::remove_file(file).unwrap();
            std::fs::create_dir(file).unwrap();
        },
        |_, file| {
            std::fs::rename(file, file.with_extension("moved")).unwrap();
            std::os::unix::fs::symlink(file.with_extension("moved"), file).unwrap();
        },
        |persistent, _| persistent.key = "another key",
        |persistent, _| persistent.values = Some("secret/data/*"),
        |persistent, _| persistent.world.driven.set_wall_by(-7200),
        // A file of the same key, of something else.
        |_, file| {
            std::fs::copy(file.with_file_name("web.json"), file).unwrap();
        },
    ];
    for (case, damage) in damage.into_iter().enumerate() {
        let mut persistent = PersistentProxy::new(hour());
        persistent.filled().await;
        let file = persistent.file();
        damage(&mut persistent, &file);
        persistent.world.faults().go_away().await;
        let running = persistent.start();
        minutes(1).await;
        assert_ne!(running.proxied.get("secret/data/example").await.status, 200, "case {case}");
        assert!(persistent.aside().symlink_metadata().is_ok(), "case {case}");
        persistent.world.faults().come_back().await;
        minutes(30).await;
        assert_eq!(running.proxied.get("secret/data/example").await.status, 200, "case {case}");
        minutes(1).await;
        assert!(persistent.file().is_file(), "case {case}: it goes on with a file of its own");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unwritable_state_folder_only_loses_the_saved_state() {
    let persistent = PersistentProxy::new(hour());
    let session = persistent.world.start();
    let mut its = cache(HOUR, HOUR);
    its.persist = Some(PersistOptions { file: "/proc/none/vault.cache".into(), seal: SecretString::from("a key") });
    let proxied =
        Proxied::for_world_with(&persistent.world, &session, ApiProxyOptions { cache: Some(its), ..options() });
    let mut running = Running { session, proxied };
    running.session.serving().await;
    assert_eq!(running.proxied.get("secret/data/example").await.cache(), "MISS");
    minutes(10).await;
    assert_eq!(running.proxied.get("secret/data/example").await.cache(), "HIT");
}
