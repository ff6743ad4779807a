//! Templates whose reads the server refuses: interval and maximum number of retries.

use super::*;

fn denied() -> CannedResponse {
    CannedResponse::error(403, "1 error occurred:\n\t* permission denied\n\n")
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_created_after_the_start_is_rendered_within_seconds() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.start("late", &password("late"));
    sleep(Duration::from_secs(12)).await;
    assert!(bench.reason("late").contains("HTTP 404"), "{}", bench.reason("late"));
    put(&world, "late", json!({ "password": "p" })).await;
    sleep(Duration::from_secs(20)).await;
    assert_eq!(bench.read("late").as_deref(), Some("p"), "{}", bench.reason("late"));
}

#[tokio::test(start_paused = true)]
async fn rights_that_come_back_are_noticed_within_seconds() {
    let world = world();
    let session = world.start();
    put(&world, "app", json!({ "password": "p1" })).await;
    let mut bench = Bench::new(&world, &session);
    bench.start("app", &password("app"));
    sleep(MINUTE).await;
    world.faults().respond_always(Operation::Secret, Some(denied()));
    let before = world.count(Operation::Secret);
    while world.count(Operation::Secret) == before {
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(25)).await;
    assert_eq!(bench.read("app").as_deref(), Some("p1"), "what was rendered stays");
    world.faults().respond_always(Operation::Secret, None);
    put(&world, "app", json!({ "password": "p2" })).await;
    sleep(Duration::from_secs(35)).await;
    assert_eq!(bench.read("app").as_deref(), Some("p2"), "{}", bench.reason("app"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_read_has_the_session_check_its_token_now_and_then() {
    let mut world = world();
    world.options.check_interval = None;
    let mut session = world.start();
    let mut bench = Bench::new(&world, &session);
    let first = session.serving().await.generation;
    sleep(Duration::from_secs(5)).await;
    world.faults().respond_always(Operation::Secret, Some(denied()));
    let lookups = world.count(Operation::Lookup);
    for at in 0..20 {
        bench.start(&format!("t{at}"), &password(&format!("s{at}")));
    }
    sleep(Duration::from_secs(30)).await;
    assert_eq!(world.count(Operation::Lookup) - lookups, 1, "one check for all that were refused");
    assert_eq!(session.serving().await.generation, first, "the policy refuses, not the token");
    sleep(MINUTE * 60).await;
    let lookups = world.count(Operation::Lookup) - lookups;
    assert!((10..=32).contains(&lookups), "{lookups} checks in an hour");

    // That check distinguishes a dead token from such a refusal.
    world.faults().revoke_all();
    sleep(MINUTE * 7).await;
    assert_ne!(session.serving().await.generation, first);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_refused_templates_share_their_quick_retries() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    for at in 0..100 {
        bench.start(&format!("t{at}"), &password(&format!("s{at}")));
    }
    let before = world.count(Operation::Secret);
    sleep(MINUTE * 60).await;
    let calls = world.count(Operation::Secret) - before;
    // As often as healthy secrets are looked at (each 4.5 min at the soonest), and 120 calls besides.
    assert!((1_200..=100 * 14 + 120).contains(&calls), "{calls} calls in an hour");
}
