//! Secrets of templates that outlive a restart. Dropping a session and its store is `kill -9`.

use std::time::Duration;

use keyward_agent::encrypted_file::PersistOptions;
use keyward_agent::secrets::OfflineOptions;
use keyward_emulators::secrets::Operation;
use keyward_machine::secret_string::SecretString;
use serde_json::json;
use tokio::time::sleep;

use super::{Bench, MINUTE, password, put, unleased, world};
use crate::harness::blocking::{BusyThread, let_tasks_run, run_with_one_blocking_thread};
use crate::harness::session::{Session, World};

const LEASED: &str = "{{ with secret \"terraform/creds/deploy\" }}{{ .Data.token }}{{ end }}";
const CERTIFICATE: &str =
    "{{ with pkiCert \"pki/issue/web\" \"common_name=a.example\" \"ttl=60m\" }}{{ .Cert }}{{ end }}";

/// A world whose sessions and secrets are saved across a restart.
fn persistent_world() -> (World, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut world = world();
    world.keep_state(folder.path(), true);
    (world, folder)
}

fn offline(folder: &tempfile::TempDir) -> OfflineOptions {
    let persist = PersistOptions { file: folder.path().join("web.secrets"), seal: SecretString::from("a key") };
    OfflineOptions { persist, max_stale_age: MINUTE * 60 }
}

/// A process that renders a value, a lease and a certificate.
async fn start<'a>(world: &'a World, folder: &tempfile::TempDir) -> (Session, Bench<'a>) {
    let session = world.start();
    let mut bench = Bench::with(world, &session, Some(offline(folder)));
    bench.start("value", &password("app"));
    bench.start("leased", LEASED);
    bench.start("certificate", CERTIFICATE);
    sleep(MINUTE).await;
    (session, bench)
}

fn rendered(bench: &Bench<'_>) -> [Option<String>; 3] {
    ["value", "leased", "certificate"].map(|name| bench.read(name))
}

#[tokio::test(start_paused = true)]
async fn templates_are_rendered_while_the_server_is_away_at_the_start_and_follow_it_once_it_is_back() {
    let (world, folder) = persistent_world();
    put(&world, "app", json!({ "password": "p1" })).await;
    let before = {
        let (_session, bench) = start(&world, &folder).await;
        rendered(&bench)
    };
    assert!(before.iter().all(Option::is_some), "{before:?}");
    world.faults().go_away().await;
    let (_session, bench) = start(&world, &folder).await;
    assert_eq!(rendered(&bench), before);
    world.faults().come_back().await;
    put(&world, "app", json!({ "password": "p2" })).await;
    sleep(MINUTE * 12).await;
    let [value, leased, certificate] = rendered(&bench);
    assert_eq!(value.as_deref(), Some("p2"));
    assert_eq!([leased, certificate], before[1..], "the lease is renewed, the certificate is good");
    assert_eq!((world.faults().leases_issued(), world.count(Operation::Login)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_restart_requests_no_lease_and_no_certificate_and_renders_nothing_twice() {
    let (world, folder) = persistent_world();
    put(&world, "app", json!({ "password": "p1" })).await;
    let before = {
        let (_session, bench) = start(&world, &folder).await;
        rendered(&bench)
    };
    for _ in 0..10 {
        let (_session, bench) = start(&world, &folder).await;
        assert_eq!(rendered(&bench), before);
        let renders = ["value", "leased", "certificate"].map(|name| bench.renders(name));
        assert_eq!(renders, renders.map(|_| renders[0]), "each once a start");
    }
    assert_eq!((world.faults().leases(), world.faults().leases_issued()), (1, 1));
    assert_eq!(world.count(Operation::Login), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_the_duration_of_a_secret_without_a_lease() {
    let (world, folder) = persistent_world();
    unleased::write(&world, json!({ "password": "p1" })).await;
    let run = async || {
        let session = world.start();
        let mut bench = Bench::with(&world, &session, Some(offline(&folder)));
        bench.start("app", unleased::TEMPLATE);
        sleep(MINUTE).await;
        bench.read("app")
    };
    assert_eq!(run().await.as_deref(), Some("p1 false 2764800"));
    world.faults().go_away().await;
    assert_eq!(run().await.as_deref(), Some("p1 false 2764800"));
}

#[tokio::test(start_paused = true)]
async fn secrets_that_changed_while_the_agent_was_off_are_never_rendered_stale() {
    let (world, folder) = persistent_world();
    put(&world, "app", json!({ "password": "p1" })).await;
    let before = {
        let (_session, bench) = start(&world, &folder).await;
        rendered(&bench)
    };
    put(&world, "app", json!({ "password": "p2" })).await;
    world.faults().revoke_all();
    let (_session, bench) = start(&world, &folder).await;
    let [value, leased, _] = rendered(&bench);
    assert_eq!(value.as_deref(), Some("p2"));
    assert!(leased.is_some() && leased != before[1], "it ended with the token that it was got with");
    assert_eq!((bench.renders("value"), world.faults().leases()), (2, 1), "once before, once now");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_ended_while_the_agent_was_off_is_not_rendered() {
    let (world, folder) = persistent_world();
    put(&world, "app", json!({ "password": "p1" })).await;
    let before = {
        let (_session, bench) = start(&world, &folder).await;
        rendered(&bench)
    };
    world
        .faults()
        .respond_next(Operation::RenewLease, keyward_emulators::secrets::CannedResponse::error(400, "lease not found"));
    let (_session, bench) = start(&world, &folder).await;
    let [_, leased, _] = rendered(&bench);
    assert!(leased.is_some() && leased != before[1]);
    assert_eq!(bench.renders("leased"), 2, "once before, once now");
}

#[tokio::test(start_paused = true)]
async fn saved_secrets_that_are_too_old_or_tampered_with_are_not_used() {
    let (world, folder) = persistent_world();
    put(&world, "app", json!({ "password": "p1" })).await;
    drop(start(&world, &folder).await);
    world.faults().go_away().await;
    let file = folder.path().join("web.secrets");
    let bytes = std::fs::read(&file).unwrap();
    assert!(!bytes.windows(8).any(|part| part == b"password"));
    sleep(MINUTE * 62).await;
    {
        let (_session, bench) = start(&world, &folder).await;
        assert_eq!(rendered(&bench)[..2], [None, None], "a value of over an hour, a lease that has ended");
    }
    let mut changed = bytes.clone();
    changed[bytes.len() - 1] ^= 1;
    std::fs::write(&file, changed).unwrap();
    let (_session, bench) = start(&world, &folder).await;
    assert_eq!(rendered(&bench), [None, None, None]);
    assert!(folder.path().join("web.secrets.refused").is_file());
    world.faults().come_back().await;
    sleep(MINUTE * 15).await;
    assert!(rendered(&bench).iter().all(Option::is_some));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_at_the_start_holds_no_template_up() {
    let (world, folder) = persistent_world();
    put(&world, "app", json!({ "password": "p1" })).await;
    drop(start(&world, &folder).await);
    world.faults().set_unresponsive(true);
    let session = world.start();
    let mut bench = Bench::with(&world, &session, Some(offline(&folder)));
    bench.start("value", &password("app"));
    sleep(Duration::from_secs(4)).await;
    assert_eq!(bench.read("value").as_deref(), Some("p1"));
    // A secret without a subscriber is not saved any longer.
    sleep(MINUTE * 3).await;
    drop((session, bench));
    world.faults().set_unresponsive(false);
    world.faults().go_away().await;
    let (_session, bench) = start(&world, &folder).await;
    assert_eq!(rendered(&bench), [Some("p1".to_owned()), None, None]);
}

#[test]
fn saved_secrets_that_are_not_read_in_time_are_reported() {
    run_with_one_blocking_thread(async {
        crate::harness::log::keep();
        let (world, folder) = (world(), tempfile::tempdir().unwrap());
        let mut session = world.start();
        session.serving().await;
        let busy = BusyThread::start();
        let _bench = Bench::with(&world, &session, Some(offline(&folder)));
        let_tasks_run().await;
        tokio::time::advance(Duration::from_secs(6)).await;
        let_tasks_run().await;
        busy.release().await;
        let text = crate::harness::log::text();
        assert!(text.contains("secrets.state.refused") && text.contains("it was not read within 5 s"), "{text}");
    });
}
