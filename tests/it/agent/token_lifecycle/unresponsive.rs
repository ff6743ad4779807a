//! Sessions whose server or identity source never responds, and the shutdown of sessions. Time is driven.

use std::time::{Duration, SystemTime};

use keyward_emulators::secrets::{CannedResponse, Operation};

use crate::harness::session::{World, minutes, one_hour_role};

#[tokio::test(start_paused = true)]
async fn a_server_that_never_responds_blocks_neither_requests_nor_expiry_nor_shutdown() {
    let world = World::new(one_hour_role());
    let mut session = world.start();
    let ends = session.serving().await.expires.unwrap();
    minutes(2).await;
    world.faults().set_unresponsive(true);
    let answered = session.request_lookup().await.unwrap();
    assert!((Duration::from_secs(9)..Duration::from_secs(12)).contains(&answered), "{answered:?}");
    assert!(session.token().is_some(), "silence says nothing about the token");
    session.not_serving().await;
    assert!(world.clock.now().since(ends) < Duration::from_secs(1));
    minutes(7).await;
    assert!(session.request_lookup().await.unwrap() < Duration::from_secs(1), "there is no token to ask about");
    let stopping = world.clock.now();
    drop(session.stop().await);
    assert!(world.clock.now().since(stopping) < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_from_the_request_however_slow_the_response_is() {
    let world = World::new(one_hour_role());
    world.faults().hang_only(Operation::Login);
    let sent = world.clock.now();
    let mut session = world.start();
    tokio::time::sleep(Duration::from_secs(8)).await;
    world.faults().set_unresponsive(false);
    let token = session.serving().await;
    assert_eq!(sent.until(token.expires.unwrap()).as_secs(), 3600);

    world.faults().hang_only(Operation::Renew);
    while world.count(Operation::Renew) == 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (sent, before) = (world.clock.now(), session.token().unwrap().expires);
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.faults().set_unresponsive(false);
    while session.token().unwrap().expires == before {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(sent.until(session.token().unwrap().expires.unwrap()) <= Duration::from_hours(1));
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_lease_in_a_look_up_counts_from_its_request() {
    let world = World::new(one_hour_role());
    let mut session = world.start();
    session.serving().await;
    minutes(2).await;
    let shorter = "{\"data\":{\"ttl\":1800,\"renewable\":true}}";
    world.faults().respond_always(Operation::Lookup, Some(CannedResponse::new(200, shorter)));
    world.faults().hang_only(Operation::Lookup);
    let sent = world.clock.now();
    session.refresh_signal.request();
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.driven.set_wall_by(3600);
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.faults().set_unresponsive(false);
    let ends = || session.token().unwrap().expires.unwrap();
    while sent.until(ends()) > Duration::from_mins(40) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (now, ends) = (world.clock.now(), ends());
    assert_eq!(sent.until(ends).as_secs(), 1800);
    assert_eq!(ends.wall.duration_since(now.wall).unwrap(), now.until(ends), "by the wall clock that was set");
}

#[tokio::test(start_paused = true)]
async fn an_identity_source_that_never_responds_is_abandoned_and_retried() {
    let world = World::new(one_hour_role());
    world.identity.hangs(true);
    let mut session = world.start();
    minutes(5).await;
    assert!(session.reason().contains("there is no token yet; the login failed"), "{}", session.reason());
    world.identity.hangs(false);
    session.serving().await;
    assert_eq!(world.count(Operation::Login), 1);
}

#[tokio::test(start_paused = true)]
async fn a_proof_with_the_latest_possible_start_is_sent_to_the_server() {
    let world = World::new(one_hour_role());
    world.identity.not_before(SystemTime::UNIX_EPOCH + Duration::from_secs(i64::MAX.unsigned_abs()));
    let mut session = world.start();
    session.serving().await;
    assert_eq!(world.count(Operation::Login), 1);
}

#[tokio::test(start_paused = true)]
async fn a_login_in_flight_does_not_block_a_look_up_request() {
    let world = World::new(one_hour_role());
    world.faults().refuse_renewals(true);
    let mut session = world.start();
    let first = session.serving().await;
    world.identity.hangs(true);
    while world.identity.request_count() < 2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(session.request_lookup().await.unwrap() < Duration::from_secs(1));
    assert_eq!(session.token().unwrap().generation, first.generation);
}

#[tokio::test(start_paused = true)]
async fn callers_at_the_moment_of_expiry_share_one_login() {
    let world = World::new(one_hour_role());
    let mut session = world.start();
    session.serving().await;
    minutes(10).await;
    world.faults().revoke_all();
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
async fn the_token_is_revoked_at_shutdown_if_configured_after_the_outputs_have_stopped() {
    let mut world = World::new(one_hour_role());
    world.options.revoke_on_exit = true;
    let mut session = world.start();
    session.serving().await;
    let mut watch = session.watch.clone();
    let shutdown = session.stop().await;
    assert!(
        matches!(watch.current().availability, keyward_credentials::credential_watch::Availability::Available(_)),
        "readers drain first"
    );
    assert_eq!((world.faults().tokens(), world.count(Operation::Revoke)), (1, 0));
    shutdown.revoke().await;
    assert_eq!((world.faults().tokens(), world.count(Operation::Revoke)), (0, 1));
    assert!(matches!(
        watch.current().availability,
        keyward_credentials::credential_watch::Availability::Unavailable { .. }
    ));
    assert!(world.session_statuses.sessions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_replaced_token_that_is_alive_is_revoked_at_shutdown_and_not_before() {
    let mut world = World::new(one_hour_role());
    world.options.revoke_on_exit = true;
    world.faults().refuse_renewals(true);
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
async fn a_session_that_replaces_another_keeps_its_status_and_gauges() {
    let world = World::new(one_hour_role());
    let mut old = world.start();
    old.serving().await;
    let mut new = world.start();
    new.serving().await;
    drop(old.stop().await);
    assert!(world.session_statuses.sessions()["web"].serving);
    let gauge = "keyward_token_expiry_timestamp_seconds{session=\"web\"}";
    assert!(world.metrics.text().contains(gauge), "{}", world.metrics.text());
    drop(new.stop().await);
    assert!(world.session_statuses.sessions().is_empty() && !world.metrics.text().contains(gauge));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_not_revoked_at_shutdown_by_default() {
    let world = World::new(one_hour_role());
    let mut session = world.start();
    session.serving().await;
    session.stop().await.revoke().await;
    assert_eq!((world.faults().tokens(), world.count(Operation::Revoke)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_revocation_without_a_response_takes_five_seconds() {
    let mut world = World::new(one_hour_role());
    world.options.revoke_on_exit = true;
    let mut session = world.start();
    session.serving().await;
    world.faults().set_unresponsive(true);
    let stopping = world.clock.now();
    session.stop().await.revoke().await;
    let took = world.clock.now().since(stopping);
    assert!((Duration::from_secs(5)..Duration::from_secs(6)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_token_of_a_login_that_has_reached_the_server_is_revoked_at_shutdown() {
    let mut world = World::new(one_hour_role());
    world.options.revoke_on_exit = true;
    world.faults().hang_only(Operation::Login);
    let session = world.start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let response = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        world.faults().set_unresponsive(false);
    };
    let (shutdown, ()) = tokio::join!(session.stop(), response);
    shutdown.revoke().await;
    assert_eq!((world.faults().tokens(), world.count(Operation::Revoke)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_login_without_a_response_delays_a_shutdown_with_revocation_by_at_most_five_seconds() {
    let mut world = World::new(one_hour_role());
    world.options.revoke_on_exit = true;
    let mut session = world.start();
    session.serving().await;
    let old = session.stop().await;
    world.faults().set_unresponsive(true);
    let session = world.start_after(Some(old));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stopping = world.clock.now();
    session.stop().await.revoke().await;
    let took = world.clock.now().since(stopping);
    assert!((Duration::from_secs(5)..Duration::from_secs(6)).contains(&took), "{took:?}");
}
