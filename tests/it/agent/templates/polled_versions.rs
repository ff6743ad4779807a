//! Polls of the versions of secrets in key-value version 2.

use keyward_agent::secrets::VersionPoll;

use super::*;

fn bench<'a>(world: &'a World, session: &Session, interval: Duration) -> Bench<'a> {
    let mut bench = Bench::with_registry(world, session, |deps| deps.interval = MINUTE * 60);
    let health = world.health.register("versions/web", false, "not polled yet");
    bench.running.spawn(VersionPoll::new(&bench.store, interval, health).run(CancellationToken::new()));
    bench
}

fn polls(bench: &Bench<'_>, outcome: &str) -> u64 {
    bench.metric("secret_version_polls_total", &format!("outcome=\"{outcome}\""))
}

const TWO_SECONDS: Duration = Duration::from_secs(2);

#[tokio::test(start_paused = true)]
async fn a_change_reaches_the_file_within_three_seconds_and_a_poll_costs_one_call() {
    let world = world();
    let session = world.start();
    put(&world, "app", json!({ "password": "p0" })).await;
    let mut bench = bench(&world, &session, TWO_SECONDS);
    bench.start("app", &password("app"));
    // The same secret, by a path that lacks a segment: one more secret for this program.
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
    assert!(calls == polled && (540..=660).contains(&calls), "{calls} calls, {polled} polls");
    assert_eq!(world.count(Operation::System), before.1, "the mount is asked for once");
    assert_eq!(polls(&bench, "changed"), 10);
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
    put(&world, "app", json!({ "password": "p0" })).await;
    let mut bench = bench(&world, &session, TWO_SECONDS);
    bench.start("app", &password("app"));
    sleep(Duration::from_secs(10)).await;
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
async fn a_deleted_version_and_an_outage_cost_no_loop_of_reads() {
    let world = world();
    let session = world.start();
    put(&world, "app", json!({ "password": "p0" })).await;
    let mut bench = bench(&world, &session, TWO_SECONDS);
    bench.start("app", &password("app"));
    sleep(Duration::from_secs(10)).await;
    // Another version, whose reads fail: its own retries follow, and no poll asks for more.
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
