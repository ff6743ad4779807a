//! Token lifecycle: renewal, replacement, revocation, outage, and the callers' view of each. Time is driven.

mod budget;
mod callers;
mod denied_lookups;
mod faults;
mod fleet;
mod options;
mod unresponsive;
mod refused_logins;
mod suspect_tokens;

use std::time::Duration;

use keyward_agent::login::AuthMethodKind;
use keyward_agent::token::TokenKind;
use keyward_emulators::secrets::{CannedResponse, Operation, Role, TokenType};

use crate::harness::log;
use crate::harness::session::{World, minutes, one_hour_role};

fn refusal(status: u16, message: &str) -> CannedResponse {
    CannedResponse::error(status, message)
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_near_two_thirds_of_its_lease_and_stays_the_same() {
    let world = World::new(one_hour_role());
    let mut session = world.start();
    let first = session.serving().await;
    minutes(37).await;
    assert_eq!(world.count(Operation::Renew), 0);
    minutes(6).await;
    assert_eq!(world.count(Operation::Renew), 1);
    session.serves_for(Duration::from_hours(24)).await;
    assert_eq!(world.count(Operation::Login), 1);
    assert!((34..=39).contains(&world.count(Operation::Renew)), "{:?}", world.faults().counts());
    let last = session.token().unwrap();
    assert_eq!(last.generation, first.generation);
    assert!(last.expires.unwrap().boot > first.expires.unwrap().boot);
    let status = &world.session_statuses.sessions()["web"];
    assert_eq!((status.serving, status.failures, status.next_step.as_str()), (true, 0, "renew"));
    assert!(world.health.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_refused_renewal_is_tried_once_and_leads_to_one_login_without_a_gap() {
    let world = World::new(one_hour_role());
    world.faults().refuse_renewals(true);
    let mut session = world.start();
    let first = session.serving().await;
    session.serves_for(Duration::from_mins(65)).await;
    assert_eq!((world.count(Operation::Login), world.count(Operation::Renew)), (2, 1));
    assert_ne!(session.token().unwrap().generation, first.generation);
    session.serves_for(Duration::from_hours(12)).await;
    assert!(world.count(Operation::Renew) <= 13, "{:?}", world.faults().counts());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_shrinks_toward_its_maximum_leads_to_a_login_before_the_end() {
    let world = World::new(Role { max_ttl: Some(Duration::from_mins(100)), ..Role::default() });
    let mut session = world.start();
    session.serving().await;
    session.serves_for(Duration::from_hours(10)).await;
    let (logins, renewals) = (world.count(Operation::Login), world.count(Operation::Renew));
    assert!((7..=9).contains(&logins) && renewals <= logins * 2, "{logins} logins, {renewals} renewals");
}

#[tokio::test(start_paused = true)]
async fn a_revoked_token_is_detected_by_the_periodic_look_up() {
    let world = World::new(one_hour_role());
    let mut session = world.start();
    let first = session.serving().await;
    minutes(12).await;
    world.faults().revoke_all();
    let revoked = world.clock.now();
    assert!(session.not_serving().await.contains("revoked"));
    let second = session.serving().await;
    assert!(world.clock.now().since(revoked) < Duration::from_secs(332), "the interval is five minutes, give or take");
    assert_ne!(first.generation, second.generation);
    session.serves_for(Duration::from_mins(30)).await;
    assert_eq!(world.count(Operation::Login), 2);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_token_is_detected_when_a_caller_requests_a_look_up() {
    let mut world = World::new(one_hour_role());
    world.options.check_interval = None;
    let mut session = world.start();
    session.serving().await;
    minutes(1).await;
    assert_eq!(world.count(Operation::Lookup), 0, "checks are off");
    assert!(session.request_lookup().await.unwrap() < Duration::from_secs(1));
    assert!(session.token().is_some());
    world.faults().lose_state();
    let requested_at = world.clock.now();
    session.request_lookup().await.unwrap();
    assert!(session.token().is_none());
    session.serving().await;
    assert!(world.clock.now().since(requested_at) < Duration::from_secs(2));
    assert_eq!((world.count(Operation::Login), world.count(Operation::Lookup)), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_logins_are_used_up_by_lost_tokens_says_so_and_for_how_long() {
    let world = World::new(one_hour_role());
    let mut session = world.start();
    // The first login of the process is one of the eight.
    for _ in 1..8 {
        session.serving().await;
        world.faults().lose_state();
        session.request_lookup().await.unwrap();
    }
    session.serving().await;
    assert_eq!(world.count(Operation::Login), 8);
    world.faults().lose_state();
    session.request_lookup().await.unwrap();
    let reason = session.not_serving().await;
    assert!(reason.contains("revoked") && reason.contains("logins are used up for now"), "{reason}");
    let (lost, status) = (world.clock.now(), world.session_statuses.sessions()["web"].clone());
    assert_eq!((status.next_step.as_str(), status.failures), ("login", 0));
    session.serving().await;
    let waited = world.clock.now().since(lost);
    assert!(Duration::from_secs(90) < waited && waited <= Duration::from_mins(2), "{waited:?}");
    world.faults().lose_state();
    minutes(10).await;
    session.serving().await;
    world.faults().lose_state();
    session.request_lookup().await.unwrap();
    assert!(!session.reason().contains("used up"), "there are logins again: {}", session.reason());
}

#[tokio::test(start_paused = true)]
async fn a_lease_above_the_accepted_maximum_does_not_change_at_each_look_up() {
    let world = World::new(Role { ttl: Duration::from_hours(10_000), ..one_hour_role() });
    let mut session = world.start();
    session.serving().await;
    let mut tokens: Vec<_> = session.token().into_iter().collect();
    for _ in 0..24 * 60 {
        minutes(1).await;
        let token = session.token().unwrap();
        if !std::sync::Arc::ptr_eq(&token, tokens.last().unwrap()) {
            tokens.push(token);
        }
    }
    assert!(tokens.len() <= 5, "changed {} times in a day", tokens.len());
    assert!(world.count(Operation::Lookup) > 200);
}

#[tokio::test(start_paused = true)]
async fn batch_tokens_are_replaced_before_they_end_and_never_renewed() {
    let ten = Duration::from_mins(10);
    let world = World::new(Role { ttl: ten, token_type: TokenType::Batch, ..Role::default() });
    let mut session = world.start();
    assert_eq!(session.serving().await.kind, TokenKind::Batch);
    session.serves_for(Duration::from_hours(1)).await;
    assert_eq!(world.count(Operation::Renew), 0);
    assert!((9..=10).contains(&world.count(Operation::Login)), "{:?}", world.faults().counts());
}

#[tokio::test(start_paused = true)]
async fn wrapped_logins_are_replaced_before_they_end_and_never_looked_up() {
    let mut world = World::new(one_hour_role());
    world.wrap_ttl = Some(Duration::from_mins(10));
    let mut session = world.start();
    assert!(matches!(session.serving().await.kind, TokenKind::Wrapping { .. }));
    assert!(session.request_lookup().await.is_some());
    session.serves_for(Duration::from_hours(1)).await;
    assert_eq!(world.count(Operation::Lookup) + world.count(Operation::Renew), 0);
    assert!((9..=10).contains(&world.count(Operation::Login)), "{:?}", world.faults().counts());
}

#[tokio::test(start_paused = true)]
async fn during_an_outage_the_token_is_served_to_its_end_and_not_longer() {
    let world = World::new(one_hour_role());
    let mut session = world.start();
    let ends = session.serving().await.expires.unwrap();
    minutes(10).await;
    world.faults().go_away().await;
    let left = world.clock.now().until(ends);
    session.serves_for(left.saturating_sub(Duration::from_secs(2))).await;
    let reason = session.not_serving().await;
    assert!(reason.starts_with("the token has expired; "), "{reason}");
    assert!(world.clock.now().since(ends) < Duration::from_secs(1));
    assert!(!world.health.is_ready());
    minutes(60).await;
    world.faults().come_back().await;
    let before = world.count(Operation::Login);
    let back = world.clock.now();
    session.serving().await;
    assert!(world.clock.now().since(back) < Duration::from_mins(5));
    assert_eq!(world.count(Operation::Login), before + 1);
}

#[tokio::test(start_paused = true)]
async fn failed_renewals_that_recover_keep_the_token() {
    let world = World::new(one_hour_role());
    for _ in 0..5 {
        world.faults().respond_next(Operation::Renew, refusal(500, "internal error"));
    }
    let mut session = world.start();
    session.serving().await;
    session.serves_for(Duration::from_hours(2)).await;
    assert_eq!(world.count(Operation::Login), 1);
}

#[tokio::test(start_paused = true)]
async fn the_servers_retry_after_is_honoured() {
    let world = World::new(one_hour_role());
    world.faults().respond_next(Operation::Login, refusal(429, "quota exceeded").retry_after("7"));
    let start = world.clock.now();
    let mut session = world.start();
    session.serving().await;
    let waited = world.clock.now().since(start);
    assert!((7.0..=10.6).contains(&waited.as_secs_f64()), "{waited:?}");
    assert_eq!(world.count(Operation::Login), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refused_login_is_retried_slowly_and_its_reason_reported() {
    let world = World::new(one_hour_role());
    world.faults().respond_always(Operation::Login, Some(refusal(400, "invalid role name \"dev\"")));
    let session = world.start();
    minutes(2).await;
    assert_eq!(world.count(Operation::Login), 4, "the first, and its quick retries");
    assert!(session.reason().contains("invalid role name"), "{}", session.reason());
    minutes(58).await;
    assert!((15..=27).contains(&world.count(Operation::Login)), "{:?}", world.faults().counts());
}

#[tokio::test(start_paused = true)]
async fn an_expired_proof_is_fetched_again_once_and_then_slowly() {
    let world = World::new(one_hour_role());
    let expired = refusal(500, "oidc: token is expired (Token Expiry: 2025-01-01 00:00:00 +0000 UTC)");
    world.faults().respond_always(Operation::Login, Some(expired));
    let session = world.start();
    minutes(2).await;
    assert_eq!((world.count(Operation::Login), world.identity.request_count()), (2, 2));
    assert!(session.reason().contains("clock"), "{}", session.reason());
    minutes(58).await;
    assert!(world.count(Operation::Login) <= 26, "{:?}", world.faults().counts());
}

#[tokio::test(start_paused = true)]
async fn a_proof_that_is_not_valid_yet_delays_the_login_and_is_fetched_again_once() {
    let world = World::new(one_hour_role());
    world.identity.not_before(world.clock.now().wall + Duration::from_secs(90));
    let start = world.clock.now();
    let mut session = world.start();
    session.serving().await;
    let waited = world.clock.now().since(start).as_secs();
    assert!((89..=93).contains(&waited), "{waited} s");
    assert_eq!(
        (world.identity.request_count(), world.count(Operation::Login)),
        (2, 1),
        "the server is not troubled with it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_login_that_waits_for_a_clock_that_is_hours_behind_is_made_once_the_clock_is_set() {
    let world = World::new(one_hour_role());
    world.identity.not_before(world.clock.now().wall + Duration::from_hours(3));
    let mut session = world.start();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(session.token().is_none());
    world.driven.set_wall_by(10_900);
    let served = tokio::time::timeout(Duration::from_secs(5), session.serving()).await;
    assert!(served.is_ok(), "{}", session.reason());
    assert_eq!((world.identity.request_count(), world.count(Operation::Login)), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn setting_the_wall_clock_changes_only_the_reported_times() {
    let world = World::new(one_hour_role());
    let mut session = world.start();
    let first = session.serving().await.expires.unwrap();
    minutes(20).await;
    for seconds in [7200, -14_400, 34_560_000, -34_560_000] {
        let looks = world.count(Operation::Lookup);
        world.driven.set_wall_by(seconds);
        session.serves_for(Duration::from_mins(2)).await;
        let looked = world.count(Operation::Lookup) - looks;
        assert!((1..=2).contains(&looked), "{looked} looks");
        let ends = session.token().unwrap().expires.unwrap();
        assert_eq!(ends.boot, first.boot);
        let left = ends.wall.duration_since(world.clock.now().wall).unwrap();
        assert!(left.abs_diff(world.clock.now().until(ends)) < Duration::from_secs(1));
    }
    session.serves_for(Duration::from_hours(2)).await;
    assert_eq!(world.count(Operation::Login), 1);
    assert!(world.metrics.text().contains("keyward_clock_jumps_total 4"));
}

#[tokio::test(start_paused = true)]
async fn t33_a_suspend_past_the_end_stops_serving_at_once_and_logs_in() {
    let world = World::new(one_hour_role());
    let mut session = world.start();
    session.serving().await;
    minutes(5).await;
    world.driven.suspend(Duration::from_hours(2));
    let woken = world.clock.now();
    assert!(session.not_serving().await.starts_with("the token has expired"));
    session.serving().await;
    assert!(world.clock.now().since(woken) < Duration::from_secs(1));
    assert_eq!(world.count(Operation::Login), 2);
}

#[tokio::test(start_paused = true)]
async fn the_first_login_waits_a_share_of_the_splay() {
    let mut world = World::new(one_hour_role());
    world.options.login_jitter = Duration::from_hours(1);
    let start = world.clock.now();
    let mut session = world.start();
    session.serving().await;
    let waited = world.clock.now().since(start);
    assert!(waited > Duration::from_millis(10) && waited < Duration::from_hours(1), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_token_with_a_lease_of_a_second_makes_no_loop() {
    let world = World::new(Role { ttl: Duration::from_secs(1), max_ttl: None, ..Role::default() });
    let mut session = world.start();
    session.serving().await;
    minutes(60).await;
    assert!(world.upstream_calls() <= 200, "{}", world.upstream_calls());
    assert!(world.count(Operation::Login) >= 5);
}

/// The server refuses a login in this way while the API server of a cluster, or the issuer of a token, restarts.
#[tokio::test(start_paused = true)]
async fn a_login_that_the_server_cannot_verify_for_now_is_repeated_within_seconds() {
    let keys = "error validating token: error verifying token signature: fetching keys oidc: get keys failed \
                Get \"https://x\": dial tcp: connection refused";
    let unverified = "could not verify the service account at the Kubernetes API";
    for (auth_method, status, text, advice) in [
        (AuthMethodKind::Kubernetes, 403, "permission denied", unverified),
        (AuthMethodKind::Other, 400, keys, "could not query the issuer of the token"),
    ] {
        log::keep();
        let mut world = World::new(one_hour_role());
        world.auth_method = auth_method;
        for _ in 0..2 {
            world.faults().respond_next(Operation::Login, refusal(status, text));
        }
        let (mut session, start) = (world.start(), world.clock.now());
        session.serving().await;
        let waited = world.clock.now().since(start);
        assert!(waited < Duration::from_secs(10), "{waited:?} after {text}");
        assert_eq!(world.count(Operation::Login), 3);
        let log = log::text();
        assert!(log.contains(advice) && !log.contains("KW-1107") && !log.contains("query Azure"), "{log}");
    }
}
