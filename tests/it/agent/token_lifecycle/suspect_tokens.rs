//! Tokens that the server refuses without a reason, as OpenBao does for unknown tokens. Time is driven.

use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation, Role};

use crate::harness::session::{World, minutes};

const BARE_DENIAL: &str = "permission denied";

/// Creates a world with a server that responds like OpenBao.
fn openbao() -> World {
    let world = World::new(Role { max_ttl: None, ..Role::default() });
    world.faults().respond_as_openbao(true);
    world
}

/// Makes the server refuse every call with a token, as from an address that the token is not bound to.
fn refuse_address(world: &World, wrong: bool) {
    for operation in [Operation::Lookup, Operation::Renew, Operation::Secret, Operation::CreateToken] {
        world.faults().respond_always(operation, wrong.then(|| CannedResponse::error(403, BARE_DENIAL)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_revoked_before_its_first_look_up_is_replaced_by_one_login() {
    let world = openbao();
    let mut session = world.start();
    let first = session.serving().await.generation;
    world.faults().revoke_all();
    session.serves_for(Duration::from_secs(20)).await;
    assert_ne!(session.token().unwrap().generation, first);
    session.serves_for(Duration::from_hours(1)).await;
    assert_eq!(world.count(Operation::Login), 2);
    assert!(world.health.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_token_whose_first_look_up_met_an_outage_is_replaced_once_it_is_dead() {
    let world = openbao();
    world.faults().respond_next(Operation::Lookup, CannedResponse::error(503, "Vault is sealed"));
    let mut session = world.start();
    let first = session.serving().await.generation;
    minutes(1).await;
    assert_eq!(world.count(Operation::Lookup), 1);
    world.faults().revoke_all();
    session.serves_for(Duration::from_mins(6)).await;
    assert_ne!(session.token().unwrap().generation, first);
    assert_eq!(world.count(Operation::Login), 2);
}

#[tokio::test(start_paused = true)]
async fn a_look_up_request_completes_after_the_dead_token_is_replaced_even_without_checks() {
    let mut world = openbao();
    world.options.check_interval = None;
    let mut session = world.start();
    let first = session.serving().await.generation;
    world.faults().revoke_all();
    assert!(session.request_lookup().await.unwrap() < Duration::from_secs(1));
    let second = session.token().unwrap().generation;
    assert_ne!(second, first, "the refresh request waits for the login");
    // The new token is looked up at once.
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.faults().revoke_all();
    session.request_lookup().await.unwrap();
    assert_ne!(session.token().unwrap().generation, second);
    assert_eq!(world.count(Operation::Login), 3);
}

#[tokio::test(start_paused = true)]
async fn the_renewal_of_a_dead_token_leads_to_a_login_whose_token_is_renewed() {
    let mut world = openbao();
    world.options.check_interval = None;
    let mut session = world.start();
    let first = session.serving().await.generation;
    world.faults().revoke_all();
    session.serves_for(Duration::from_mins(43)).await;
    assert_ne!(session.token().unwrap().generation, first);
    assert_eq!((world.count(Operation::Login), world.count(Operation::Renew)), (2, 1));
    session.serves_for(Duration::from_mins(50)).await;
    assert_eq!((world.count(Operation::Login), world.count(Operation::Renew)), (2, 2), "renewals are allowed");
}

/// After a suspend the token is looked up at once, and its renewal is overdue: both are in flight, and the look-up's response comes
/// first.
#[tokio::test(start_paused = true)]
async fn a_token_that_a_look_up_and_a_renewal_find_dead_is_replaced_by_one_login() {
    let world = openbao();
    let mut session = world.start();
    let first = session.serving().await.generation;
    session.serves_for(Duration::from_mins(5)).await;
    world.faults().revoke_all();
    world.faults().hang_only(Operation::Renew);
    world.driven.suspend(Duration::from_mins(45));
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.faults().set_unresponsive(false);
    session.serves_for(Duration::from_mins(1)).await;
    assert_ne!(session.token().unwrap().generation, first, "{} renewals", world.count(Operation::Renew));
    assert!(world.count(Operation::Renew) <= 1, "{} renewals of a dead token", world.count(Operation::Renew));
    assert_eq!(world.count(Operation::Login), 2);
}

#[tokio::test(start_paused = true)]
async fn a_live_token_that_is_refused_for_its_address_makes_no_loop_and_is_not_ready() {
    let world = openbao();
    let mut session = world.start();
    session.serving().await;
    minutes(1).await;
    refuse_address(&world, true);
    let before = world.upstream_calls();
    for _ in 0..360 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        session.request_lookup().await;
    }
    let calls = world.upstream_calls() - before;
    assert!(calls <= 200, "{calls} calls in an hour");
    assert!(world.count(Operation::Login) >= 3, "it is tried now and then");
    assert!(session.token().is_some(), "it may be good at another address");
    assert!(!world.health.is_ready());
    let error = world.session_statuses.sessions()["web"].last_error.clone().unwrap();
    assert!(error.contains(BARE_DENIAL), "{error}");
    refuse_address(&world, false);
    minutes(6).await;
    assert!(world.health.is_ready());
    assert_eq!(world.session_statuses.sessions()["web"].last_error, None);
}

#[tokio::test(start_paused = true)]
async fn a_suspect_token_is_served_and_not_ready_while_logins_fail() {
    let world = openbao();
    let mut session = world.start();
    let first = session.serving().await.generation;
    minutes(1).await;
    world.faults().revoke_all();
    world.faults().respond_always(Operation::Login, Some(CannedResponse::error(503, "Vault is sealed")));
    session.request_lookup().await.unwrap();
    minutes(1).await;
    assert_eq!(session.token().unwrap().generation, first);
    assert!(!world.health.is_ready());
    assert_eq!(world.count(Operation::Renew), 0);
    world.faults().respond_always(Operation::Login, None);
    minutes(5).await;
    assert_ne!(session.token().unwrap().generation, first);
    assert!(world.health.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_forbids_look_ups_is_distinguished_from_a_dead_token() {
    let world = openbao();
    world.faults().refuse_lookups(true);
    let mut session = world.start();
    session.serving().await;
    session.serves_for(Duration::from_hours(2)).await;
    assert_eq!(world.count(Operation::Login), 1);
    assert!(world.health.is_ready());
}
