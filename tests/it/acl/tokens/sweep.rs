//! Deletion of expired tokens.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keyward_acl::store::{Embedded, Freshness, Page, Store};
use keyward_machine::clock::{Clock, TestClock};
use serde_json::{Value, json};

use super::{TOKEN, path_of};
use crate::harness::acl::options;
use crate::harness::served::Served;
use crate::harness::store_faults::StoreFaults;

/// Number of records under a prefix whose keys end like this.
async fn count(store: &dyn Store, prefix: &str, end: &str) -> usize {
    let page = Page { after: None, limit: 100 };
    let found = store.list(prefix, page, Freshness::Linearizable).await.unwrap();
    found.entries.iter().filter(|(key, _)| key.as_str().ends_with(end)).count()
}

#[tokio::test]
async fn a_clock_set_back_during_a_sweep_keeps_no_token_without_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&folder.path().join("store"), "dc1").unwrap());
    let delayed = Arc::new(StoreFaults::with_delayed_read(&store, "token-end/"));
    let mut options = options(folder.path());
    options.key_file = Some(folder.path().join("seal.key"));
    let clock = TestClock::starting_at(SystemTime::now());
    let acl = Served::serve_store(delayed.clone(), &options, Clock::Test(clock.clone())).await;
    let root = acl.call("PUT", "/v1/acl/bootstrap", None, None).await.json();
    let root = root["SecretID"].as_str();
    let token: Value = acl.call("PUT", TOKEN, root, Some(json!({"ExpirationTTL": "1m"}))).await.json();
    let accessor = path_of(&token)[TOKEN.len() + 1..].to_owned();
    assert_eq!(count(&*store, "token-end/", &accessor).await, 1);

    // The sweep has read that the token has expired.
    clock.suspend(Duration::from_secs(90));
    delayed.is_reached().await;
    clock.set_wall_by(-3600);
    delayed.release();
    while count(&*store, "token-end/", &accessor).await > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(count(&*store, "token/", &accessor).await, 0, "no later sweep finds the token");
}
