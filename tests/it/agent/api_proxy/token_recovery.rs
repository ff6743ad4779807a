//! Recovery after the server refuses the session's token: one check and one login for all callers that met the refusal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use keyward_emulators::secrets::{CannedResponse, Operation, Role, TokenType};

use crate::harness::scripted::reply;
use crate::harness::session::World;
use crate::harness::vault::{Proxied, fetch};

const DENIED: &str = "1 error occurred:\n\t* permission denied\n\n";
const INVALID: &str = "2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n";

/// vault#31995: a request with a revoked token hangs, and the agent does not log in again.
#[tokio::test(start_paused = true)]
async fn a_hundred_callers_with_a_revoked_token_cost_one_login_and_all_are_answered() {
    let world = World::new(Role::default());
    let mut session = world.start();
    let first = session.serving().await;
    let proxied = Proxied::for_world(&world, &session);
    assert_eq!(proxied.get("secret/data/example").await.status, 200);
    world.faults().revoke_all();
    let (logins, looks) = (world.count(Operation::Login), world.count(Operation::Lookup));
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
    assert_eq!(world.count(Operation::Login) - logins, 1);
    assert!(world.count(Operation::Lookup) - looks <= 2, "a look of its own may fall into it");
    assert_ne!(session.serving().await.generation, first.generation);
    let read = proxied.get("secret/data/99").await;
    assert_eq!(read.json()["data"]["data"]["number"], 99, "what was sent again was whole");
    let text = proxied.metrics.text();
    let replays = text.lines().find(|line| line.starts_with("keyward_proxy_replays_total")).unwrap();
    assert!(!replays.ends_with(" 0"), "{replays}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_policy_causes_no_login_and_is_passed_on() {
    let world = World::new(Role::default());
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world(&world, &session);
    let (logins, looks) = (world.count(Operation::Login), world.count(Operation::Lookup));
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::error(403, DENIED)));
    let responses = join_all((0..50).map(|_| proxied.get("secret/data/example"))).await;
    assert!(responses.iter().all(|response| response.status == 403 && response.error() == DENIED), "{responses:?}");
    assert_eq!(world.count(Operation::Login), logins);
    assert!(world.count(Operation::Lookup) - looks <= 2);
    // It does not use up the budget for a token that is really dead.
    world.faults().respond_always(Operation::Secret, None);
    world.faults().revoke_all();
    assert_eq!(proxied.get("secret/data/example").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn repeated_refusals_cause_token_look_ups_within_the_budget() {
    let world = World::new(Role::default());
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world(&world, &session);
    let before = world.upstream_calls();
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::error(403, INVALID)));
    for _ in 0..600 {
        assert_eq!(proxied.get("secret/data/example").await.status, 403);
        tokio::time::sleep(Duration::from_secs(6)).await;
    }
    let calls = world.upstream_calls() - before;
    assert!(calls < 200, "{calls} calls in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_rotates_all_the_time_fails_no_call() {
    let role = Role { ttl: Duration::from_mins(2), max_ttl: None, token_type: TokenType::Batch, ..Role::default() };
    let world = World::new(role);
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world(&world, &session);
    for second in 0..1200 {
        let response = proxied.get("secret/data/example").await;
        assert_eq!(response.status, 200, "{second}: {response:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(world.count(Operation::Login) > 10);
    let text = proxied.metrics.text();
    assert!(
        !text.contains("keyward_proxy_replays_total{listener=\"vault\"} 1"),
        "made before the old one broke: {text}"
    );
}

#[tokio::test(start_paused = true)]
async fn callers_get_retry_after_while_no_login_succeeds() {
    let world = World::new(Role::default());
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world(&world, &session);
    world.faults().revoke_all();
    world.faults().respond_always(Operation::Login, Some(CannedResponse::error(500, "internal error")));
    let response = proxied.get("secret/data/example").await;
    assert_eq!(response.status, 503, "{response:?}");
    assert!(response.error().contains("the token was revoked or lost by the server"), "{response:?}");
    assert!(response.headers.contains_key("retry-after"));
    world.faults().respond_always(Operation::Login, None);
    session.serving().await;
    assert_eq!(proxied.get("secret/data/example").await.status, 200);
}

/// Spawns a token manager that publishes `tok2` on each refresh request; returns the number of requests.
fn spawn_manager(proxied: &mut Proxied) -> Arc<AtomicU64> {
    let refresh_requests = Arc::new(AtomicU64::new(0));
    let (counted, refresh_signal, publisher) =
        (Arc::clone(&refresh_requests), proxied.refresh_signal.clone(), proxied.publisher.take().unwrap());
    proxied.servers.spawn(async move {
        loop {
            refresh_signal.requested().await;
            counted.fetch_add(1, Ordering::Relaxed);
            let token = Arc::new(crate::harness::vault::token("tok2"));
            publisher.publish(
                keyward_credentials::credential_watch::Availability::Available(token),
                Some(keyward_machine::clock::Clock::System.now()),
            );
            refresh_signal.complete();
        }
    });
    proxied.vault.answers(|request| match request.token() {
        "tok2" => reply(200, &[], request.body.clone()),
        _ => reply(403, &[("content-type", "application/json")], r#"{"errors":["invalid token"]}"#),
    });
    refresh_requests
}

#[tokio::test]
async fn a_body_is_sent_again_where_it_was_small_and_the_next_call_works_where_it_was_not() {
    for (body, expected) in [(vec![b'a'; 1_000_000], 200), (vec![b'a'; 1_100_000], 403)] {
        let mut proxied = Proxied::start();
        let refresh_requests = spawn_manager(&mut proxied);
        let response = fetch(proxied.request("PUT", "secret/data/large").body(body.clone())).await;
        assert_eq!(response.status, expected, "{} bytes", body.len());
        if expected == 200 {
            assert_eq!(response.text.as_bytes(), body);
            assert_eq!(proxied.vault.requests().len(), 2);
        }
        assert_eq!(fetch(proxied.request("PUT", "secret/data/large").body(body)).await.status, 200);
        assert_eq!(refresh_requests.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_is_sent_again_as_it_was() {
    let mut proxied = Proxied::start();
    spawn_manager(&mut proxied);
    let pieces: Vec<String> = (0..100).map(|number| format!("piece {number};")).collect();
    let whole = pieces.concat();
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>)));
    let response = fetch(proxied.request("POST", "secret/data/chunked").body(body)).await;
    assert_eq!((response.status, response.text), (200, whole));
}

#[tokio::test]
async fn look_ups_of_unknown_tokens_do_not_use_up_the_checks_of_the_sessions_token() {
    let mut proxied = Proxied::start();
    let refresh_requests = spawn_manager(&mut proxied);
    proxied.vault.answers(|_| reply(403, &[("content-type", "application/json")], r#"{"errors":["bad token"]}"#));
    for _ in 0..5 {
        let response = fetch(proxied.request("POST", "auth/token/lookup").body(r#"{"token":"none"}"#)).await;
        assert_eq!((response.status, response.error().as_str()), (403, "bad token"));
    }
    assert!(refresh_requests.load(Ordering::Relaxed) <= 1, "as after any other refusal: one check in two minutes");
}

#[tokio::test]
async fn a_callers_own_token_that_is_refused_is_its_own_to_know() {
    let mut proxied = Proxied::start();
    let refresh_requests = spawn_manager(&mut proxied);
    let response = fetch(proxied.request("GET", "a").header("x-vault-token", "mine")).await;
    assert_eq!((response.status, response.error().as_str()), (403, "invalid token"));
    assert_eq!((refresh_requests.load(Ordering::Relaxed), proxied.vault.requests().len()), (0, 1));
}
