//! Range and conditional requests: their responses are never shared with other callers.

use std::time::Duration;

use serde_json::json;

use crate::harness::scripted::reply;
use crate::harness::vault::{Proxied, cache, fetch};

const HOUR: Duration = Duration::from_hours(1);

/// Headers that make a response unfit for others, with the server's status.
const CONDITIONS: [(&str, &str, u16); 7] = [
    ("range", "bytes=0-3", 206),
    ("if-none-match", "\"a\"", 304),
    ("if-modified-since", "Sun, 22 Nov 2026 00:00:00 GMT", 304),
    ("if-match", "\"b\"", 412),
    ("if-unmodified-since", "Sun, 22 Nov 2020 00:00:00 GMT", 412),
    ("x-vault-index", "djE6", 412),
    ("x-vault-inconsistent", "forward-active-node", 472),
];

fn proxied() -> Proxied {
    let proxied = Proxied::with(|options, _| options.cache = Some(cache(HOUR, HOUR)));
    proxied.vault.answers(|request| {
        let found = CONDITIONS.iter().find(|(name, _, _)| request.headers.contains_key(*name));
        let status = found.map_or(200, |(_, _, status)| *status);
        let body = if status == 304 { String::new() } else { json!({ "data": { "status": status } }).to_string() };
        reply(status, &[("content-type", "application/json")], body)
    });
    proxied
}

#[tokio::test]
async fn the_response_to_a_conditional_request_is_not_shared() {
    for (name, value, status) in CONDITIONS {
        let proxied = proxied();
        let conditional = async || fetch(proxied.request("GET", "secret/data/web").header(name, value)).await;
        let (first, plain) = (conditional().await, proxied.get("secret/data/web").await);
        assert_eq!((first.status, first.cache()), (status, ""), "{name}");
        assert_eq!((plain.status, plain.cache()), (200, "MISS"), "{name}");
        assert_eq!(conditional().await.status, status, "{name}: what is kept is not its answer");
        assert_eq!(proxied.get("secret/data/web").await.cache(), "HIT", "{name}");
    }
}

#[tokio::test]
async fn waiters_for_a_plain_response_do_not_follow_a_conditional_request() {
    for (name, value, _) in CONDITIONS {
        let proxied = proxied();
        let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
        proxied.vault.holds(std::sync::Arc::clone(&gate));
        let first = fetch(proxied.request("GET", "secret/data/web").header(name, value));
        let second = async {
            while proxied.vault.open() < 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let plain = proxied.get("secret/data/web");
            let opens = async {
                // Both reach the server, or the second would wait for the first for ever.
                let both = async {
                    while proxied.vault.open() < 2 {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                let both = tokio::time::timeout(Duration::from_secs(5), both).await;
                gate.add_permits(100);
                both
            };
            tokio::join!(plain, opens)
        };
        let (_, (plain, both)) = tokio::join!(first, second);
        assert_eq!((plain.status, both.is_ok()), (200, true), "{name}");
    }
}
