//! Changed secrets by the server's events, in driven time: the real client on real sockets against a server that a test scripts.

use keyward_agent::secrets::{EventSubscription, VersionPoll};
use keyward_agent::server_client::{ServerClient, ServerClientOptions, ServerKind};
use keyward_http::client::{ClientOptions, ProxyMode, ServerAddress, TlsOptions};
use keyward_telemetry::status::ComponentEntry;
use serde_json::Value;

use super::*;
use crate::harness::event_server::{EventServer, Reply, event, frame, text, written};
use crate::harness::log;

const SECOND: Duration = Duration::from_secs(1);

/// Bounds the steps of driven time: with each byte that comes by a socket, it would jump to the next timer otherwise.
async fn tick() {
    loop {
        sleep(Duration::from_millis(20)).await;
    }
}

/// Templates whose secrets come through a server of events.
struct Followed<'a> {
    bench: Bench<'a>,
    server: EventServer,
    world: &'a World,
}

impl<'a> Followed<'a> {
    /// A template of a secret that has its first version. It is read every hour, and polled at `interval` while no events are followed.
    async fn start(world: &'a World, session: &Session, interval: Option<Duration>, reply: Option<Reply>) -> Self {
        log::keep();
        let server = EventServer::start(world.secrets.url()).await;
        if let Some(reply) = reply {
            server.reply_always(reply);
        }
        put(world, "app", json!({ "password": "p0" })).await;
        let mut bench = Bench::with_registry(world, session, |deps| {
            deps.interval = MINUTE * 60;
            deps.upstream = client(&server.url()).with_metrics(&world.metrics);
        });
        bench.running.spawn(tick());
        let health = |name: &str| world.health.register(name, false, "starting");
        let (subscription, connection) = EventSubscription::new(&bench.store, "web", health("events/web"));
        let poll = VersionPoll::new(&bench.store, interval, Some(connection), health("versions/web"));
        bench.running.spawn(subscription.run(CancellationToken::new()));
        bench.running.spawn(poll.run(CancellationToken::new()));
        bench.start("app", &password("app"));
        sleep(SECOND * 10).await;
        assert_eq!(bench.read("app").as_deref(), Some("p0"));
        Self { bench, server, world }
    }

    async fn subscribed(world: &'a World, session: &Session) -> Self {
        let followed = Self::start(world, session, None, None).await;
        assert_eq!((followed.server.open(), followed.connected()), (1, 1));
        followed
    }

    /// Writes the secret without an event.
    async fn put(&self, value: &str) {
        put(self.world, "app", json!({ "password": value })).await;
    }

    fn value(&self) -> Option<String> {
        self.bench.read("app")
    }

    fn connected(&self) -> u64 {
        self.bench.metric("secret_events_connected", "session=\"web\"")
    }

    fn events(&self, outcome: &str) -> u64 {
        self.bench.metric("secret_events_total", &format!("session=\"web\",outcome=\"{outcome}\""))
    }

    fn connections(&self, outcome: &str) -> u64 {
        self.bench.metric("secret_event_connections_total", &format!("session=\"web\",outcome=\"{outcome}\""))
    }

    fn reads(&self) -> u64 {
        self.world.count(Operation::Secret)
    }

    fn status(&self) -> ComponentEntry {
        self.world.health.statuses().remove("events/web").unwrap()
    }

    fn reason(&self) -> String {
        self.status().reason.expect("a reason")
    }
}

fn client(url: &str) -> ServerClient {
    ServerClient::build(&ServerClientOptions {
        name: "test".to_owned(),
        kind: ServerKind::Vault,
        client: ClientOptions {
            address: ServerAddress::Url(url.parse().unwrap()),
            tls: TlsOptions::default(),
            proxy: ProxyMode::Direct,
            connect_timeout: SECOND * 5,
            response_timeout: SECOND * 10,
        },
        login_timeout: SECOND * 90,
    })
    .unwrap()
}

fn logged(event: &str) -> Vec<Value> {
    let fields = log::lines().into_iter().map(|mut line| line["fields"].take());
    fields.filter(|fields| fields["event"] == event).collect()
}

#[tokio::test(start_paused = true)]
async fn an_event_changes_the_file_at_once_and_costs_one_read() {
    let world = world();
    let session = world.start();
    let followed = Followed::subscribed(&world, &session).await;
    let head = followed.server.heads()[0].to_lowercase();
    assert!(head.starts_with("get /v1/sys/events/subscribe/kv*?json=true http/1.1\r\n"), "{head}");
    for line in ["x-vault-request: true", "sec-websocket-version: 13", "upgrade: websocket", "x-vault-token: "] {
        assert!(head.contains(line), "{line}: {head}");
    }
    for number in 1..=3 {
        sleep(MINUTE * 2).await;
        let value = format!("p{number}");
        followed.put(&value).await;
        let before = followed.reads();
        followed.server.send_written("app", number + 1);
        sleep(SECOND * 2).await;
        assert_eq!(followed.value(), Some(value));
        assert_eq!(followed.reads() - before, 1);
    }
    // Nothing happens without an event.
    let before = (followed.reads(), world.count(Operation::System));
    sleep(MINUTE * 30).await;
    assert_eq!((followed.reads(), world.count(Operation::System)), before);
    assert_eq!((followed.events("read"), followed.events("other"), followed.server.heads().len()), (3, 0, 1));
    let status = followed.status();
    assert!(status.ready && status.note.as_deref() == Some("follows the server's events"), "{status:?}");
    assert_eq!(logged("agent.secret.events.subscribed").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_change_and_both_spellings_of_a_path_are_followed() {
    let world = world();
    let session = world.start();
    let mut followed = Followed::subscribed(&world, &session).await;
    followed.bench.start("short", "{{ with secret \"secret/app\" }}{{ .Data.data.password }}{{ end }}");
    sleep(MINUTE).await;
    for (number, (kind, path)) in [
        ("kv-v2/data-patch", "secret/data/app"),
        ("kv-v2/undelete", "secret/undelete/app"),
        ("kv-v2/destroy", "secret/destroy/app"),
        ("kv-v2/metadata-patch", "secret/metadata/app"),
        ("kv-v2/data-write", "data/app"),
    ]
    .into_iter()
    .enumerate()
    {
        let value = format!("p{}", number + 1);
        followed.put(&value).await;
        followed.server.send(text(&event(kind, path, None).to_string()));
        sleep(SECOND * 2).await;
        let short = followed.bench.read("short");
        assert_eq!((followed.value(), short), (Some(value.clone()), Some(value)), "{kind}");
        sleep(MINUTE).await;
    }
    // The version is gone: the file stays, and the template says it.
    let token = world.secrets.token(&Role::default());
    let url = format!("{}/v1/secret/data/app", world.secrets.url());
    reqwest::Client::new().delete(url).header("x-vault-token", token.expose_secret()).send().await.unwrap();
    let before = followed.reads();
    followed.server.send(text(&event("kv-v2/data-delete", "secret/data/app", None).to_string()));
    sleep(SECOND / 2).await;
    assert_eq!((followed.reads() - before, followed.value().as_deref()), (2, Some("p5")));
}

#[tokio::test(start_paused = true)]
async fn events_of_others_and_messages_that_are_none_cause_no_read_and_no_end() {
    let world = world();
    let session = world.start();
    let followed = Followed::subscribed(&world, &session).await;
    let before = followed.reads();
    let mut other_mount = event("kv-v2/data-write", "team/data/app", Some(2));
    other_mount["data"]["plugin_info"]["mount_path"] = json!("team/");
    let mut other_namespace = event("kv-v2/data-write", "secret/data/app", Some(2));
    other_namespace["data"]["namespace"] = json!("other/");
    let mut unmodified = event("kv-v2/data-write", "secret/data/app", Some(2));
    unmodified["data"]["event"]["metadata"]["modified"] = json!("false");
    let others = [
        event("kv-v2/data-write", "secret/data/other", Some(2)),
        event("kv-v2/data-write", "secret/data/app/more", Some(2)),
        event("kv-v2/config-write", "secret/config", None),
        event("database/rotate", "secret/data/app", None),
        other_mount,
        other_namespace,
        unmodified,
    ];
    for other in &others {
        followed.server.send(text(&other.to_string()));
    }
    for invalid in ["", "{}", "[]", "not json", "{\"data\":{\"event\":{},\"event_type\":\"kv-v2/data-write\"}}"] {
        followed.server.send(text(invalid));
    }
    followed.server.send(frame(0x82, &[0xff, 0x00, 0xfe]));
    sleep(MINUTE).await;
    assert_eq!((followed.reads(), followed.events("read")), (before, 0));
    assert_eq!((followed.events("other"), followed.events("invalid")), (7, 6));
    assert_eq!(logged("agent.secret.events.invalid").len(), 1, "once for a connection");
    assert_eq!((followed.server.open(), followed.server.heads().len()), (1, 1));
    // It goes on.
    followed.put("p1").await;
    followed.server.send_written("app", 2);
    sleep(SECOND * 2).await;
    assert_eq!(followed.value().as_deref(), Some("p1"));
}

#[tokio::test(start_paused = true)]
async fn t29_a_flood_of_events_is_followed_at_the_pace_of_a_poll() {
    let world = world();
    let session = world.start();
    let followed = Followed::subscribed(&world, &session).await;
    let before = followed.reads();
    for number in 1..=120 {
        let value = format!("p{number}");
        followed.put(&value).await;
        for _ in 0..100 {
            followed.server.send_written("app", number + 1);
        }
        sleep(SECOND).await;
    }
    // The writes are calls, too.
    let reads = followed.reads() - before - 120;
    assert!((50..=70).contains(&reads), "{reads} reads in two minutes");
    sleep(SECOND * 5).await;
    assert_eq!(followed.value().as_deref(), Some("p120"), "the last event counts");
    assert_eq!(followed.events("read"), 12_000);
    sleep(MINUTE).await;
    let reads = followed.reads();
    sleep(MINUTE * 10).await;
    assert_eq!(followed.reads(), reads);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_events_during_an_outage_costs_no_calls() {
    let world = world();
    let session = world.start();
    let followed = Followed::subscribed(&world, &session).await;
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::new(500, "{\"errors\":[\"failed\"]}")));
    let before = followed.reads();
    for number in 0..3600 {
        followed.server.send_written("app", number + 2);
        sleep(SECOND).await;
    }
    let calls = followed.reads() - before;
    assert!(calls < 150, "{calls} calls in an hour");
    world.faults().respond_always(Operation::Secret, None);
    followed.put("p1").await;
    sleep(MINUTE * 6).await;
    assert_eq!(followed.value().as_deref(), Some("p1"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_lags_behind_its_event_is_read_again() {
    let world = world();
    let session = world.start();
    let followed = Followed::subscribed(&world, &session).await;
    followed.server.send_written("app", 2);
    sleep(SECOND * 5).await;
    followed.put("p1").await;
    sleep(SECOND * 8).await;
    assert_eq!(followed.value().as_deref(), Some("p1"));
    let before = followed.reads();
    sleep(MINUTE * 30).await;
    assert_eq!(followed.reads(), before, "it has the version");
}

#[tokio::test(start_paused = true)]
async fn after_a_cut_the_versions_are_asked_once_and_a_change_in_between_is_found() {
    let world = world();
    let session = world.start();
    let followed = Followed::subscribed(&world, &session).await;
    sleep(MINUTE * 10).await;
    let before = followed.reads();
    followed.server.reply_next(Reply::error(503, "Vault is sealed"));
    followed.server.cut();
    sleep(SECOND / 100).await;
    followed.put("p1").await;
    assert_eq!(followed.connected(), 0);
    sleep(MINUTE).await;
    assert_eq!((followed.value().as_deref(), followed.connected()), (Some("p1"), 1));
    // The write, the version, and the read.
    assert_eq!(followed.reads() - before, 3);
    let before = followed.reads();
    sleep(MINUTE * 30).await;
    assert_eq!(followed.reads(), before);
    assert_eq!(
        (followed.connections("open"), followed.connections("ended"), followed.connections("failed")),
        (2, 1, 1)
    );
    let lines = [logged("agent.secret.events.ended"), logged("agent.secret.events.failed")];
    assert!(lines[0].len() == 1 && lines[1].len() == 1, "{lines:?}");
    let recovered = logged("agent.secret.events.recovered");
    assert!(recovered.len() == 1 && recovered[0]["lasted_seconds"].as_f64() < Some(60.0), "{recovered:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_always_cut_at_once_is_no_loop() {
    let world = world();
    let session = world.start();
    let followed = Followed::start(&world, &session, None, Some(Reply::Bytes(String::new()))).await;
    followed.server.reply_always(Reply::Open);
    sleep(MINUTE * 10).await;
    let before = (followed.server.heads().len(), followed.reads());
    for _ in 0..3600 {
        if followed.server.open() > 0 {
            followed.server.cut();
        }
        sleep(SECOND).await;
    }
    let attempts = followed.server.heads().len() - before.0;
    let calls = followed.reads() - before.1;
    assert!(attempts > 5 && attempts + usize::try_from(calls).unwrap() < 150, "{attempts} attempts, {calls} calls");
    assert!(logged("agent.secret.events.failed").len() < 3);
}

#[tokio::test(start_paused = true)]
async fn the_poll_goes_on_without_events_and_rests_with_them() {
    let world = world();
    let session = world.start();
    let absent = Reply::error(404, "unsupported path");
    let followed = Followed::start(&world, &session, Some(SECOND * 2), Some(absent)).await;
    followed.put("p1").await;
    sleep(SECOND * 4).await;
    assert_eq!(followed.value().as_deref(), Some("p1"), "by the poll");
    followed.server.reply_always(Reply::Open);
    sleep(MINUTE * 70).await;
    assert_eq!(followed.connected(), 1);
    let before = followed.reads();
    sleep(MINUTE * 60).await;
    // One every five minutes, and the content once an hour.
    let calls = followed.reads() - before;
    assert!((11..=15).contains(&calls), "{calls}");
    // An event is lost.
    followed.put("p2").await;
    sleep(MINUTE * 6).await;
    assert_eq!(followed.value().as_deref(), Some("p2"), "by the poll");
    followed.server.reply_always(Reply::error(503, "Vault is sealed"));
    followed.server.cut();
    sleep(SECOND).await;
    followed.put("p3").await;
    sleep(SECOND * 4).await;
    assert_eq!(followed.value().as_deref(), Some("p3"), "by the poll, at its own interval");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_events_is_told_once_with_the_remedy_and_asked_again_hourly_and_after_a_login() {
    let world = world();
    let session = world.start();
    for status in [404, 405, 501] {
        let reply = Reply::error(status, "1 error occurred:\n\t* unsupported path\n\n");
        let followed = Followed::start(&world, &session, None, Some(reply)).await;
        sleep(MINUTE * 230).await;
        let attempts = followed.server.heads().len();
        // Another token of the session may come in between, which asks once more.
        assert!((4..=6).contains(&attempts), "{status}: {attempts}");
        let lines = logged("agent.secret.events.failed");
        let message = lines[0]["message"].as_str().unwrap();
        assert!(lines.len() == 1 && message.contains("Vault Enterprise has them from 1.16"), "{lines:?}");
        assert!(followed.reason().contains("set version_interval"), "{}", followed.reason());
        assert!(followed.status().next_try.is_some() && followed.connected() == 0);
        if status == 404 {
            world.secrets.faults().revoke_all();
            session.refresh_signal.request();
            sleep(MINUTE).await;
            assert_eq!(followed.server.heads().len(), attempts + 1, "a new login");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_denies_events_is_told_once_with_the_lines_to_add() {
    let world = world();
    let session = world.start();
    let denied = Reply::error(403, "1 error occurred:\n\t* permission denied\n\n");
    let followed = Followed::start(&world, &session, None, Some(denied)).await;
    let before = world.upstream_calls();
    sleep(MINUTE * 60).await;
    let attempts = followed.server.heads().len();
    assert!((5..=8).contains(&attempts), "{attempts}");
    let calls = world.upstream_calls() - before;
    assert!(calls < 40, "{calls} calls of the session in an hour");
    let lines = logged("agent.secret.events.failed");
    let message = lines[0]["message"].as_str().unwrap();
    assert_eq!((lines.len(), lines[0]["code"].as_str()), (1, Some("KW-1211")), "{lines:?}");
    for policy in [
        "path \"sys/events/subscribe/kv*\" { capabilities = [\"read\"] }",
        "path \"MOUNT/data/PATH\" { capabilities = [\"read\", \"list\", \"subscribe\"] subscribe_event_types = [\"kv*\"] }",
    ] {
        assert!(message.contains(policy) && followed.reason().contains(policy), "{message}; {}", followed.reason());
    }
    // The policy is extended.
    followed.server.reply_always(Reply::Open);
    sleep(MINUTE * 12).await;
    assert_eq!((followed.connected(), logged("agent.secret.events.recovered").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn t27_a_redirect_to_the_same_address_is_followed_and_one_to_another_host_gets_no_token() {
    let world = world();
    let session = world.start();
    let path = "/v1/sys/events/subscribe/kv*?json=true";
    let followed = Followed::subscribed(&world, &session).await;
    // Behind the address of a load balancer, another node answers the next connection.
    followed.server.reply_next(Reply::redirect(&format!("{}{path}", followed.server.url())));
    followed.server.reply_next(Reply::redirect(path));
    followed.server.cut();
    sleep(SECOND * 3).await;
    assert_eq!((followed.connected(), followed.server.heads().len()), (1, 4));
    // For ever is too long.
    followed.server.reply_always(Reply::redirect(path));
    followed.server.cut();
    sleep(SECOND * 3).await;
    assert!(followed.reason().contains("redirects to itself"), "{}", followed.reason());
    let foreign = EventServer::start(world.secrets.url()).await;
    followed.server.reply_always(Reply::redirect(&format!("{}{path}", foreign.url())));
    sleep(MINUTE * 60).await;
    assert_eq!((foreign.heads().len(), foreign.open()), (0, 0), "the token went to another host");
    let reason = followed.reason();
    assert!(
        reason.contains(&foreign.url()) && reason.contains("set the server's address to that of the active node"),
        "{reason}"
    );
    assert_eq!(logged("agent.secret.events.failed").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_token_ends_the_old_connection_and_a_revoked_one_leaves_none() {
    let world = world();
    let session = world.start();
    let followed = Followed::subscribed(&world, &session).await;
    let token = |number: usize| {
        let head = followed.server.heads()[number].to_lowercase();
        let line = head.lines().find_map(|line| line.strip_prefix("x-vault-token: ").map(str::to_owned));
        line.unwrap()
    };
    // A check and a renewal leave the connection.
    sleep(MINUTE * 45).await;
    assert_eq!(followed.server.heads().len(), 1);
    world.secrets.faults().revoke_all();
    session.refresh_signal.request();
    sleep(SECOND * 10).await;
    assert_eq!((followed.server.heads().len(), followed.server.open()), (2, 1));
    assert_ne!(token(0), token(1));
    // While no login succeeds, there is no connection.
    world.secrets.faults().revoke_all();
    world.secrets.faults().respond_always(Operation::Login, Some(CannedResponse::error(500, "failed")));
    session.refresh_signal.request();
    sleep(SECOND * 10).await;
    assert_eq!((followed.server.heads().len(), followed.server.open(), followed.connected()), (2, 0, 0));
    world.secrets.faults().respond_always(Operation::Login, None);
    sleep(MINUTE * 10).await;
    assert_eq!((followed.server.open(), followed.connected()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_found_within_two_minutes() {
    let world = world();
    let session = world.start();
    let followed = Followed::subscribed(&world, &session).await;
    // The server's own pings keep it, and are answered.
    for number in 0..10_u8 {
        followed.server.send(frame(0x89, &[number]));
        sleep(SECOND * 30).await;
    }
    let pongs: Vec<_> = (0..10_u8).map(|number| (10, vec![number])).collect();
    assert_eq!(followed.server.received(), pongs);
    // Without them it asks by itself, once a minute.
    sleep(MINUTE * 10).await;
    let pings = followed.server.received().len() - 10;
    assert!((9..=10).contains(&pings), "{pings}");
    followed.server.turn_deaf();
    sleep(SECOND * 100).await;
    assert_eq!((followed.server.heads().len(), followed.connections("ended")), (2, 1));
    assert!(logged("agent.secret.events.ended")[0]["error"].as_str().unwrap().contains("within 90 s"));
}

#[tokio::test(start_paused = true)]
async fn large_fragmented_and_closing_frames_are_taken_or_end_the_connection() {
    let world = world();
    let session = world.start();
    let followed = Followed::subscribed(&world, &session).await;
    // One message in three frames, with a ping in between.
    followed.put("p1").await;
    let message = written("app", 2).into_bytes();
    let (first, rest) = message.split_at(100);
    let (second, third) = rest.split_at(1);
    for bytes in [frame(0x01, first), frame(0x89, b"ping"), frame(0x00, second), frame(0x80, third)] {
        followed.server.send(bytes);
        sleep(SECOND / 10).await;
    }
    sleep(SECOND * 2).await;
    assert_eq!((followed.value().as_deref(), followed.server.heads().len()), (Some("p1"), 1));
    // The largest message is taken. One byte more, in one frame or in several, ends the connection before it is received.
    let largest = vec![b' '; 64 * 1024];
    followed.server.send(frame(0x81, &largest));
    sleep(SECOND).await;
    assert_eq!((followed.events("invalid"), followed.server.heads().len()), (1, 1));
    let bytes_of = |lines: &[&[u8]]| lines.concat();
    let one_more = vec![b' '; 64 * 1024 + 1];
    for (name, bytes, expected) in [
        ("one frame", frame(0x81, &one_more), "is larger than 65536 bytes"),
        ("only its head", frame(0x81, &one_more)[..14].to_vec(), "is larger than 65536 bytes"),
        ("fragments", bytes_of(&[&frame(0x01, &largest), &frame(0x80, b" ")]), "is larger than 65536 bytes"),
        ("close", frame(0x88, &[]), "the server closed it"),
        (
            "close with a reason",
            frame(0x88, b"\x03\xe9going\x1b away"),
            "the server closed it (1001): going\\u{1b} away",
        ),
        ("masked", vec![0x81, 0x81, 0, 0, 0, 0, b' '], "asked"),
        ("reserved bits", frame(0xc1, b"{}"), "eserved"),
        ("an unknown opcode", frame(0x83, b"{}"), "opcode"),
        ("a continuation of nothing", frame(0x80, b"{}"), "ontinu"),
        ("text that is not UTF-8", frame(0x81, &[0xff, 0xfe]), "UTF-8"),
        ("a long ping", frame(0x89, &[b' '; 126]), "ontrol"),
    ] {
        let before = followed.server.heads().len();
        log::keep();
        followed.server.send(bytes);
        sleep(SECOND / 50).await;
        let ended = logged("agent.secret.events.ended");
        let error =
            ended.first().unwrap_or_else(|| panic!("{name}: the connection goes on"))["error"].as_str().unwrap();
        assert!(error.contains(expected), "{name}: {error}");
        sleep(MINUTE * 10).await;
        assert_eq!((followed.server.heads().len(), followed.server.open()), (before + 1, 1), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_handshake_is_told_and_retried() {
    let world = world();
    let session = world.start();
    for (reply, expected) in [
        (Reply::response(200, "", "{}"), "HTTP 200 instead of 101"),
        (Reply::Accept("c3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "Sec-WebSocket-Accept is not that of the request"),
        (Reply::Bytes("HTTP/1.1 101 OK\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n".to_owned()), "another protocol"),
        (Reply::Bytes("nonsense\r\n\r\n".to_owned()), "the call to http://127.0.0.1:"),
        (Reply::error(429, "request rate limit"), "HTTP 429: request rate limit"),
        (Reply::error(500, "failed"), "HTTP 500: failed"),
    ] {
        let followed = Followed::start(&world, &session, None, Some(reply)).await;
        sleep(MINUTE * 60).await;
        let attempts = followed.server.heads().len();
        assert!((10..=60).contains(&attempts), "{expected}: {attempts} attempts");
        let reason = followed.reason();
        assert!(reason.contains(expected) && !reason.contains("p0"), "{reason}");
        assert_eq!((logged("agent.secret.events.failed").len(), followed.connected()), (1, 0), "{expected}");
        followed.server.reply_always(Reply::Open);
        sleep(MINUTE * 6).await;
        assert_eq!((followed.connected(), logged("agent.secret.events.recovered").len()), (1, 1), "{expected}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_a_wait_gets_it() {
    let world = world();
    let session = world.start();
    let busy = Reply::response(429, "Retry-After: 600\r\n", "{\"errors\":[\"busy\"]}");
    let followed = Followed::start(&world, &session, None, Some(busy)).await;
    sleep(MINUTE * 60).await;
    let attempts = followed.server.heads().len();
    assert!((4..=7).contains(&attempts), "{attempts}");
}

#[tokio::test(start_paused = true)]
async fn without_a_right_to_versions_the_secret_is_read_at_each_connection() {
    let world = world();
    let session = world.start();
    let followed = Followed::subscribed(&world, &session).await;
    followed.put("p1").await;
    let denied = CannedResponse::error(403, "1 error occurred:\n\t* permission denied\n\n");
    world.faults().respond_next(Operation::Secret, denied);
    followed.server.cut();
    sleep(SECOND * 10).await;
    assert_eq!(followed.value().as_deref(), Some("p1"));
    let denied = logged("agent.secret.version_denied");
    assert!(denied[0]["message"].as_str().unwrap().contains("it is read whenever"), "{denied:?}");
}

#[tokio::test(start_paused = true)]
async fn no_connection_is_open_without_secrets() {
    let world = world();
    let session = world.start();
    let server = EventServer::start(world.secrets.url()).await;
    let mut bench = Bench::with_registry(&world, &session, |deps| deps.upstream = client(&server.url()));
    bench.running.spawn(tick());
    let health = world.health.register("events/web", false, "starting");
    let (subscription, _connection) = EventSubscription::new(&bench.store, "web", health);
    bench.running.spawn(subscription.run(CancellationToken::new()));
    sleep(MINUTE * 10).await;
    assert_eq!(server.heads().len(), 0);
    put(&world, "app", json!({ "password": "p0" })).await;
    bench.start("app", &password("app"));
    sleep(SECOND).await;
    assert_eq!((server.heads().len(), server.open()), (1, 1));
}
