//! Denied look-ups, which may mean a dead token or a policy: each case and its number of logins. Time is driven.

use std::time::Duration;

use keyward_credentials::credential_watch::RefreshRequest;
use keyward_emulators::secrets::{CannedResponse, Operation};

use crate::harness::session::{Session, World, minutes, one_hour_role};

fn deny_calls(world: &World, operation: Operation) {
    let response = CannedResponse::error(403, "1 error occurred:\n\t* permission denied\n\n");
    world.faults().respond_always(operation, Some(response));
}

/// Starts a session whose token was looked up once.
async fn session_after_lookup(world: &World) -> Session {
    let mut session = world.start();
    session.serving().await;
    minutes(1).await;
    assert_eq!(world.count(Operation::Lookup), 1);
    session
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_forbids_look_ups_leads_to_no_login() {
    let world = World::new(one_hour_role());
    world.faults().refuse_lookups(true);
    let mut session = world.start();
    session.serving().await;
    for _ in 0..30 {
        session.request_lookup().await.unwrap();
        session.serves_for(Duration::from_mins(2)).await;
    }
    assert_eq!(world.count(Operation::Login), 1);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_forbids_look_ups_later_leads_to_one_login() {
    let world = World::new(one_hour_role());
    let session = session_after_lookup(&world).await;
    deny_calls(&world, Operation::Lookup);
    session.serves_for(Duration::from_hours(12)).await;
    assert_eq!(world.count(Operation::Login), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_denied_without_a_reason_is_served_while_a_login_replaces_it() {
    let world = World::new(one_hour_role());
    let session = session_after_lookup(&world).await;
    let first = session.token().unwrap().generation;
    world.faults().revoke_all();
    world.faults().respond_next(Operation::Lookup, CannedResponse::error(403, "permission denied"));
    session.serves_for(Duration::from_mins(6)).await;
    assert_ne!(session.token().unwrap().generation, first);
    session.serves_for(Duration::from_mins(30)).await;
    assert_eq!(world.count(Operation::Login), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_with_a_denied_look_up_is_served_to_its_end_while_logins_fail() {
    let world = World::new(one_hour_role());
    let mut session = session_after_lookup(&world).await;
    let ends = session.token().unwrap().expires.unwrap();
    for operation in [Operation::Lookup, Operation::Renew] {
        deny_calls(&world, operation);
    }
    world.faults().respond_always(Operation::Login, Some(CannedResponse::error(400, "invalid role name \"dev\"")));
    session.request_lookup().await.unwrap();
    assert!(session.token().is_some());
    let left = world.clock.now().until(ends);
    session.serves_for(left.saturating_sub(Duration::from_secs(2))).await;
    session.not_serving().await;
    assert!((10..=28).contains(&world.count(Operation::Login)), "{:?}", world.faults().counts());
}

#[tokio::test(start_paused = true)]
async fn a_token_with_a_denied_look_up_is_renewed_while_logins_fail() {
    let world = World::new(one_hour_role());
    let session = session_after_lookup(&world).await;
    deny_calls(&world, Operation::Lookup);
    world.identity.set_missing(true);
    session.serves_for(Duration::from_hours(5)).await;
    assert_eq!(world.count(Operation::Login), 1);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_load_balancer_drops_no_token() {
    for status in [400, 401, 404, 405, 407, 410, 421, 451] {
        let world = World::new(one_hour_role());
        let mut session = session_after_lookup(&world).await;
        for _ in 0..2 {
            world.faults().respond_next(Operation::Lookup, CannedResponse::new(status, "<html>no</html>"));
            session.request_lookup().await.unwrap();
        }
        session.serves_for(Duration::from_mins(30)).await;
        assert_eq!((world.count(Operation::Login), world.faults().tokens()), (1, 1), "HTTP {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restored_token_denied_without_a_reason_is_served_until_one_login_replaces_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(one_hour_role());
    world.keep_state(folder.path(), true);
    let mut session = world.start();
    let first = session.serving().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(session);
    deny_calls(&world, Operation::Lookup);
    let mut session = world.start();
    assert_eq!(session.serving().await.accessor, first.accessor);
    session.serves_for(Duration::from_mins(30)).await;
    assert_eq!(world.count(Operation::Login), 2);
    assert_ne!(session.token().unwrap().accessor, first.accessor);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_forbids_look_ups_is_remembered_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(one_hour_role());
    world.keep_state(folder.path(), true);
    world.faults().refuse_lookups(true);
    for _ in 0..10 {
        let mut session = world.start();
        session.serving().await;
        session.serves_for(Duration::from_mins(2)).await;
    }
    assert_eq!(world.count(Operation::Login), 1);
}

#[tokio::test(start_paused = true)]
async fn a_look_up_request_without_a_call_completes_and_records_no_check() {
    let mut world = World::new(one_hour_role());
    world.faults().go_away().await;
    let session = world.start();
    minutes(1).await;
    assert!(session.token().is_none());
    completes_without_check(&session).await;
    world.faults().come_back().await;
    world.wrap_ttl = Some(Duration::from_mins(10));
    let mut session = world.start();
    session.serving().await;
    completes_without_check(&session).await;
}

async fn completes_without_check(session: &Session) {
    let before = session.watch.peek().last_checked;
    assert_eq!(session.refresh_signal.request(), RefreshRequest::Accepted);
    tokio::time::timeout(Duration::from_secs(1), session.refresh_signal.wait())
        .await
        .expect("the refresh request completes");
    assert_eq!(session.watch.peek().last_checked, before);
}
