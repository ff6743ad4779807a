//! The request budget: no failure makes a session loop. Hours of driven time count at most 200 upstream calls in the
//! first hour of each failure, while the token is served to its real end.

use std::time::Duration;

use keyward_agent::token::Token;
use keyward_emulators::secrets::{CannedResponse, Operation, Role};
use keyward_machine::clock::ClockReading;

use crate::harness::session::{Session, World, one_hour_role};

const MAX_CALLS_PER_HOUR: u64 = 200;

/// Counts the calls of each hour from now on, and checks that a token is served exactly while it is alive.
async fn hours_within_budget(world: &World, session: &mut Session, hours: u32) -> Vec<u64> {
    let mut spent = Vec::new();
    let mut last: Option<ClockReading> = session.token().and_then(|token| token.expires);
    for _ in 0..hours {
        let before = world.upstream_calls();
        session.watch(Duration::from_hours(1), |token, now| last = check_served_token(token, now, last)).await;
        spent.push(world.upstream_calls() - before);
    }
    assert!(spent.iter().all(|calls| *calls <= MAX_CALLS_PER_HOUR), "{spent:?}");
    spent
}

/// Checks that a served token has not expired, and that one that is no longer served has.
fn check_served_token(token: Option<&Token>, now: ClockReading, last: Option<ClockReading>) -> Option<ClockReading> {
    match (token, last) {
        (Some(token), _) => {
            let ends = token.expires.expect("every token of these tests ends");
            assert!(now.since(ends) < Duration::from_secs(1), "a token is served {:?} after its end", now.since(ends));
            Some(ends)
        }
        (None, Some(ends)) => {
            assert!(now.until(ends).is_zero(), "a token is withheld {:?} before its end", now.until(ends));
            last
        }
        (None, None) => None,
    }
}

/// openbao#3747, vault#20645, vault#22575: a refused renewal is repeated hundreds of times a second.
#[tokio::test(start_paused = true)]
async fn the_budget_holds_if_renewals_are_always_refused() {
    for minutes in [2, 10, 60, 600] {
        let world = World::new(Role { ttl: Duration::from_mins(minutes), ..one_hour_role() });
        world.faults().refuse_renewals(true);
        let mut session = world.start();
        session.serving().await;
        hours_within_budget(&world, &mut session, 4).await;
        assert!(session.token().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn the_budget_holds_during_an_outage() {
    for outage in [Outage::Refused, Outage::Hanging, Outage::Unavailable] {
        let world = World::new(one_hour_role());
        let mut session = world.start();
        session.serving().await;
        session.serves_for(Duration::from_mins(30)).await;
        match outage {
            Outage::Refused => world.faults().go_away().await,
            Outage::Hanging => world.faults().set_unresponsive(true),
            Outage::Unavailable => {
                for operation in Operation::ALL {
                    world.faults().respond_always(operation, Some(CannedResponse::error(503, "Vault is sealed")));
                }
            }
        }
        let spent = hours_within_budget(&world, &mut session, 5).await;
        assert!(session.token().is_none(), "{spent:?}");
    }
}

enum Outage {
    Refused,
    Hanging,
    Unavailable,
}

#[tokio::test(start_paused = true)]
async fn the_budget_holds_without_an_identity() {
    let world = World::new(Role { ttl: Duration::from_mins(10), renewable: false, ..one_hour_role() });
    let mut session = world.start();
    session.serving().await;
    world.identity.set_missing(true);
    let before = world.identity.request_count();
    hours_within_budget(&world, &mut session, 1).await;
    // Real sources try several times before they give up.
    assert!(world.identity.request_count() - before <= 25, "{}", world.identity.request_count() - before);
    hours_within_budget(&world, &mut session, 3).await;
    assert_eq!(world.count(Operation::Login), 1);
}

#[tokio::test(start_paused = true)]
async fn the_budget_holds_if_the_server_sends_invalid_responses() {
    for lease in [2, 60] {
        let world = World::new(Role { ttl: Duration::from_mins(lease), ..one_hour_role() });
        let mut session = world.start();
        session.serving().await;
        world.faults().garbage(true);
        hours_within_budget(&world, &mut session, 4).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_budget_holds_if_callers_request_look_ups_all_the_time() {
    let world = World::new(one_hour_role());
    let mut session = world.start();
    session.serving().await;
    let refresh_signal = session.refresh_signal.clone();
    let refresh_requests = async {
        loop {
            refresh_signal.request();
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    tokio::select! {
        () = refresh_requests => {}
        spent = hours_within_budget(&world, &mut session, 3) => assert!(spent[0] >= 60, "requests complete: {spent:?}"),
    }
    assert_eq!(world.count(Operation::Login), 1);
}

#[tokio::test(start_paused = true)]
async fn the_budget_holds_if_callers_wait_and_the_server_forgets_every_token() {
    for (waits, most) in [(false, [38, 30, 30]), (true, [49, 33, 33])] {
        let world = World::new(one_hour_role());
        let mut session = world.start();
        session.serving().await;
        let refresh_signal = session.refresh_signal.clone();
        let _waiting = waits.then(|| refresh_signal.demand().wait());
        let forgetting = async {
            loop {
                world.faults().lose_state();
                refresh_signal.request();
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        };
        let counting = async {
            for most in most {
                let (calls, logins) = (world.upstream_calls(), world.count(Operation::Login));
                tokio::time::sleep(Duration::from_hours(1)).await;
                let (calls, logins) = (world.upstream_calls() - calls, world.count(Operation::Login) - logins);
                assert!(calls <= MAX_CALLS_PER_HOUR, "{calls}");
                assert!(logins <= most, "{logins} logins in an hour, callers wait: {waits}");
            }
        };
        tokio::select! {
            () = forgetting => {}
            () = counting => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_budget_holds_over_restarts_every_two_minutes() {
    for (trouble, sealed) in [(false, false), (false, true), (true, false), (true, true)] {
        let folder = tempfile::tempdir().unwrap();
        let mut world = World::new(one_hour_role());
        world.keep_state(folder.path(), sealed);
        if trouble {
            world.faults().respond_always(Operation::Login, Some(CannedResponse::error(503, "Vault is sealed")));
        }
        for _ in 0..3 {
            let before = world.upstream_calls();
            for _ in 0..30 {
                let session = world.start();
                tokio::time::sleep(Duration::from_mins(2)).await;
                assert_eq!(session.token().is_some(), !trouble, "sealed: {sealed}");
            }
            let spent = world.upstream_calls() - before;
            assert!(spent <= MAX_CALLS_PER_HOUR, "{spent} with trouble {trouble}, sealed {sealed}");
        }
    }
}

/// vault-k8s#593: a process that is started thousands of times leaves as many tokens on the server.
#[tokio::test(start_paused = true)]
async fn the_budget_holds_over_restarts_every_second() {
    for sealed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut world = World::new(one_hour_role());
        world.keep_state(folder.path(), sealed);
        for _ in 0..300 {
            let _session = world.start();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(world.upstream_calls() <= MAX_CALLS_PER_HOUR / 4, "{} with sealed {sealed}", world.upstream_calls());
    }
}
