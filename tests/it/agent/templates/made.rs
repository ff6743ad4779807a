//! Things that a template has a server make by a write: each is made again before its end, which is not missed in silence.

use super::*;

/// Makes something at each request.
const WRITE: &str = "{{ with secret \"pki/sign/web\" \"role=web\" }}{{ .Data.value }}{{ end }}";

fn answer(world: &World, data: serde_json::Value) {
    let body = json!({ "lease_id": "", "lease_duration": 0, "renewable": false, "data": data });
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::new(200, body.to_string())));
}

#[tokio::test(start_paused = true)]
async fn what_has_an_end_is_made_again_at_two_thirds_of_it() {
    let world = world();
    let session = world.start();
    answer(&world, json!({ "value": "v", "secret_id": "s", "secret_id_ttl": 12 }));
    let mut bench = Bench::new(&world, &session);
    bench.start("app", WRITE);
    sleep(Duration::from_secs(190)).await;
    let writes = world.count(Operation::Secret);
    assert!((20..=28).contains(&writes), "{writes} writes in 190 s");
    assert_eq!((bench.read("app").as_deref(), bench.renders("app")), (Some("v"), 1));
}

#[tokio::test(start_paused = true)]
async fn a_missed_end_is_not_ready_until_another_one_is_made() {
    let world = world();
    let session = world.start();
    answer(&world, json!({ "value": "first", "ttl": "10m" }));
    let mut bench = Bench::new(&world, &session);
    bench.start("app", WRITE);
    sleep(MINUTE).await;
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::error(500, "internal error")));
    sleep(MINUTE * 8).await;
    let ready = || world.health.components()["template/app"].ready;
    assert!(ready(), "it has not ended: {}", bench.reason("app"));
    sleep(MINUTE * 2).await;
    let reason = bench.reason("app");
    assert!(!ready() && reason.contains("pki/sign/web is not available: "), "{reason}");
    assert_eq!(bench.read("app").as_deref(), Some("first"), "the file stays");
    answer(&world, json!({ "value": "second", "ttl": "10m" }));
    sleep(MINUTE * 6).await;
    assert!(ready(), "{}", bench.reason("app"));
    assert_eq!(bench.read("app").as_deref(), Some("second"));
}

#[tokio::test(start_paused = true)]
async fn what_tells_no_end_is_made_once_or_by_the_configured_interval_and_the_status_says_so() {
    for (interval, expected, text) in [
        (None, 1..=1, "no known end of pki/sign/web: it is never written again"),
        (Some(MINUTE * 60), 22..=27, "no known end of pki/sign/web: it is written again every 1h"),
    ] {
        let world = world();
        let session = world.start();
        answer(&world, json!({ "value": "v" }));
        let mut bench = Bench::with_registry(&world, &session, |deps| deps.rewrite_interval = interval);
        bench.start("app", WRITE);
        sleep(MINUTE * 60 * 24).await;
        let writes = world.count(Operation::Secret);
        assert!(expected.contains(&writes), "{writes} writes with {interval:?}");
        assert_eq!(world.health.statuses()["template/app"].note.as_deref(), Some(text));
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_result_cannot_be_used_is_not_repeated() {
    let token = json!({ "data": null, "auth": { "client_token": "canary" } }).to_string();
    let large = format!("{{\"data\":{{\"value\":\"{}\"}}}}", "x".repeat(2 << 20));
    for body in [token, large, "{\"data\":null}".to_owned()] {
        let world = world();
        let session = world.start();
        world.faults().respond_always(Operation::Secret, Some(CannedResponse::new(200, body)));
        let mut bench = Bench::new(&world, &session);
        bench.start("app", WRITE);
        sleep(MINUTE * 60).await;
        world.faults().revoke_all();
        sleep(MINUTE * 60).await;
        assert_eq!(world.count(Operation::Secret), 1, "{}", bench.reason("app"));
        assert!(bench.reason("app").contains("it is not repeated before the next start"), "{}", bench.reason("app"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_long_is_the_error_of_its_secret_alone() {
    let world = world();
    let session = world.start();
    let large = format!("{{\"data\":{{\"username\":\"{}\"}}}}", "x".repeat(2 << 20));
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::new(200, large)));
    let mut bench = Bench::new(&world, &session);
    bench.start("large", "{{ with secret \"database/creds/dev\" }}{{ .Data.username }}{{ end }}");
    sleep(MINUTE * 10).await;
    let reason = bench.reason("large");
    assert!(
        reason.contains("database/creds/dev is not available") && reason.contains("is larger than 1048576 bytes"),
        "{reason}"
    );
    world.faults().respond_always(Operation::Secret, None);
    put(&world, "app", json!({ "password": "p" })).await;
    bench.start("app", &password("app"));
    sleep(Duration::from_millis(100)).await;
    assert_eq!(bench.read("app").as_deref(), Some("p"), "{}", bench.reason("app"));
}

#[tokio::test(start_paused = true)]
async fn what_belongs_to_the_token_is_read_again_with_each_new_token() {
    let world = world();
    let mut session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.start("token", "{{ with secret \"auth/token/lookup-self\" }}{{ .Data.id }}{{ end }}");
    sleep(Duration::from_secs(10)).await;
    let first = session.serving().await;
    assert_eq!(
        bench.read("token").as_deref(),
        Some(first.secret.secret().expose_secret()),
        "{}",
        bench.reason("token")
    );
    world.faults().revoke_all();
    session.refresh_signal.request();
    sleep(Duration::from_secs(10)).await;
    let second = session.serving().await;
    assert_ne!(second.generation, first.generation);
    assert_eq!(bench.read("token").as_deref(), Some(second.secret.secret().expose_secret()));
}
