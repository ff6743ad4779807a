//! Polls of the versions of secrets in key-value version 2.

use keyward_agent::secrets::VersionPoll;

use super::*;
use crate::harness::log;

fn bench<'a>(world: &'a World, session: &Session, interval: Duration) -> Bench<'a> {
    let mut bench = Bench::with_registry(world, session, |deps| deps.interval = MINUTE * 60);
    let health = world.health.register("versions/web", false, "not polled yet");
    bench.running.spawn(VersionPoll::new(&bench.store, Some(interval), None, health).run(CancellationToken::new()));
    bench
}

/// A template of a secret that has its first version, and is polled every two seconds.
async fn polled<'a>(world: &'a World, session: &Session) -> Bench<'a> {
    put(world, "app", json!({ "password": "p0" })).await;
    let mut bench = bench(world, session, TWO_SECONDS);
    bench.start("app", &password("app"));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(bench.read("app").as_deref(), Some("p0"));
    bench
}

/// Deletes the latest version as another client.
async fn delete(world: &World, path: &str) {
    let token = world.secrets.token(&Role::default());
    let url = format!("{}/v1/secret/data/{path}", world.secrets.url());
    let request = reqwest::Client::new().delete(url).header("x-vault-token", token.expose_secret());
    assert!(request.send().await.unwrap().status().is_success());
}

fn polls(bench: &Bench<'_>, outcome: &str) -> u64 {
    bench.metric("secret_version_polls_total", &format!("outcome=\"{outcome}\""))
}

const TWO_SECONDS: Duration = Duration::from_secs(2);

#[tokio::test(start_paused = true)]
async fn a_change_reaches_the_file_within_three_seconds_and_a_poll_costs_one_call() {
    let world = world();
    let session = world.start();
    let mut bench = polled(&world, &session).await;
    // The same secret, by a path that lacks a segment: two for this program, and one for the server.
    bench.start("short", "{{ with secret \"secret/app\" }}{{ .Data.data.password }}{{ end }}");
    sleep(Duration::from_secs(10)).await;
    let written = |name: &str| bench.read(name).unwrap_or_else(|| bench.reason(name));
    for number in 1..=5 {
        let value = format!("p{number}");
        put(&world, "app", json!({ "password": value })).await;
        sleep(Duration::from_millis(3500)).await;
        assert_eq!([written("app"), written("short")], [value.clone(), value], "{number}");
        sleep(Duration::from_secs(20)).await;
    }
    let before = (world.count(Operation::Secret), world.count(Operation::System), polls(&bench, "unchanged"));
    sleep(MINUTE * 10).await;
    let calls = world.count(Operation::Secret) - before.0;
    let polled = polls(&bench, "unchanged") - before.2;
    assert!(calls == polled && (270..=330).contains(&calls), "{calls} calls, {polled} polls");
    assert_eq!(world.count(Operation::System), before.1, "the mount is asked for once");
    assert_eq!(polls(&bench, "changed"), 5);
}

#[tokio::test(start_paused = true)]
async fn many_secrets_are_polled_with_ten_calls_a_second_at_most() {
    let world = world();
    let session = world.start();
    for number in 0..60 {
        put(&world, &format!("app{number}"), json!({ "password": "p" })).await;
    }
    let mut bench = bench(&world, &session, TWO_SECONDS);
    for number in 0..60 {
        bench.start(&format!("app{number}"), &password(&format!("app{number}")));
    }
    sleep(MINUTE).await;
    let before = world.count(Operation::Secret);
    sleep(MINUTE).await;
    let calls = world.count(Operation::Secret) - before;
    assert!((500..=600).contains(&calls), "{calls} in a minute");
}

#[tokio::test(start_paused = true)]
async fn a_denied_version_is_told_and_the_secret_is_read_at_its_interval() {
    let world = world();
    let session = world.start();
    let bench = polled(&world, &session).await;
    let denied = CannedResponse::error(403, "1 error occurred:\n\t* permission denied\n\n");
    world.faults().respond_next(Operation::Secret, denied);
    sleep(Duration::from_secs(5)).await;
    let warning = || world.health.statuses().remove("versions/web").unwrap().warning.map(|warning| warning.reason);
    assert_eq!(
        warning().as_deref(),
        Some("the policy denies the metadata of secret/data/app: changes wait for the interval")
    );
    let before = world.count(Operation::Secret);
    put(&world, "app", json!({ "password": "p1" })).await;
    sleep(MINUTE * 8).await;
    // The write is a call, too.
    assert_eq!((world.count(Operation::Secret) - before, polls(&bench, "denied")), (1, 1));
    assert_eq!(bench.read("app").as_deref(), Some("p0"));
    // The policy was extended meanwhile.
    sleep(MINUTE * 3).await;
    assert_eq!((bench.read("app").as_deref(), warning()), (Some("p1"), None));
}

#[tokio::test(start_paused = true)]
async fn a_denied_version_and_an_outage_are_each_logged_once_with_the_remedy_and_so_is_their_end() {
    let world = world();
    let session = world.start();
    let mut bench = polled(&world, &session).await;
    bench.start("short", "{{ with secret \"secret/app\" }}{{ .Data.data.password }}{{ end }}");
    sleep(Duration::from_secs(10)).await;
    log::keep();
    let logged = |event: &str| -> Vec<String> {
        let lines = log::lines().into_iter().filter(|line| line["fields"]["event"] == event);
        lines.map(|line| line["fields"].to_string()).collect()
    };
    let denied = CannedResponse::error(403, "1 error occurred:\n\t* permission denied\n\n");
    world.faults().respond_always(Operation::Secret, Some(denied));
    sleep(MINUTE * 15).await;
    let lines = logged("agent.secret.version_denied");
    let policy = r#"path \"secret/metadata/app\" { capabilities = [\"read\"] }"#;
    assert!(lines.len() == 1 && lines[0].contains(policy), "one secret by two spellings: {lines:?}");
    world.faults().respond_always(Operation::Secret, None);
    sleep(MINUTE * 15).await;
    assert_eq!(logged("agent.secret.version_recovered").len(), 1);
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::new(500, "{\"errors\":[\"failed\"]}")));
    sleep(MINUTE * 15).await;
    let warning = world.health.statuses().remove("versions/web").unwrap().warning.expect("a warning").reason;
    assert!(
        warning.contains("cannot read the version of secret/") && warning.contains("HTTP 500: failed"),
        "{warning}"
    );
    let lines = logged("agent.secret.version_poll.failed");
    assert!(
        lines.len() == 1 && lines[0].contains("HTTP 500: failed") && lines[0].contains("secret/metadata/app"),
        "{lines:?}"
    );
    world.faults().respond_always(Operation::Secret, None);
    sleep(MINUTE * 15).await;
    let lines = logged("agent.secret.version_poll.recovered");
    assert!(lines.len() == 1 && lines[0].contains("lasted_seconds"), "{lines:?}");
    assert_eq!(world.health.statuses().remove("versions/web").unwrap().warning.map(|warning| warning.reason), None);
    assert_eq!(logged("agent.secret.version_poll.failed").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_no_loop_of_calls() {
    let world = world();
    let session = world.start();
    let bench = polled(&world, &session).await;
    put(&world, "app", json!({ "password": "p1" })).await;
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::new(500, "{\"errors\":[\"failed\"]}")));
    sleep(MINUTE).await;
    let before = world.count(Operation::Secret);
    sleep(MINUTE * 10).await;
    let calls = world.count(Operation::Secret) - before;
    assert!(calls < 40, "{calls} calls in ten minutes");
    world.faults().respond_always(Operation::Secret, None);
    sleep(MINUTE * 6).await;
    assert_eq!(bench.read("app").as_deref(), Some("p1"));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_cannot_be_read_is_read_again_ever_more_rarely() {
    let world = world();
    let session = world.start();
    let bench = polled(&world, &session).await;
    // The number of the version is there, and its data is not: as from a server that lags behind.
    put(&world, "app", json!({ "password": "p1" })).await;
    delete(&world, "app").await;
    let all_polls = || polls(&bench, "unchanged") + polls(&bench, "changed");
    let reads = || world.count(Operation::Secret) - all_polls();
    let mut spans = Vec::new();
    for _ in 0..3 {
        let before = reads();
        sleep(MINUTE * 20).await;
        spans.push(reads() - before);
    }
    assert!(spans[0] >= 8 && spans[0] < 60 && spans[2] <= spans[0], "{spans:?} reads in 20 minutes each");
    assert_eq!(bench.read("app").as_deref(), Some("p0"));
    put(&world, "app", json!({ "password": "p2" })).await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(bench.read("app").as_deref(), Some("p2"), "another version is read at once");
}
