//! The local API over real sockets: token, long poll, check, health and metrics, and the callers that it refuses.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keyward_agent::caller_tokens::CallerTokens;
use keyward_agent::callers::CallerGate;
use keyward_agent::local_api::{self, ListenerKind, LocalApiDeps, LocalApiOptions};
use keyward_agent::rotation::RotationRegistry;
use keyward_agent::secrets::SecretRegistries;
use keyward_agent::session_status::SessionStatusRegistry;
use keyward_agent::token::{ClientToken, Generation, Lease, SessionHandle, Token, TokenKind, TokenPublisher};
use keyward_credentials::credential_watch::{Availability, RefreshSignal, credential_channel};
use keyward_http::guard;
use keyward_http::server::{Endpoint, Listener, ListenerLimits, UnixSocket};
use keyward_machine::clock::{Clock, TestClock};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::status::SessionEntry;
use keyward_telemetry::status_registry::StatusRegistry;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::raw::{Answer, Raw};

const CANARY: &str = "hvs.canary-in-a-coal-mine";

/// Sessions with their publishers, and the listener that serves them.
struct Scene {
    folder: TempDir,
    clock: Clock,
    publishers: BTreeMap<String, TokenPublisher>,
    refresh_signals: BTreeMap<String, RefreshSignal>,
    sources: BTreeMap<String, SessionHandle>,
    health: Health,
    metrics: Metrics,
    session_statuses: SessionStatusRegistry,
    stop: CancellationToken,
    servers: JoinSet<()>,
}

impl Scene {
    fn new(sessions: &[&str]) -> Self {
        let clock = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)));
        let mut scene = Self {
            folder: tempfile::tempdir().unwrap(),
            clock: clock.clone(),
            publishers: BTreeMap::new(),
            refresh_signals: BTreeMap::new(),
            sources: BTreeMap::new(),
            health: Health::default(),
            metrics: Metrics::default(),
            session_statuses: SessionStatusRegistry::default(),
            stop: CancellationToken::new(),
            servers: JoinSet::new(),
        };
        for name in sessions {
            let (publisher, watch) = credential_channel("not logged in yet");
            let refresh_signal = RefreshSignal::new(clock.clone());
            scene.publishers.insert((*name).to_owned(), publisher);
            scene.refresh_signals.insert((*name).to_owned(), refresh_signal.clone());
            scene.sources.insert((*name).to_owned(), SessionHandle { watch, refresh_signal });
        }
        scene
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("api.sock")
    }

    fn serve(&mut self, serves: ListenerKind) {
        let socket = UnixSocket { path: self.path(), mode: 0o660, owner: None, group: None };
        let listener = Listener::bind(&Endpoint::Unix(socket)).unwrap();
        let options = LocalApiOptions { name: "local".to_owned(), kind: serves, sessions: self.sources.clone() };
        let parts = LocalApiDeps {
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            health: self.health.clone(),
            status_registry: StatusRegistry::default(),
            session_statuses: self.session_statuses.clone(),
            secrets: SecretRegistries::default(),
            rotations: RotationRegistry::default(),
            callers: CallerGate::default(),
            caller_tokens: CallerTokens::default(),
            guard: guard::GuardOptions::default(),
            address: listener.tcp_address(),
            stop: self.stop.clone(),
        };
        self.servers.spawn(listener.serve(
            local_api::service(options, parts),
            ListenerLimits::default(),
            self.stop.clone(),
        ));
    }

    async fn ask(&self, line: &str) -> Answer {
        Raw::unix(&self.path()).await.ask(request(line)).await
    }

    fn publish(&self, session: &str, secret: &str, generation: Generation, ttl: Duration) {
        let now = self.clock.now();
        let token = token(secret, generation, Lease { ttl, renewable: true }, now);
        self.publishers[session].publish(Availability::Available(Arc::new(token)), Some(now));
    }
}

fn token(secret: &str, generation: Generation, lease: Lease, now: keyward_machine::clock::ClockReading) -> Token {
    Token {
        secret: ClientToken::parse(SecretString::from(secret)).unwrap(),
        accessor: Some("accessor-1".to_owned()),
        lease,
        kind: TokenKind::Service,
        policies: vec!["default".to_owned(), "web".to_owned()],
        obtained: now,
        expires: (!lease.ttl.is_zero()).then(|| now + lease.ttl),
        generation,
    }
}

/// A request as the guard wants it.
fn request(line: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\r\n")
}

#[tokio::test(start_paused = true)]
async fn retry_after_counts_from_the_publication() {
    let mut scene = Scene::new(&["web"]);
    scene.serve(ListenerKind::LocalApi);
    let now = scene.clock.now();
    scene.publishers["web"].publish_unavailable("the server is sealed", Duration::from_secs(100), now, None);
    for (wait, expected) in [(0, 2..=100), (60, 1..=40), (60, 1..=1)] {
        tokio::time::sleep(Duration::from_secs(wait)).await;
        let response = scene.ask("GET /agent/v1/token").await;
        assert_eq!((response.status, response.error().as_str()), (503, "the server is sealed"));
        let seconds: u64 = response.header("retry-after").unwrap().parse().unwrap();
        assert!(expected.contains(&seconds), "{seconds} s, not {expected:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn t32_a_token_is_served_until_its_end_and_not_a_second_longer() {
    let mut scene = Scene::new(&["web"]);
    scene.serve(ListenerKind::LocalApi);
    let none = scene.ask("GET /agent/v1/token").await;
    assert_eq!((none.status, none.error().as_str(), none.header("retry-after")), (503, "not logged in yet", Some("1")));
    let generation = Generation::new();
    scene.publish("web", CANARY, generation, Duration::from_mins(10));
    let response = scene.ask("GET /agent/v1/token").await;
    assert_eq!(response.status, 200);
    assert_eq!(
        response.json(),
        serde_json::json!({
            "session": "web", "token": CANARY, "accessor": "accessor-1", "generation": generation.to_string(),
            "kind": "service", "renewable": true, "policies": ["default", "web"],
            "obtained_at": "2023-11-14T22:13:20Z", "expires_at": "2023-11-14T22:23:20Z",
        })
    );
    for (name, value) in
        [("content-type", "application/json"), ("cache-control", "no-store"), ("x-content-type-options", "nosniff")]
    {
        assert_eq!(response.header(name), Some(value), "{name}");
    }
    tokio::time::advance(Duration::from_secs(599)).await;
    assert_eq!(scene.ask("GET /agent/v1/token").await.status, 200);
    tokio::time::advance(Duration::from_secs(1)).await;
    let ended = scene.ask("GET /agent/v1/token").await;
    assert_eq!((ended.status, ended.error().as_str()), (503, "the token has expired"), "none was published since");
    assert!(!ended.body.contains(CANARY));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_and_a_login_are_seen_by_the_next_request_on_the_same_connection() {
    let mut scene = Scene::new(&["web"]);
    scene.serve(ListenerKind::LocalApi);
    let mut connection = Raw::unix(&scene.path()).await;
    let generation = Generation::new();
    let mut responses = Vec::new();
    for (secret, generation, minutes) in
        [("one", generation, 10), ("one", generation, 20), ("two", Generation::new(), 30)]
    {
        scene.publish("web", secret, generation, Duration::from_mins(minutes));
        for _ in 0..2 {
            let response = connection.ask(request("GET /agent/v1/token")).await.json();
            responses.push((response["token"].clone(), response["expires_at"].clone()));
        }
    }
    let expected = [("one", "2023-11-14T22:23:20Z"), ("one", "2023-11-14T22:33:20Z"), ("two", "2023-11-14T22:43:20Z")];
    let expected: Vec<_> = expected.iter().flat_map(|(token, end)| vec![((*token).into(), (*end).into()); 2]).collect();
    assert_eq!(responses, expected);
}

#[tokio::test(start_paused = true)]
async fn with_several_sessions_the_caller_names_one() {
    let mut scene = Scene::new(&["db", "web"]);
    scene.serve(ListenerKind::LocalApi);
    scene.publish("db", "of-db", Generation::new(), Duration::ZERO);
    let unnamed = scene.ask("GET /agent/v1/token").await;
    assert_eq!(unnamed.status, 400);
    assert_eq!(unnamed.error(), "name a session, ?session=NAME; this listener serves db, web");
    let unknown = scene.ask("GET /agent/v1/token?session=other").await;
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.error(), "this listener does not serve that session; it serves db, web");
    let named = scene.ask("GET /agent/v1/token?session=db").await.json();
    assert_eq!((&named["token"], &named["expires_at"]), (&"of-db".into(), &serde_json::Value::Null));
    let odd = scene.ask("GET /agent/v1/token?sesion=db").await;
    assert_eq!((odd.status, odd.error().contains("session, wait, after")), (400, true));
}

#[tokio::test(start_paused = true)]
async fn a_path_or_a_method_that_is_not_served_is_an_error() {
    let mut scene = Scene::new(&["web"]);
    scene.serve(ListenerKind::LocalApi);
    let check = async |line: &str, status, allow: Option<&str>, message: &str| {
        let response = scene.ask(line).await;
        let found = (response.status, response.header("allow"), response.error());
        assert_eq!(found, (status, allow, message.to_owned()), "{line}");
    };
    check("GET /agent/v1/tokens", 404, None, "no endpoint has this path").await;
    check("GET //agent/v1/token", 404, None, "no endpoint has this path").await;
    check("GET /agent/v1/../v1/token", 404, None, "no endpoint has this path").await;
    check("PUT /agent/v1/token", 405, Some("GET, HEAD"), "this path takes GET, HEAD").await;
    check("GET /agent/v1/check", 405, Some("POST"), "this path takes POST").await;
    check("DELETE /metrics", 405, Some("GET, HEAD"), "this path takes GET, HEAD").await;
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_is_answered_by_the_next_login_only() {
    let mut scene = Scene::new(&["web"]);
    scene.serve(ListenerKind::LocalApi);
    let first = Generation::new();
    let started = tokio::time::Instant::now();
    let mut waiting = Raw::unix(&scene.path()).await;
    waiting.send(request("GET /agent/v1/token?wait=30s")).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    scene.publish("web", "one", first, Duration::from_mins(10));
    let response = waiting.answer().await.unwrap();
    assert_eq!((response.json()["token"].as_str(), started.elapsed().as_secs()), (Some("one"), 3), "the first token");

    let other = scene.ask("GET /agent/v1/token?wait=30s&after=0123456789abcdef").await;
    assert_eq!((other.status, started.elapsed().as_secs()), (200, 3), "another generation than the current one");

    waiting.send(request(&format!("GET /agent/v1/token?wait=30s&after={first}"))).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    scene.publish("web", "one", first, Duration::from_mins(20));
    tokio::time::sleep(Duration::from_secs(4)).await;
    scene.publish("web", "two", Generation::new(), Duration::from_mins(20));
    let response = waiting.answer().await.unwrap();
    assert_eq!((response.json()["token"].as_str(), started.elapsed().as_secs()), (Some("two"), 11), "not the renewal");

    let current = scene.ask("GET /agent/v1/token").await.json()["generation"].as_str().unwrap().to_owned();
    let same = scene.ask(&format!("GET /agent/v1/token?wait=5s&after={current}")).await;
    assert_eq!((same.json()["token"].as_str(), started.elapsed().as_secs()), (Some("two"), 16), "what there is");
    let long = scene.ask("GET /agent/v1/token?wait=1h").await;
    assert_eq!((long.status, long.error().as_str()), (400, "wait is longer than 5m"));
}

#[tokio::test(start_paused = true)]
async fn waiting_callers_leave_connections_for_others() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Both ends of each connection are here.
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let mut scene = Scene::new(&["web"]);
    scene.serve(ListenerKind::LocalApi);
    let mut waiting = Vec::new();
    for _ in 0..512 {
        let mut caller = Raw::unix(&scene.path()).await;
        caller.send(request("GET /agent/v1/token?wait=5m")).await;
        waiting.push(caller);
    }
    let full = scene.ask("GET /agent/v1/token?wait=5m").await;
    assert_eq!((full.status, full.header("retry-after")), (429, Some("5")), "{full:?}");
    assert_eq!(scene.ask("GET /agent/v1/token").await.status, 503, "asking takes no place");
    for _ in 0..600 {
        waiting.push(Raw::unix(&scene.path()).await);
    }
    assert_eq!(scene.ask("GET /agent/v1/token").await.status, 503, "nor do connections that say nothing");
    scene.publish("web", CANARY, Generation::new(), Duration::from_mins(10));
    for caller in &mut waiting[..512] {
        assert_eq!(caller.answer().await.unwrap().status, 200);
    }
    let updated = scene.ask("GET /agent/v1/token?wait=5m").await;
    assert_eq!(updated.status, 200);
}

#[tokio::test(start_paused = true)]
async fn waiting_callers_get_a_response_when_the_listener_stops() {
    let mut scene = Scene::new(&["web"]);
    scene.serve(ListenerKind::LocalApi);
    let started = tokio::time::Instant::now();
    let mut waiting = Raw::unix(&scene.path()).await;
    waiting.send(request("GET /agent/v1/token?wait=30s")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    scene.stop.cancel();
    assert_eq!(waiting.answer().await.unwrap().status, 503);
    scene.servers.join_next().await.unwrap().unwrap();
    assert_eq!(started.elapsed().as_secs(), 1);
    assert!(!scene.path().exists(), "the socket is removed");
}

#[tokio::test(start_paused = true)]
async fn one_check_serves_all_callers_that_request_it() {
    let mut scene = Scene::new(&["web"]);
    scene.serve(ListenerKind::LocalApi);
    let generation = Generation::new();
    scene.publish("web", CANARY, generation, Duration::from_hours(1));
    let manager = async {
        let refresh_signal = &scene.refresh_signals["web"];
        refresh_signal.requested().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        scene.publishers["web"].record_check(scene.clock.now());
        refresh_signal.complete();
        let again = tokio::time::timeout(Duration::from_secs(1), refresh_signal.requested()).await;
        assert!(again.is_err(), "one look for all who rang");
    };
    let ask = || scene.ask("POST /agent/v1/check");
    let (one, two, ()) = tokio::join!(ask(), ask(), manager);
    for response in [one, two] {
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(
            response.json(),
            serde_json::json!({
                "serving": true, "generation": generation.to_string(), "last_checked": "2023-11-14T22:13:22Z", "age": 0,
            })
        );
    }
}

#[tokio::test(start_paused = true)]
async fn checks_beyond_the_limit_return_the_last_result_and_its_age() {
    let mut scene = Scene::new(&["web"]);
    scene.serve(ListenerKind::LocalApi);
    scene.publish("web", CANARY, Generation::new(), Duration::from_hours(1));
    let manager = async {
        loop {
            scene.refresh_signals["web"].requested().await;
            scene.publishers["web"].record_check(scene.clock.now());
            scene.refresh_signals["web"].complete();
        }
    };
    let caller = async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(scene.ask("POST /agent/v1/check").await.status, 200);
        }
        tokio::time::sleep(Duration::from_secs(7)).await;
        let spent = scene.ask("POST /agent/v1/check").await;
        assert_eq!((spent.status, spent.header("retry-after")), (429, Some("51")));
        assert_eq!(spent.error(), "too many checks were requested; returning the last result");
        assert_eq!((spent.json()["age"].as_u64(), spent.json()["serving"].as_bool()), (Some(7), Some(true)));
    };
    tokio::select! {
        () = manager => {}
        () = caller => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_without_a_response_of_the_server_reports_it() {
    let mut scene = Scene::new(&["web"]);
    scene.serve(ListenerKind::LocalApi);
    let manager = async {
        scene.refresh_signals["web"].requested().await;
        scene.refresh_signals["web"].complete();
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let (response, ()) = tokio::join!(scene.ask("POST /agent/v1/check"), manager);
    assert_eq!((response.status, response.error().as_str()), (503, "the server has not answered the check yet"));
    assert_eq!(response.json()["reason"], "not logged in yet");
    let started = tokio::time::Instant::now();
    assert_eq!(scene.ask("POST /agent/v1/check").await.status, 503);
    assert_eq!(started.elapsed().as_secs(), 15, "the wait is bounded");
}

#[tokio::test(start_paused = true)]
async fn probes_list_components_with_reasons_and_status_lists_the_listeners_sessions() {
    let mut scene = Scene::new(&["web"]);
    scene.serve(ListenerKind::LocalApi);
    let component = scene.health.register("session/web", true, "not logged in yet");
    for path in ["/readyz", "/startupz", "/readyz/session/web"] {
        let response = scene.ask(&format!("GET {path}")).await;
        assert_eq!((response.status, response.body.contains("not logged in yet")), (503, true), "{path}");
    }
    assert_eq!(scene.ask("GET /livez").await.status, 200);
    component.set_ready();
    component.set_not_ready("the server is gone");
    assert_eq!(scene.ask("GET /startupz").await.status, 200);
    let response = scene.ask("GET /readyz").await;
    assert_eq!(
        (response.status, &response.json()["components"]["session/web"]["reason"]),
        (503, &"the server is gone".into())
    );
    component.set_ready();
    assert_eq!(scene.ask("GET /readyz").await.json()["ready"], true);
    assert_eq!(scene.ask("GET /readyz/sink/none").await.status, 404);
    let (web, other) = (scene.session_statuses.register("web"), scene.session_statuses.register("other"));
    web.update(SessionEntry { role: "dev".to_owned(), ..SessionEntry::default() });
    other.update(SessionEntry::default());
    let status = scene.ask("GET /agent/v1/status").await.json();
    assert_eq!(status["sessions"]["web"]["role"], "dev");
    assert_eq!(status["sessions"].as_object().unwrap().len(), 1, "other listeners' sessions stay out");
}

#[tokio::test(start_paused = true)]
async fn a_health_listener_serves_only_probes_for_any_host() {
    let mut scene = Scene::new(&["web"]);
    scene.serve(ListenerKind::Health);
    scene.publish("web", CANARY, Generation::new(), Duration::from_mins(10));
    for (head, status) in [
        ("GET /livez HTTP/1.1\r\nHost: 10.1.2.3:8200\r\nX-Forwarded-For: 10.0.0.1", 200),
        ("GET /metrics HTTP/1.0", 200),
        ("GET /agent/v1/token HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true", 404),
        ("GET /agent/v1/status HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true", 404),
        ("POST /agent/v1/check HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true", 404),
        ("GET /readyz HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example", 403),
        ("GET /readyz HTTP/1.1\r\nHost: evil.example\r\nSec-Fetch-Mode: no-cors", 403),
    ] {
        let response = Raw::unix(&scene.path()).await.ask(format!("{head}\r\n\r\n")).await;
        assert_eq!(response.status, status, "{head}");
        assert!(!response.body.contains(CANARY), "{head}");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_and_refusals_are_counted_and_the_metrics_hold_no_token() {
    let mut scene = Scene::new(&["web"]);
    scene.serve(ListenerKind::LocalApi);
    scene.publish("web", CANARY, Generation::new(), Duration::from_mins(10));
    for _ in 0..3 {
        assert_eq!(scene.ask("GET /agent/v1/token").await.status, 200);
    }
    let refused = Raw::unix(&scene.path()).await.ask("GET /agent/v1/token HTTP/1.1\r\nHost: evil\r\n\r\n").await;
    assert_eq!(refused.status, 421);
    let response = scene.ask("GET /metrics").await;
    assert_eq!(response.header("content-type"), Some(keyward_telemetry::metrics::CONTENT_TYPE));
    for line in [
        "keyward_local_requests_total{listener=\"local\",code=\"200\"} 3",
        "keyward_local_requests_total{listener=\"local\",code=\"421\"} 1",
        "keyward_local_refused_total{listener=\"local\",reason=\"host\"} 1",
    ] {
        assert!(response.body.contains(line), "{line} in\n{}", response.body);
    }
    assert!(!response.body.contains(CANARY));
}
