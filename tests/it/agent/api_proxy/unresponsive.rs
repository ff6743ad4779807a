//! A server that accepts requests and never responds: after one timeout callers get stale entries at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::harness::scripted::reply;
use crate::harness::vault::{Proxied, cache, fetch};

const HOUR: Duration = Duration::from_hours(1);
const PATIENCE: Duration = Duration::from_secs(3);

#[tokio::test]
async fn after_one_timeout_callers_get_cached_responses_at_once_and_one_probe_at_a_time_calls_the_server() {
    let proxied = Proxied::with(|options, _| {
        options.cache = Some(cache(Duration::ZERO, HOUR));
        options.response_timeout = PATIENCE;
    });
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    proxied.vault.answers(move |_| {
        let count = counted.fetch_add(1, Ordering::SeqCst) + 1;
        reply(200, &[("content-type", "application/json")], json!({ "data": { "read": count } }).to_string())
    });
    let paths = ["secret/data/a", "secret/data/b", "kv/c"];
    for path in paths {
        assert_eq!(proxied.get(path).await.cache(), "MISS");
    }
    let gate = Arc::new(Semaphore::new(0));
    proxied.vault.holds(Arc::clone(&gate));
    let started = Instant::now();
    let first = proxied.get(paths[0]).await;
    assert_eq!((first.status, first.cache()), (200, "STALE"));
    assert!(started.elapsed() >= PATIENCE, "one caller finds it out");

    let count_before = proxied.vault.requests().len();
    let started = Instant::now();
    for _ in 0..20 {
        for path in paths {
            let stale = proxied.get(path).await;
            assert_eq!((stale.status, stale.cache()), (200, "STALE"), "{path}");
        }
    }
    let elapsed = started.elapsed();
    assert!(elapsed < 10 * PATIENCE, "sixty callers took {elapsed:?}");
    let probes = proxied.vault.requests().len() - count_before;
    let most = 2 + usize::try_from(elapsed.as_secs() / PATIENCE.as_secs()).unwrap();
    assert!((1..=most).contains(&probes), "one probe at a time: {probes} in {elapsed:?}");

    // Once it answers again, the next probe detects it, and calls are forwarded again.
    gate.add_permits(Semaphore::MAX_PERMITS / 2);
    tokio::time::timeout(Duration::from_mins(1), async {
        while proxied.get(paths[1]).await.cache() != "MISS" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("callers get answers of the server again");
}

#[tokio::test]
async fn no_cache_requests_wait_for_an_unresponsive_server() {
    let proxied = Proxied::with(|options, _| {
        options.cache = Some(cache(Duration::ZERO, HOUR));
        options.response_timeout = Duration::from_millis(500);
    });
    assert_eq!(proxied.get("secret/data/a").await.cache(), "MISS");
    proxied.vault.holds(Arc::new(Semaphore::new(0)));
    assert_eq!(proxied.get("secret/data/a").await.cache(), "STALE");
    let started = Instant::now();
    let anew = fetch(proxied.request("GET", "secret/data/a").header("cache-control", "no-cache")).await;
    assert!(started.elapsed() >= Duration::from_millis(500), "{anew:?}");
    assert_eq!(proxied.get("secret/data/other").await.status, 504, "nothing is kept of it");
}

#[tokio::test]
async fn a_value_that_was_usable_when_it_was_asked_for_is_served_after_a_timeout_that_is_longer() {
    let proxied = Proxied::with(|options, _| {
        options.cache = Some(cache(Duration::ZERO, Duration::from_secs(1)));
        options.response_timeout = PATIENCE;
    });
    assert_eq!(proxied.get("secret/data/a").await.cache(), "MISS");
    proxied.vault.holds(Arc::new(Semaphore::new(0)));
    let stale = proxied.get("secret/data/a").await;
    assert_eq!((stale.status, stale.cache()), (200, "STALE"), "{stale:?}");
    assert_eq!(proxied.get("secret/data/a").await.status, 504, "too old when it was asked for");
}
