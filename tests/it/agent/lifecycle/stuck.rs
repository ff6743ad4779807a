//! A session whose server or identity never answers, and how a session ends. Time is driven.

use std::time::{Duration, SystemTime};

use keyward::emulators::secrets::{Operation, Role};

use crate::harness::session::{World, minutes};

fn hour() -> Role {
    Role { max_ttl: None, ..Role::default() }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_holds_up_neither_rings_nor_the_end_nor_a_stop() {
    let world = World::new(hour());
    let mut session = world.start();
    let ends = session.serving().await.expires.unwrap();
    minutes(2).await;
    world.dials().hang(true);
    let answered = session.ring().await.unwrap();
    assert!((Duration::from_secs(9)..Duration::from_secs(12)).contains(&answered), "{answered:?}");
    assert!(session.token().is_some(), "silence says nothing about the token");
    session.not_serving().await;
    assert!(world.clock.now().since(ends) < Duration::from_secs(1));
    minutes(7).await;
    assert!(session.ring().await.unwrap() < Duration::from_secs(1), "there is no token to ask about");
    let stopping = world.clock.now();
    drop(session.stop().await);
    assert!(world.clock.now().since(stopping) < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn an_identity_that_never_answers_is_given_up_and_asked_again() {
    let world = World::new(hour());
    world.identity.hangs(true);
    let mut session = world.start();
    minutes(5).await;
    assert!(session.reason().contains("there is no token yet; the login could not be made"), "{}", session.reason());
    world.identity.hangs(false);
    session.serving().await;
    assert_eq!(world.count(Operation::Login), 1);
}

#[tokio::test(start_paused = true)]
async fn a_proof_that_starts_at_the_end_of_time_is_sent_for_the_server_to_judge() {
    let world = World::new(hour());
    world.identity.not_before(SystemTime::UNIX_EPOCH + Duration::from_secs(i64::MAX.unsigned_abs()));
    let mut session = world.start();
    session.serving().await;
    assert_eq!(world.count(Operation::Login), 1);
}

#[tokio::test(start_paused = true)]
async fn a_login_under_way_does_not_hold_up_a_ring_about_the_old_token() {
    let world = World::new(hour());
    world.dials().refuse_renewals(true);
    let mut session = world.start();
    let first = session.serving().await;
    world.identity.hangs(true);
    while world.identity.asked() < 2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(session.ring().await.unwrap() < Duration::from_secs(1));
    assert_eq!(session.token().unwrap().generation, first.generation);
}

#[tokio::test(start_paused = true)]
async fn callers_at_the_instant_of_the_end_share_one_login() {
    let world = World::new(hour());
    let mut session = world.start();
    session.serving().await;
    minutes(10).await;
    world.dials().revoke_all();
    for _ in 0..1000 {
        session.refresh_signal.request();
    }
    session.not_serving().await;
    for _ in 0..1000 {
        session.refresh_signal.request();
    }
    session.serving().await;
    minutes(1).await;
    assert_eq!(world.count(Operation::Login), 2);
}

#[tokio::test(start_paused = true)]
async fn the_token_is_revoked_at_the_end_where_asked_and_only_after_the_outputs_let_go() {
    let mut world = World::new(hour());
    world.options.revoke_on_exit = true;
    let mut session = world.start();
    session.serving().await;
    let mut watch = session.watch.clone();
    let farewell = session.stop().await;
    assert!(
        matches!(watch.current().availability, keyward::credential_watch::Availability::Available(_)),
        "readers drain first"
    );
    assert_eq!((world.dials().tokens(), world.count(Operation::Revoke)), (1, 0));
    farewell.revoke().await;
    assert_eq!((world.dials().tokens(), world.count(Operation::Revoke)), (0, 1));
    assert!(matches!(watch.current().availability, keyward::credential_watch::Availability::Unavailable { .. }));
    assert!(world.status_registry.sessions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_replaced_and_lives_is_revoked_at_the_end_and_not_before() {
    let mut world = World::new(hour());
    world.options.revoke_on_exit = true;
    world.dials().refuse_renewals(true);
    let mut session = world.start();
    let mut now = session.serving().await;
    for _ in 0..3 {
        let before = now.generation;
        while session.token().unwrap().generation == before {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        now = session.token().unwrap();
    }
    assert_eq!(world.count(Operation::Revoke), 0);
    session.stop().await.revoke().await;
    assert_eq!(world.count(Operation::Revoke), 2, "of four the first two have ended");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_takes_anothers_place_keeps_its_row_and_gauges() {
    let world = World::new(hour());
    let mut old = world.start();
    old.serving().await;
    let mut new = world.start();
    new.serving().await;
    drop(old.stop().await);
    assert!(world.status_registry.sessions()["web"].serving);
    let gauge = "keyward_token_expiry_timestamp_seconds{session=\"web\"}";
    assert!(world.metrics.text().contains(gauge), "{}", world.metrics.text());
    drop(new.stop().await);
    assert!(world.status_registry.sessions().is_empty() && !world.metrics.text().contains(gauge));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_kept_at_the_end_by_default() {
    let world = World::new(hour());
    let mut session = world.start();
    session.serving().await;
    session.stop().await.revoke().await;
    assert_eq!((world.dials().tokens(), world.count(Operation::Revoke)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_revocation_that_is_not_answered_takes_five_seconds() {
    let mut world = World::new(hour());
    world.options.revoke_on_exit = true;
    let mut session = world.start();
    session.serving().await;
    world.dials().hang(true);
    let stopping = world.clock.now();
    session.stop().await.revoke().await;
    let took = world.clock.now().since(stopping);
    assert!((Duration::from_secs(5)..Duration::from_secs(6)).contains(&took), "{took:?}");
}
