//! Waiting callers, and requests for another login, shorten the backoff of a failing session. Time is driven.

use std::time::Duration;

use keyward_credentials::demand::RetryOutcome;
use keyward_emulators::secrets::{CannedResponse, Operation, Role};

use crate::harness::session::{Session, World, minutes, one_hour_role};

/// Creates a world whose proofs are valid for a day.
fn world() -> World {
    let world = World::new(one_hour_role());
    world.identity.expires(world.clock.now().wall + Duration::from_hours(24));
    world
}

#[tokio::test(start_paused = true)]
async fn failed_renewals_do_not_delay_logins() {
    let world = World::new(Role { ttl: Duration::from_mins(10), max_ttl: None, ..Role::default() });
    world.faults().respond_always(Operation::Renew, Some(CannedResponse::error(500, "internal error")));
    let mut session = world.start();
    session.serving().await;
    session.serves_for(Duration::from_mins(100)).await;
    assert!((10..=13).contains(&world.count(Operation::Login)), "{:?}", world.faults().counts());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_gets_a_token_soon_after_an_outage() {
    for (outage, within) in [(60, 10), (1800, 31)] {
        let world = world();
        world.faults().go_away().await;
        let mut session = world.start();
        let _waiting = session.refresh_signal.demand().wait();
        tokio::time::sleep(Duration::from_secs(outage)).await;
        world.faults().come_back().await;
        let back = world.clock.now();
        session.serving().await;
        let took = world.clock.now().since(back);
        assert!(took <= Duration::from_secs(within), "{took:?} after {outage} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_after_a_long_outage_triggers_a_login_at_once() {
    let world = world();
    world.faults().go_away().await;
    let mut session = world.start();
    minutes(60).await;
    world.faults().come_back().await;
    let back = world.clock.now();
    let _waiting = session.refresh_signal.demand().wait();
    session.serving().await;
    assert!(world.clock.now().since(back) < Duration::from_secs(61));
}

#[tokio::test(start_paused = true)]
async fn callers_that_always_wait_stay_within_the_budget() {
    let world = world();
    world.faults().go_away().await;
    let session = world.start();
    let _waiting: Vec<_> = (0..10).map(|_| session.refresh_signal.demand().wait()).collect();
    minutes(30).await;
    let tries = logins(&world);
    assert!((60..=120).contains(&tries), "{tries} tries in half an hour");
    minutes(30).await;
    assert!(world.upstream_calls() <= 200, "{} calls in an hour", world.upstream_calls());
}

/// Lengths in seconds of outages and of the pauses between them, which begin anywhere in a token's lease of 6 s.
fn short_outages(seed: u64) -> impl Iterator<Item = (f64, f64)> {
    let unit = move |number: u64| {
        let mixed = (seed * 1000 + number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        f64::from(u32::try_from(mixed >> 32).unwrap()) / f64::from(u32::MAX)
    };
    (0..20).map(move |number| (4.5f64.mul_add(unit(2 * number), 0.5), 3.0 * unit(2 * number + 1)))
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_gets_a_token_soon_after_many_short_outages() {
    for seed in 0..10 {
        let world = World::new(Role { ttl: Duration::from_secs(6), max_ttl: None, ..Role::default() });
        let mut session = world.start();
        session.serving().await;
        let _waiting = session.refresh_signal.demand().wait();
        for (outage, pause) in short_outages(seed) {
            world.faults().go_away().await;
            tokio::time::sleep(Duration::from_secs_f64(outage)).await;
            world.faults().come_back().await;
            tokio::time::sleep(Duration::from_secs_f64(pause)).await;
        }
        let back = world.clock.now();
        session.serving().await;
        let took = world.clock.now().since(back);
        assert!(took <= Duration::from_secs(30), "{took:?} after the outages of {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_gets_a_token_soon_after_each_of_fifteen_lost_tokens() {
    let world = world();
    let mut session = world.start();
    let _waiting = session.refresh_signal.demand().wait();
    for lost in 1..=15 {
        let token = session.serving().await.generation;
        let since = world.clock.now();
        world.faults().lose_state();
        session.refresh_signal.request();
        while session.serving().await.generation == token {
            session.watch.changed().await.unwrap();
        }
        let took = world.clock.now().since(since);
        assert!(took <= Duration::from_secs(10), "{took:?} after {lost} tokens");
    }
}

/// Returns the number of attempted logins, including those that did not reach the server.
fn logins(world: &World) -> u64 {
    let text = world.metrics.text();
    let lines = text.lines().filter(|line| line.starts_with("keyward_logins_total{"));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[tokio::test(start_paused = true)]
async fn a_missing_identity_stays_within_the_budget_while_callers_wait() {
    let world = world();
    world.identity.set_missing(true);
    let session = world.start();
    let _waiting = session.refresh_signal.demand().wait();
    minutes(60).await;
    // Each attempt is one call: a failed source makes no second one, and no login follows.
    assert!(world.identity.request_count() <= 120, "{}", world.identity.request_count());
}

#[tokio::test(start_paused = true)]
async fn no_login_is_made_for_callers_before_retry_after() {
    let world = world();
    let busy = CannedResponse::error(429, "quota exceeded").retry_after("120");
    world.faults().respond_always(Operation::Login, Some(busy));
    let session = world.start();
    let _waiting = session.refresh_signal.demand().wait();
    for _ in 0..30 {
        minutes(1).await;
        retry(&session).await;
    }
    assert!(world.count(Operation::Login) <= 16, "{:?}", world.faults().counts());
}

async fn retry(session: &Session) -> RetryOutcome {
    tokio::time::timeout(Duration::from_mins(1), session.refresh_signal.demand().retry()).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_refused_session_logs_in_again_on_request_and_not_for_waiting_callers() {
    let world = world();
    world.faults().respond_always(Operation::Login, Some(CannedResponse::error(400, "invalid role name \"dev\"")));
    let session = world.start();
    let _waiting = session.refresh_signal.demand().wait();
    minutes(2).await;
    assert_eq!(world.count(Operation::Login), 4, "the first, and its quick retries");
    assert_eq!(retry(&session).await, RetryOutcome::Attempted);
    assert_eq!((world.count(Operation::Login), session.token().is_some()), (5, false));
    world.faults().respond_always(Operation::Login, None);
    assert_eq!(retry(&session).await, RetryOutcome::Attempted);
    assert!(session.token().is_some());
    assert_eq!(retry(&session).await, RetryOutcome::NotNeeded);
    assert_eq!(world.count(Operation::Login), 6);
}

#[tokio::test(start_paused = true)]
async fn a_forced_login_replaces_a_good_token_within_the_budget_of_requests() {
    let world = world();
    let session = world.start();
    minutes(1).await;
    let before = world.count(Operation::Login);
    assert_eq!(retry(&session).await, RetryOutcome::NotNeeded);
    let force = async || {
        let request = session.refresh_signal.demand().replace();
        tokio::time::timeout(Duration::from_mins(1), request).await.unwrap().unwrap()
    };
    assert_eq!(force().await, RetryOutcome::Attempted);
    assert_eq!(world.count(Operation::Login), before + 1);
    let mut later = 0;
    for _ in 0..600 {
        later += u32::from(matches!(force().await, RetryOutcome::TooEarly { .. }));
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    assert!(later > 400, "{later}");
    assert!(world.count(Operation::Login) <= before + 135, "{:?}", world.faults().counts());
    assert!(session.token().is_some());
}

#[tokio::test(start_paused = true)]
async fn frequent_retry_requests_get_the_next_possible_time() {
    let world = world();
    world.faults().respond_always(Operation::Login, Some(CannedResponse::error(400, "invalid role name \"dev\"")));
    let session = world.start();
    let mut later = 0;
    for _ in 0..600 {
        if matches!(retry(&session).await, RetryOutcome::TooEarly { after } if after <= Duration::from_secs(45)) {
            later += 1;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    assert!(later > 400, "{later}");
    assert!(world.count(Operation::Login) <= 135, "{:?}", world.faults().counts());
}

#[tokio::test(start_paused = true)]
async fn a_proof_that_the_server_did_not_verify_is_reused_for_ten_minutes() {
    let world = world();
    world.faults().respond_always(Operation::Login, Some(CannedResponse::error(503, "Vault is sealed")));
    let session = world.start();
    let _waiting = session.refresh_signal.demand().wait();
    minutes(30).await;
    assert!(world.count(Operation::Login) > 50, "{:?}", world.faults().counts());
    assert!((3..=5).contains(&world.identity.request_count()), "{}", world.identity.request_count());
}
