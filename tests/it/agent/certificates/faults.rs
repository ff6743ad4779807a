//! Answers that are no certificate, and files that cannot be written.

use super::*;

/// Requests a certificate with a key of the server, as another client, and returns the answer's fields.
async fn issue(world: &World, ttl: &str) -> serde_json::Value {
    let token = world.secrets.token(&Role::default());
    let request = reqwest::Client::new().post(format!("{}/v1/pki/issue/web", world.secrets.url()));
    let request = request.header("x-vault-token", token.expose_secret());
    let body = serde_json::json!({ "common_name": "web.example.com", "ttl": ttl });
    let answer: serde_json::Value = request.json(&body).send().await.unwrap().json().await.unwrap();
    answer["data"].clone()
}

fn answer(data: &serde_json::Value) -> CannedResponse {
    let body = serde_json::json!({ "lease_id": "", "lease_duration": 0, "renewable": false, "data": data });
    CannedResponse::new(200, body.to_string())
}

type Response = fn(serde_json::Value, &serde_json::Value) -> CannedResponse;

#[tokio::test(start_paused = true)]
async fn no_fault_of_the_server_takes_the_certificate_away_or_makes_a_loop() {
    let world = world();
    let session = world.start();
    let old = issue(&world, "1h").await;
    sleep(HOUR * 2).await;
    let cases: [(Response, &str, &str); 9] = [
        (|_, _| CannedResponse::error(403, "1 error occurred:\n\t* permission denied\n\n"), "HTTP 403", "KW-1211"),
        (|_, _| CannedResponse::error(400, "role requires keys of type rsa"), "requires keys of type rsa", "KW-1412"),
        (|_, _| CannedResponse::error(500, "internal error"), "HTTP 500", "KW-1208"),
        (|_, _| CannedResponse::error(503, "Vault is sealed"), "Vault is sealed", "KW-1205"),
        (|_, _| CannedResponse::new(200, "{\"data\": {\"certificate\": \"-----BEGIN"), "invalid response", "KW-1209"),
        (|_, _| CannedResponse::new(204, ""), "the response is empty", "KW-1308"),
        (
            |mut other, _| {
                other["certificate"] = serde_json::Value::Null;
                answer(&other)
            },
            "it holds no certificate",
            "KW-1413",
        ),
        (|other, _| answer(&other), "belongs to another key", "KW-1413"),
        (|_, old| answer(old), "has expired already", "KW-1413"),
    ];
    for (response, reason, code) in cases {
        let response = response(issue(&world, "30d").await, &old);
        let mut bench = Bench::new(&world, &session);
        bench.ready(bench.wanted()).await;
        let first = bench.served();
        world.faults().respond_always(Operation::Secret, Some(response));
        while bench.warning().is_empty() {
            sleep(HOUR).await;
        }
        let before = bench.requests();
        sleep(HOUR).await;
        let calls = bench.requests() - before;
        assert!((10..=60).contains(&calls), "{reason}: {calls} in an hour");
        assert!(bench.warning().contains(reason), "{reason}: {}", bench.warning());
        let warning = world.health.statuses()["certificate/web"].warning.clone().unwrap();
        assert_eq!(warning.code.as_deref(), Some(code), "{reason}");
        assert_eq!((bench.served(), bench.reason(), bench.state()), (first.clone(), String::new(), 2));
        world.faults().respond_always(Operation::Secret, None);
        bench.until(|bench| bench.warning().is_empty()).await;
        assert_ne!(bench.served().serial, first.serial, "{reason}");
        assert_eq!(bench.state(), 0);
        bench.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_ends_is_reported_and_replaced_once_the_server_answers() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.ready(bench.wanted()).await;
    let first = bench.served();
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::error(503, "Vault is sealed")));
    sleep(first.ends.duration_since(bench.now() + MINUTE).unwrap()).await;
    assert_eq!(bench.reason(), "");
    sleep(MINUTE + Duration::from_secs(1)).await;
    assert!(bench.reason().starts_with("the certificate has ended at "), "{}", bench.reason());
    assert!(bench.reason().contains("Vault is sealed"), "{}", bench.reason());
    assert_eq!(bench.state(), 3);
    assert_eq!(bench.served(), first, "the files stay");
    world.faults().respond_always(Operation::Secret, None);
    bench.until(|bench| bench.reason().is_empty()).await;
    assert!(bench.served().ends > bench.now());
}

#[tokio::test(start_paused = true)]
async fn a_hanging_server_delays_no_report_of_the_end() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let mut wanted = bench.wanted();
    wanted.request.ttl = Some(MINUTE * 3);
    bench.ready(wanted).await;
    let first = bench.served();
    world.faults().hang_only(Operation::Secret);
    sleep(first.ends.duration_since(bench.now()).unwrap() + Duration::from_secs(1)).await;
    assert_eq!(bench.state(), 3, "{}", bench.reason());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_clock_is_followed() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.ready(bench.wanted()).await;
    let first = bench.served();
    // The wall clock was nine days late.
    world.driven.set_wall_by(9 * 86400);
    bench.until(|bench| bench.requests() == 2).await;
    sleep(Duration::from_secs(1)).await;
    assert_ne!(bench.served().serial, first.serial);
}

#[tokio::test(start_paused = true)]
async fn files_that_cannot_be_written_cost_no_further_certificate() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let mut wanted = bench.wanted();
    wanted.options.output.path = bench.path("later/web");
    bench.start(wanted);
    bench.until(|bench| bench.reason().contains("cannot open the folder")).await;
    sleep(DAY).await;
    assert_eq!((bench.requests(), bench.state()), (1, 2));
    std::fs::create_dir(bench.path("later")).unwrap();
    bench.until(|bench| bench.reason().is_empty()).await;
    assert_eq!(bench.requests(), 1);
    let text = |name: &str| bench.read(&format!("later/web/{name}")).unwrap();
    fitting(&text("key.pem"), &text("cert.pem"));
}

#[tokio::test(start_paused = true)]
async fn a_session_without_a_token_is_waited_for() {
    let world = world();
    world.identity.set_missing(true);
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.start(bench.wanted());
    sleep(MINUTE).await;
    assert!(bench.reason().starts_with("waiting for a token: "), "{}", bench.reason());
    assert_eq!((bench.state(), bench.requests()), (1, 0));
    world.identity.set_missing(false);
    bench.until(|bench| bench.reason().is_empty()).await;
    bench.served();
}

#[tokio::test(start_paused = true)]
async fn many_certificates_of_a_session_share_its_budget() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    for (status, at_least) in [(503, 1), (403, 50), (400, 50)] {
        let before = bench.requests();
        world.faults().respond_always(Operation::Secret, Some(CannedResponse::error(status, "no")));
        for number in 0..50 {
            let mut wanted = bench.wanted();
            wanted.options.name = format!("web{number}");
            wanted.options.output.path = bench.path(&wanted.options.name);
            bench.start(wanted);
        }
        sleep(MINUTE * 59).await;
        let requests = bench.requests() - before;
        assert!((at_least..=200).contains(&requests), "{requests} in an hour of {status}");
        bench.end().await;
        // The budget fills again.
        sleep(HOUR * 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn rotations_of_a_refused_certificate_come_from_the_budget() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.ready(bench.wanted()).await;
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::error(400, "no")));
    let before = bench.requests();
    let mut last = String::new();
    for _ in 0..300 {
        if bench.rotation().request() == RefreshRequest::Accepted {
            last = bench.rotation().outcome().await.unwrap().unwrap_err();
        }
        sleep(Duration::from_secs(12)).await;
    }
    let requests = bench.requests() - before;
    assert!((10..=130).contains(&requests), "{requests} in an hour");
    assert!(last.contains("[KW-1412]"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_only_a_wrong_clock_has_shown_is_taken_back() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.ready(bench.wanted()).await;
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::error(503, "Vault is sealed")));
    world.driven.set_wall_by(20 * 86400);
    bench.until(|bench| bench.state() == 3).await;
    world.driven.set_wall_by(-20 * 86400);
    bench.until(|bench| bench.reason().is_empty()).await;
}
