//! Refused logins are repeated quickly at first, and when a file that they read changes. Time is driven.

use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation};

use crate::harness::session::{World, minutes, one_hour_role};

/// Server without the auth mount, as one that was just rebuilt.
fn without_mount(world: &World, is_missing: bool) {
    let missing = CannedResponse::error(403, "permission denied");
    world.faults().respond_always(Operation::Login, is_missing.then_some(missing));
}

#[tokio::test(start_paused = true)]
async fn a_login_that_is_refused_at_the_start_succeeds_seconds_after_its_cause_is_gone() {
    for (missing, within) in [(5, 3), (12, 14)] {
        let world = World::new(one_hour_role());
        without_mount(&world, true);
        let mut session = world.start();
        tokio::time::sleep(Duration::from_secs(missing)).await;
        without_mount(&world, false);
        let back = world.clock.now();
        session.serving().await;
        let took = world.clock.now().since(back);
        assert!(took <= Duration::from_secs(within), "{took:?} after {missing} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_login_that_is_refused_after_a_success_is_repeated_quickly_too() {
    let world = World::new(one_hour_role());
    let mut session = world.start();
    let first = session.serving().await.generation;
    minutes(1).await;
    without_mount(&world, true);
    world.faults().lose_state();
    session.refresh_signal.request();
    session.not_serving().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    without_mount(&world, false);
    let back = world.clock.now();
    assert_ne!(session.serving().await.generation, first);
    let took = world.clock.now().since(back);
    assert!(took <= Duration::from_secs(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_file_of_the_login_ends_the_wait_after_any_failure() {
    let refused = CannedResponse::error(400, "invalid role or secret ID");
    for (failure, wait) in [(Some(refused), 60), (None, 600)] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret-id");
        std::fs::write(&file, "old").unwrap();
        let world = World::new(one_hour_role());
        world.identity.reads(file.clone());
        world.identity.set_missing(failure.is_none());
        world.faults().respond_always(Operation::Login, failure);
        let mut session = world.start();
        tokio::time::sleep(Duration::from_secs(wait)).await;
        assert!(session.token().is_none());
        world.identity.set_missing(false);
        world.faults().respond_always(Operation::Login, None);
        std::fs::write(folder.path().join("other"), "x").unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(session.token().is_none(), "another file");
        std::fs::write(&file, "new one").unwrap();
        let changed = world.clock.now();
        session.serving().await;
        let took = world.clock.now().since(changed);
        assert!(took <= Duration::from_secs(1), "{took:?} after {wait} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_changes_all_the_time_stays_within_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret-id");
    std::fs::write(&file, "0").unwrap();
    let world = World::new(one_hour_role());
    world.identity.reads(file.clone());
    world.faults().respond_always(Operation::Login, Some(CannedResponse::error(400, "invalid role or secret ID")));
    let session = world.start();
    for number in 1..3600 {
        std::fs::write(&file, number.to_string()).unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let logins = world.count(Operation::Login);
    assert!((20..=40).contains(&logins), "{logins} logins in an hour");
    assert!(world.upstream_calls() <= 200, "{}", world.upstream_calls());
    assert!(session.token().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_stays_is_repeated_slowly() {
    let world = World::new(one_hour_role());
    without_mount(&world, true);
    let _session = world.start();
    minutes(60).await;
    let logins = world.count(Operation::Login);
    assert!((15..=28).contains(&logins), "{logins} logins in an hour");
}
