//! Tokens that the gateway makes for itself, against the emulated platform and its places for tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{Method, Request};
use http_body_util::BodyExt as _;
use keyward_emulators::platform::{PresentedToken, RecordedCall};
use keyward_gateway::platform_token::PlatformTokenSource;
use keyward_gateway::token_minting::{MintOptions, Minter, MinterDependencies, TokenOwner};
use keyward_http::server::{IncomingBody, ListenerLimits};
use keyward_machine::clock::{Clock, TestClock};
use keyward_telemetry::health::{Component, Health};
use rustix::process::Signal;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::binary::{Binary, run};
use crate::harness::front::Front;
use crate::harness::platform::{Emulated, text};
use crate::harness::ports;
use crate::harness::scripted::{self, whole};

const ORG: &str = "/api/v2/organizations/example";

/// A platform with a team, and the file of a token that may make its tokens.
struct MintFixture {
    it: Emulated,
    /// URL at which the minters call the platform.
    upstream: String,
    /// That of the gateways.
    clock: Clock,
    team: String,
    folder: tempfile::TempDir,
}

/// A minter that runs.
struct Running {
    source: PlatformTokenSource,
    health: Health,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl MintFixture {
    async fn start() -> Self {
        Self::with(keyward_emulators::platform::PlatformOptions::default()).await
    }

    async fn with(options: keyward_emulators::platform::PlatformOptions) -> Self {
        let it = Emulated::with(options);
        // Polls of these tests count as the parent token's user's.
        it.platform.faults().limit(None);
        let team = it.make(&format!("{ORG}/teams"), json!({"name": "ops"})).await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("parent"), it.token()).unwrap();
        Self { upstream: it.platform.url().to_owned(), it, clock: Clock::System, team, folder }
    }

    fn parent(&self) -> PathBuf {
        self.folder.path().join("parent")
    }

    fn team(&self) -> TokenOwner {
        TokenOwner::Team { team: self.team.clone(), organization: "example".to_owned() }
    }

    fn options(&self, owner: TokenOwner, ttl: u64) -> MintOptions {
        let (ttl, grace) = (Duration::from_secs(ttl), Duration::from_millis(300));
        MintOptions { parent_token_file: self.parent(), owner, ttl, grace }
    }

    fn minter(&self, name: &str, options: MintOptions) -> (Minter, PlatformTokenSource, Health) {
        let health = Health::default();
        let parts = MinterDependencies {
            upstream: self.upstream.parse().unwrap(),
            ca_file: None,
            proxy: keyward_http::client::ProxyMode::Direct,
            local_token_file: self.folder.path().join(name),
            clock: self.clock.clone(),
            health: health.register("gateway/token", true, "no token yet"),
        };
        let (minter, source) = Minter::new(options, parts).unwrap();
        (minter, source, health)
    }

    fn run(&self, name: &str, options: MintOptions) -> Running {
        let (minter, source, health) = self.minter(name, options);
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(minter.run(stop.clone()));
        Running { source, health, stop, tasks }
    }

    /// The tokens of a list, oldest first, without themselves.
    async fn listed(&self, path: &str) -> Vec<Value> {
        self.it.get(path).await.with(200)["data"].as_array().unwrap().clone()
    }

    async fn of_team(&self) -> Vec<Value> {
        self.listed(&format!("{ORG}/team-tokens")).await
    }

    /// Waits until a list of tokens is as it should be.
    async fn until(&self, path: &str, sound: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        for _ in 0..2400 {
            let listed = self.listed(path).await;
            if sound(&listed) {
                return listed;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{:?}", self.listed(path).await);
    }

    fn calls(&self, method: &Method, path: &str) -> Vec<RecordedCall> {
        let calls = self.it.platform.faults().calls();
        calls.into_iter().filter(|call| call.method == *method && call.path == path).collect()
    }
}

impl Running {
    async fn ready(&self) {
        self.health_is(|component| component.ready).await;
    }

    async fn health_is(&self, sound: impl Fn(&Component) -> bool) -> Component {
        let mut changes = self.health.changes();
        let wait = async {
            loop {
                let component = self.health.components()["gateway/token"].clone();
                if sound(&component) {
                    return component;
                }
                changes.changed().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(Duration::from_mins(1), wait).await;
        waited.unwrap_or_else(|_| panic!("{:?}", self.health.components()))
    }

    /// The token that is published, as a header.
    fn bearer(&self) -> String {
        match self.source.watch.peek().availability {
            keyward_credentials::credential_watch::Availability::Available(token) => {
                token.bearer().to_str().unwrap().to_owned()
            }
            keyward_credentials::credential_watch::Availability::Unavailable { reason, .. } => panic!("{reason}"),
        }
    }

    async fn stop(mut self) {
        self.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap();
    }

    /// As a crash does.
    async fn crash(mut self) {
        self.tasks.shutdown().await;
    }
}

fn description(token: &Value) -> String {
    text(&token["attributes"]["description"])
}

#[tokio::test]
async fn two_gateways_of_one_team_rotate_side_by_side_and_no_call_meets_a_401() {
    let driven = TestClock::starting_at(SystemTime::now());
    let clock = Clock::Test(driven.clone());
    let mut place =
        MintFixture::with(keyward_emulators::platform::PlatformOptions { clock: clock.clone(), ..Default::default() })
            .await;
    place.clock = clock;
    let mut gateways = Vec::new();
    for name in ["one", "two"] {
        let options = MintOptions { grace: Duration::from_secs(30), ..place.options(place.team(), 600) };
        let running = place.run(name, options);
        running.ready().await;
        let front = Front::with(|options, parts| {
            options.upstream = place.it.platform.url().parse().unwrap();
            parts.source = running.source.clone();
        });
        gateways.push((running, front));
    }
    place.it.platform.faults().forget_calls();
    let mut calls = 0;
    for _ in 0..4 {
        let before: Vec<_> = gateways.iter().map(|(running, _)| running.bearer()).collect();
        // A token is replaced after at most 70 % of its 600 s; after that no time passes until both are.
        let mut steps = 43;
        while gateways.iter().zip(&before).any(|((running, _), before)| running.bearer() == *before) || steps > 0 {
            if steps > 0 {
                driven.suspend(Duration::from_secs(10));
                steps -= 1;
            }
            for (_, front) in &gateways {
                let response = front.get("/api/v2/account/details").await;
                assert_eq!(response.status().as_u16(), 200, "{}", response.text().await.unwrap());
                calls += 1;
            }
        }
    }
    let reads = place.calls(&Method::GET, "/api/v2/account/details");
    assert!(reads.len() == calls && reads.iter().all(|call| call.status == 200), "{calls} calls, {} seen", reads.len());
    let tokens: std::collections::BTreeSet<_> = reads
        .iter()
        .map(|call| match &call.token {
            PresentedToken::Known(id) => id.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(tokens.len(), 10, "each gateway used its first token and four successors");
    // Besides the tokens in use, only those in their grace time; each description names its origin and expiry.
    let listed = place.of_team().await;
    assert!((2..=4).contains(&listed.len()), "{listed:?}");
    for token in &listed {
        assert!(description(token).starts_with("keyward "), "{token}");
        assert!(token["attributes"]["expired-at"].is_string(), "{token}");
    }
    for (running, front) in gateways {
        drop(front);
        running.stop().await;
    }
    assert_eq!(place.of_team().await, [] as [Value; 0], "a stop ends what was made");
}

#[tokio::test]
async fn a_token_has_its_full_lifetime_however_wrong_the_machines_clock_is() {
    let (now, days) = (SystemTime::now(), Duration::from_hours(72));
    for wall in [now + days, now - days] {
        let clock = Clock::Test(TestClock::starting_at(wall));
        let place =
            MintFixture::with(keyward_emulators::platform::PlatformOptions { clock, ..Default::default() }).await;
        let running = place.run("one", place.options(place.team(), 600));
        running.ready().await;
        let made = place.of_team().await;
        let time = |name: &str| OffsetDateTime::parse(made[0]["attributes"][name].as_str().unwrap(), &Rfc3339).unwrap();
        let life = (time("expired-at") - time("created-at")).whole_seconds();
        assert!(made.len() == 1 && (590..=610).contains(&life), "{life}: {made:?}");
        let token = running.bearer();
        let token = token.trim_start_matches("Bearer ");
        place.it.send(Method::GET, "/api/v2/account/details", Some(token), None).await.with(200);
        running.stop().await;
    }
}

#[tokio::test]
async fn the_next_start_deletes_orphans_of_a_crash_only() {
    let place = MintFixture::start().await;
    let path = format!("/api/v2/teams/{}/authentication-tokens", place.team);
    for number in 0..130 {
        place.it.post(&path, json!({"description": format!("someone's {number}")})).await.with(201);
    }
    let other = place.run("other", place.options(place.team(), 600));
    let first = place.run("one", place.options(place.team(), 600));
    other.ready().await;
    first.ready().await;
    first.crash().await;
    assert_eq!(place.listed(&format!("{ORG}/team-tokens?page[size]=100&page[number]=2")).await.len(), 32);
    let second = place.run("one", place.options(place.team(), 600));
    second.ready().await;
    let page = format!("{ORG}/team-tokens?page[size]=100&page[number]=2");
    let left = place.until(&page, |left| left.len() == 32).await;
    let ours: Vec<_> = left.iter().map(description).filter(|text| text.starts_with("keyward ")).collect();
    assert_eq!(ours.len(), 2, "{ours:?}");
    let tag = |text: &String| text.split(' ').nth(2).unwrap().to_owned();
    assert_ne!(tag(&ours[0]), tag(&ours[1]), "one of each gateway");
    other.stop().await;
    second.stop().await;
    assert_eq!(place.listed(&page).await.len(), 30);
}

#[tokio::test]
async fn a_token_from_a_lost_response_is_deleted_after_the_next_mint() {
    let place = MintFixture::start().await;
    place.it.platform.faults().lose_next_responses(1);
    let running = place.run("one", place.options(place.team(), 600));
    running.ready().await;
    let made = place.it.platform.faults().calls();
    let made = made.iter().filter(|call| call.method == Method::POST && call.route.contains("/teams/{"));
    let statuses: Vec<u16> = made.map(|call| call.status).collect();
    assert_eq!(statuses, [504, 201], "the first was made too");
    let path = format!("{ORG}/team-tokens");
    let left = place.until(&path, |left| left.len() == 1).await;
    assert!(description(&left[0]).starts_with("keyward "), "{left:?}");
    running.stop().await;
    assert_eq!(place.listed(&path).await.len(), 0);
}

#[tokio::test]
async fn agent_pool_tokens_are_rotated_by_deletion() {
    let place = MintFixture::start().await;
    let pool = place.it.make(&format!("{ORG}/agent-pools"), json!({"name": "pool"})).await;
    let path = format!("/api/v2/agent-pools/{pool}/authentication-tokens");
    let running = place.run("one", place.options(TokenOwner::AgentPool(pool), 1));
    running.ready().await;
    let first = text(&place.listed(&path).await[0]["id"]);
    let listed = place.until(&path, |listed| listed.len() == 1 && listed[0]["id"] != *first).await;
    assert!(listed[0]["attributes"]["expired-at"].is_null(), "the platform does not end it");
    assert_eq!(place.calls(&Method::DELETE, &format!("/api/v2/authentication-tokens/{first}")).len(), 1);
    running.stop().await;
    assert_eq!(place.listed(&path).await, [] as [Value; 0]);
}

#[tokio::test]
async fn user_and_single_tokens_are_minted_and_deleted() {
    let place = MintFixture::start().await;
    let user = text(&place.it.get("/api/v2/account/details").await.with(200)["data"]["id"]);
    let running = place.run("one", place.options(TokenOwner::User(user.clone()), 600));
    running.ready().await;
    let path = format!("/api/v2/users/{user}/authentication-tokens");
    assert_eq!(place.listed(&path).await.len(), 2, "the parent token is one of them");
    running.stop().await;
    assert_eq!(place.listed(&path).await.len(), 1);

    let only = format!("/api/v2/teams/{}/authentication-token", place.team);
    for (owner, path) in [
        (TokenOwner::Organization("example".to_owned()), format!("{ORG}/authentication-token")),
        (TokenOwner::TeamLegacy(place.team.clone()), only),
    ] {
        let running = place.run("one", place.options(owner.clone(), 600));
        running.ready().await;
        place.it.get(&path).await.with(200);
        running.stop().await;
        place.it.get(&path).await.with(404);

        // Another client has created one: it must not be deleted.
        let running = place.run("one", place.options(owner, 600));
        running.ready().await;
        let theirs = place.it.make(&path, json!({})).await;
        running.stop().await;
        assert_eq!(place.it.get(&path).await.with(200)["data"]["id"], *theirs);
    }
}

#[tokio::test]
async fn of_two_gateways_of_one_machine_one_keeps_the_single_token() {
    let place = MintFixture::start().await;
    let owner = || TokenOwner::Organization("example".to_owned());
    let first = place.run("one", place.options(owner(), 600));
    first.ready().await;
    let bearer = first.bearer();
    let second = place.run("two", place.options(owner(), 600));
    let waiting = |component: &Component| {
        component.reason.as_ref().is_some_and(|reason| reason.contains("another gateway on this machine mints"))
    };
    second.health_is(waiting).await;
    assert_eq!(first.bearer(), bearer);
    assert_eq!(place.calls(&Method::POST, &format!("{ORG}/authentication-token")).len(), 1);
    first.stop().await;
    second.ready().await;
    second.stop().await;
}

#[tokio::test]
async fn a_rejected_parent_token_is_logged_once_and_retried_on_change() {
    let place = MintFixture::start().await;
    std::fs::write(place.parent(), "no-token").unwrap();
    let running = place.run("one", place.options(place.team(), 600));
    let health = running.health_is(|component| component.reason.as_ref().is_some_and(|r| r.contains("401"))).await;
    let reason = health.reason.unwrap();
    let parent = place.parent().display().to_string();
    assert!(reason.contains(&format!("the parent token in {parent} is invalid")), "{reason}");
    assert!(!reason.contains("no-token"), "{reason}");
    running.source.refresh_signal.request();
    running.source.refresh_signal.wait().await;
    let path = format!("/api/v2/teams/{}/authentication-tokens", place.team);
    assert_eq!(place.calls(&Method::POST, &path).len(), 1, "a refresh request does not repeat a refused call");
    replace(&place.parent(), place.it.token());
    running.ready().await;
    assert_eq!(place.calls(&Method::POST, &path).len(), 2);

    // The platform does not reveal if a team exists.
    let owner = TokenOwner::Team { team: "team-none".to_owned(), organization: "example".to_owned() };
    let lost = place.run("two", place.options(owner, 600));
    let health = lost.health_is(|component| component.reason.as_ref().is_some_and(|text| text.contains("404"))).await;
    assert!(
        health.reason.unwrap().contains("team team-none does not exist, or the parent token in"),
        "{:?}",
        health.started
    );
    running.stop().await;
}

#[tokio::test]
async fn a_refresh_request_mints_one_token_and_the_previous_ends_after_the_grace() {
    let place = MintFixture::start().await;
    let running = place.run("one", place.options(place.team(), 600));
    running.ready().await;
    let before = running.bearer();
    for _ in 0..5 {
        running.source.refresh_signal.request();
    }
    running.source.refresh_signal.wait().await;
    let after = running.bearer();
    assert_ne!(before, after);
    let path = format!("/api/v2/teams/{}/authentication-tokens", place.team);
    assert_eq!(place.calls(&Method::POST, &path).len(), 2, "however many rang");
    place.until(&format!("{ORG}/team-tokens"), |listed| listed.len() == 1).await;
    let known = after.trim_start_matches("Bearer ");
    place.it.send(Method::GET, "/api/v2/account/details", Some(known), None).await.with(200);
    running.stop().await;
}

/// Serves what the platform at `upstream` responds, but lets lists of tokens hang, each after a notification. Returns its URL.
fn hang_lists(upstream: String, hanging: Arc<Notify>, servers: &mut JoinSet<()>) -> String {
    let client = scripted::client();
    let answer = move |request: Request<IncomingBody>| {
        let (client, upstream, hanging) = (client.clone(), upstream.clone(), Arc::clone(&hanging));
        async move {
            let (parts, body) = request.into_parts();
            let target = parts.uri.path_and_query().unwrap();
            if target.path().ends_with("/team-tokens") {
                hanging.notify_one();
                std::future::pending::<()>().await;
            }
            let mut call = client.request(parts.method, format!("{upstream}{target}"));
            for name in ["authorization", "content-type"] {
                call = call.header(name, &parts.headers[name]);
            }
            let response = call.body(body.collect().await.unwrap().to_bytes()).send().await.unwrap();
            whole(response.status().as_u16(), "application/vnd.api+json", response.bytes().await.unwrap())
        }
    };
    format!("http://{}", scripted::serve(scripted::FREE, answer, ListenerLimits::default(), servers))
}

#[tokio::test]
async fn a_rejected_token_is_replaced_while_the_list_of_tokens_hangs() {
    let (hanging, mut servers) = (Arc::new(Notify::new()), JoinSet::new());
    let mut place = MintFixture::start().await;
    place.upstream = hang_lists(place.it.platform.url().to_owned(), Arc::clone(&hanging), &mut servers);
    let running = place.run("one", place.options(place.team(), 600));
    running.ready().await;
    let front = Front::with(|options, parts| {
        options.upstream = place.it.platform.url().parse().unwrap();
        parts.source = running.source.clone();
    });
    // With its first token the minter searches for orphans.
    tokio::time::timeout(Duration::from_secs(10), hanging.notified()).await.unwrap();
    let made = place.of_team().await;
    assert!(made.len() == 1 && place.it.platform.faults().revoke(&text(&made[0]["id"])), "{made:?}");
    let response = tokio::time::timeout(Duration::from_secs(10), front.get("/api/v2/account/details")).await;
    assert_eq!(response.expect("the search delays no token").status().as_u16(), 200);
    drop(front);
    running.stop().await;
    assert_eq!(place.of_team().await, [] as [Value; 0], "a stop ends what was made");
}

#[tokio::test]
async fn a_token_is_served_until_it_expires_while_minting_fails() {
    let place = MintFixture::start().await;
    let running = place.run("one", place.options(place.team(), 5));
    running.ready().await;
    let first = running.bearer();
    let route = "POST /api/v2/teams/{entry}/authentication-tokens";
    place.it.platform.faults().routes([route], false);
    let health = running.health_is(|component| !component.ready).await;
    assert!(health.reason.unwrap().contains("404"), "the reason is why there is no other");
    let token = first.trim_start_matches("Bearer ");
    place.it.send(Method::GET, "/api/v2/account/details", Some(token), None).await.with(401);
    running.stop().await;
}

fn replace(path: &Path, text: &str) {
    let next_file = path.with_extension("next");
    std::fs::write(&next_file, text).unwrap();
    std::fs::rename(next_file, path).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_makes_its_token_keeps_it_over_a_reload_and_ends_it_and_refuses_a_single_one_by_default() {
    let place = MintFixture::start().await;
    let folder = place.folder.path();
    let free = ports::reserve();
    let config = folder.join("keyward.toml");
    let write = |more: &str, mint: &str| {
        let text = format!(
            "[gateway]\nupstream = \"{}\"\nlisten = \"tcp://{free}\"\nlocal_token_file = \"{}\"\n{more}\n\
             [gateway.mint]\nparent_token_file = \"{}\"\n{mint}",
            place.it.platform.url(),
            folder.join("local").display(),
            place.parent().display()
        );
        std::fs::write(&config, text).unwrap();
        config.display().to_string()
    };
    let team = format!("kind = \"team\"\nowner = \"{}\"\norganization = \"example\"\n", place.team);
    let path = write("", &team);
    let agent = Binary::start(&["run", "--config", &path], &[], folder);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let call = async || {
        let local = std::fs::read_to_string(folder.join("local")).unwrap_or_default();
        let request = client.get(format!("http://{free}/api/v2/account/details")).bearer_auth(local.trim());
        request.send().await.ok().map(|response| response.status().as_u16())
    };
    for _ in 0..400 {
        if call().await == Some(200) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(call().await, Some(200), "{}", agent.output());
    let first = place.of_team().await;
    assert_eq!(first.len(), 1);

    // The new minter creates its own token; the token of the replaced one is deleted.
    write("requests_per_second = 1000", &team);
    agent.signal(Signal::HUP);
    let team_tokens = format!("{ORG}/team-tokens");
    let second = place.until(&team_tokens, |listed| listed.len() == 1 && listed[0]["id"] != first[0]["id"]).await;
    assert_eq!(call().await, Some(200), "{}", agent.output());
    // Nothing happens when the leftovers of the one before are looked for, soon after the start.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(text(&place.of_team().await[0]["id"]), text(&second[0]["id"]), "it is not taken for a leftover");
    let (status, output) = tokio::task::spawn_blocking(move || agent.stop()).await.unwrap();
    assert_eq!(status.code(), Some(0), "{output}");
    assert_eq!(place.of_team().await, [] as [Value; 0], "{output}");
    assert!(!output.contains(".atlasv1."), "{output}");
    for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(file == place.parent() || !text.contains(".atlasv1."), "{}", file.display());
    }

    let path = write("", "kind = \"organization\"\nowner = \"example\"\n");
    let (code, _, error) = tokio::task::spawn_blocking(move || run(&["run", "--config", &path], &[])).await.unwrap();
    assert!(code != 0 && error.contains("gateway.mint.single_slot: missing: an organization has one token"), "{error}");
    assert_eq!(place.calls(&Method::POST, &format!("{ORG}/authentication-token")), []);
}
