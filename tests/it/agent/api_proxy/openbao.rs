//! Revocations at a server that refuses dead tokens as OpenBao does: `permission denied`, and no other word.

use std::time::Duration;

use futures_util::future::join_all;
use keyward_emulators::secrets::{CannedResponse, Operation, Role};

use crate::harness::session::{Session, World};
use crate::harness::vault::{Proxied, fetch};

/// A session without light checks, and a proxy in front of a server that answers as OpenBao.
async fn unchecked() -> (World, Session, Proxied) {
    let mut world = World::new(Role::default());
    world.options.check_interval = None;
    world.faults().respond_as_openbao(true);
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world(&world, &session);
    (world, session, proxied)
}

#[tokio::test(start_paused = true)]
async fn a_hundred_callers_with_a_token_that_was_never_looked_up_are_all_answered_after_its_revocation() {
    let (world, _session, proxied) = unchecked().await;
    world.faults().revoke_all();
    let calls = (0..100).map(|number| {
        if number % 2 == 0 {
            return fetch(proxied.request("GET", "secret/data/example"));
        }
        let body = format!(r#"{{"data":{{"number":{number}}}}}"#);
        fetch(proxied.request("POST", &format!("secret/data/{number}")).body(body))
    });
    for response in join_all(calls).await {
        assert_eq!(response.status, 200, "{response:?}");
    }
    assert_eq!(world.count(Operation::Login), 2);
    assert_eq!(proxied.get("secret/data/99").await.json()["data"]["data"]["number"], 99);
}

#[tokio::test(start_paused = true)]
async fn revocations_that_follow_each_other_at_once_cost_no_caller_a_refusal() {
    let (world, _session, proxied) = unchecked().await;
    for number in 0..6 {
        world.faults().revoke_all();
        assert_eq!(proxied.get("secret/data/example").await.status, 200, "revocation {number}");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(world.count(Operation::Login), 7);
}

#[tokio::test(start_paused = true)]
async fn t31_after_twelve_revocations_at_random_times_no_caller_is_refused_for_longer_than_a_second() {
    for seed in [7_u64, 1_234, 987_654_321] {
        let (world, _session, proxied) = unchecked().await;
        let mut times = random_times(seed, 12, Duration::from_mins(15));
        let start = world.clock.now();
        let (mut refused_since, mut quick) = (None, 0);
        while world.clock.now().since(start) < Duration::from_mins(15) {
            while times.last().is_some_and(|time| world.clock.now().since(start) >= *time) {
                times.pop();
                world.faults().revoke_all();
                quick = 10;
            }
            let (requested_at, response) = (world.clock.now(), proxied.get("secret/data/example").await);
            if response.status == 200 {
                refused_since = None;
            } else {
                let since = refused_since.get_or_insert(requested_at);
                let refused = world.clock.now().since(*since);
                assert!(refused < Duration::from_secs(1), "seed {seed}: refused for {refused:?}: {response:?}");
            }
            // Calls come at short intervals only after a revocation.
            let until_next =
                times.last().map_or(Duration::MAX, |time| time.saturating_sub(world.clock.now().since(start)));
            let pause = Duration::from_millis(if quick > 0 { 500 } else { 10_000 }).min(until_next);
            quick = u32::saturating_sub(quick, 1);
            tokio::time::sleep(pause).await;
        }
        assert!(times.is_empty());
        assert!(world.count(Operation::Login) <= 13, "{:?}", world.faults().counts());
        assert!(world.upstream_calls() <= 200, "{}", world.upstream_calls());
    }
}

/// The last first.
fn random_times(seed: u64, count: usize, within: Duration) -> Vec<Duration> {
    let mut state = seed;
    let mut times: Vec<_> = (0..count)
        .map(|_| {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            Duration::from_millis(state % u64::try_from(within.as_millis()).unwrap())
        })
        .collect();
    times.sort_by(|one, other| other.cmp(one));
    times
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_every_call_is_refused_for_its_address_stays_within_its_budget() {
    let (world, _session, proxied) = unchecked().await;
    for operation in [Operation::Lookup, Operation::Renew, Operation::Secret] {
        world.faults().respond_always(operation, Some(CannedResponse::error(403, "permission denied")));
    }
    let before = world.upstream_calls();
    for _ in 0..720 {
        let response = proxied.get("secret/data/example").await;
        assert_eq!((response.status, response.error().as_str()), (403, "permission denied"));
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let calls = world.upstream_calls() - before;
    assert!(calls <= 200, "{calls} calls in an hour");
    assert!(world.count(Operation::Login) >= 2);
}

/// Calls each half second until the proxy answers with 200 again, and returns the time. Meanwhile the session has no token to
/// give: 503 with `Retry-After`.
async fn time_to_recover(world: &World, proxied: &Proxied, context: &str) -> Duration {
    let since = world.clock.now();
    loop {
        let response = proxied.get("secret/data/example").await;
        match response.status {
            200 => return world.clock.now().since(since),
            503 => assert!(response.headers.contains_key("retry-after"), "{context}: {response:?}"),
            _ => panic!("{context}: {response:?}"),
        }
        assert!(world.clock.now().since(since) < Duration::from_mins(2), "{context}: {response:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_gets_another_token_within_ten_seconds_after_each_of_fifteen_revocations() {
    for openbao in [true, false] {
        let (world, _session, proxied) = unchecked().await;
        world.faults().respond_as_openbao(openbao);
        for lost in 1..=15 {
            world.faults().revoke_all();
            let took = time_to_recover(&world, &proxied, &format!("{lost} lost")).await;
            assert!(took <= Duration::from_secs(10), "{took:?} after {lost} lost tokens, openbao {openbao}");
        }
        assert!(world.upstream_calls() <= 200, "{}", world.upstream_calls());
    }
}

#[tokio::test(start_paused = true)]
async fn callers_get_503_and_no_refusal_of_a_dead_token_while_no_login_succeeds() {
    let (world, _session, proxied) = unchecked().await;
    world.faults().revoke_all();
    world.faults().respond_always(Operation::Login, Some(CannedResponse::error(503, "Vault is sealed")));
    let (since, calls) = (world.clock.now(), world.count(Operation::Secret));
    while world.clock.now().since(since) < Duration::from_mins(5) {
        let response = proxied.get("secret/data/example").await;
        assert_eq!(response.status, 503, "{response:?}");
        assert!(response.headers.contains_key("retry-after"), "{response:?}");
        assert!(response.error().starts_with("the server refuses the token, and no login has replaced it yet"));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(world.count(Operation::Secret) - calls, 1, "a refused token is not sent again");
    world.faults().respond_always(Operation::Login, None);
    let took = time_to_recover(&world, &proxied, "healed").await;
    assert!(took <= Duration::from_secs(31), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn callers_get_503_while_the_check_of_a_dead_token_has_no_result() {
    for openbao in [true, false] {
        let (world, _session, proxied) = unchecked().await;
        world.faults().respond_as_openbao(openbao);
        world.faults().revoke_all();
        world.faults().respond_always(Operation::Lookup, Some(CannedResponse::error(503, "out of order")));
        for _ in 0..30 {
            let response = proxied.get("secret/data/example").await;
            assert_eq!(response.status, 503, "{response:?}");
            assert!(response.headers.contains_key("retry-after"), "{response:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        world.faults().respond_always(Operation::Lookup, None);
        let took = time_to_recover(&world, &proxied, "healed").await;
        assert!(took <= Duration::from_mins(1), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_dies_before_it_is_confirmed_is_refused_to_callers_for_ten_seconds_at_most() {
    let (world, _session, proxied) = unchecked().await;
    world.faults().revoke_all();
    // The look-up that follows the login.
    world.faults().respond_next(Operation::Lookup, CannedResponse::error(403, "permission denied"));
    world.faults().respond_next(Operation::Lookup, CannedResponse::error(503, "out of order"));
    assert_eq!(proxied.get("secret/data/example").await.status, 200);
    world.faults().revoke_all();
    let since = world.clock.now();
    while proxied.get("secret/data/example").await.status != 200 {
        let refused = world.clock.now().since(since);
        assert!(refused <= Duration::from_secs(11), "{refused:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
