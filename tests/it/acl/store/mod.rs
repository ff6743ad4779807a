//! Stores of the ACL server: one contract for all, and tests of each.

mod contract;
mod damage;
mod embedded;
mod watches;

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "etcd")]
mod etcd_cluster;
#[cfg(all(feature = "etcd", feature = "dev"))]
mod etcd_login;
#[cfg(feature = "etcd")]
pub(crate) mod etcd_process;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use keyward_acl::store::{
    Batch, CommitError, Freshness, Key, Page, Record, Revision, Store, StoreOptions, Write, open,
};

/// An empty store and the resources that it needs.
struct Fixture {
    store: Arc<dyn Store>,
    _folder: Option<tempfile::TempDir>,
    #[cfg(feature = "etcd")]
    _server: Option<Arc<etcd_process::Server>>,
}

impl Fixture {
    async fn embedded() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions::Embedded { data_dir: folder.path().join("store") };
        Self {
            store: open(&options, "dc1").await.unwrap(),
            _folder: Some(folder),
            #[cfg(feature = "etcd")]
            _server: None,
        }
    }

    #[cfg(feature = "etcd")]
    async fn etcd() -> Self {
        let server = etcd_process::shared();
        let store = open(&StoreOptions::Etcd(server.options()), "dc1").await.unwrap();
        Self { store, _folder: None, _server: Some(server) }
    }
}

/// Runs each contract test on each store.
macro_rules! contract {
    ($($part:ident::$case:ident),* $(,)?) => {
        mod on_embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$part::$case(super::Fixture::embedded().await.store).await;
            })*
        }
        #[cfg(feature = "etcd")]
        mod on_etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$part::$case(super::Fixture::etcd().await.store).await;
            })*
        }
    };
}

contract!(
    contract::a_record_has_the_revisions_that_made_and_changed_it,
    contract::keys_and_values_are_kept_byte_for_byte,
    contract::a_batch_is_written_whole_or_not_at_all,
    contract::a_check_names_the_record_that_it_failed_on,
    contract::checks_alone_move_nothing,
    contract::lists_are_in_the_order_of_the_keys_and_stay_in_their_prefix,
    contract::a_long_list_of_large_records_comes_in_pages_and_as_a_whole,
    contract::a_deleted_record_can_be_created_again,
    contract::of_two_writes_of_one_key_the_later_wins,
    contract::a_batch_at_the_limits_is_accepted_and_one_above_is_not,
    contract::many_writers_count_without_a_gap,
    contract::of_many_writers_with_the_same_check_one_wins,
    contract::a_batch_is_written_although_its_caller_is_dropped,
    contract::a_stale_read_catches_up,
    contract::an_export_gives_everything_as_it_was_when_it_began,
    watches::a_watch_behind_the_store_returns_at_once,
    watches::a_watch_wakes_by_its_own_keys_only,
    watches::repeated_watches_miss_no_change,
    watches::a_list_never_claims_a_change_that_it_does_not_show,
    watches::a_thousand_waiters_wake_by_one_write,
    watches::a_dropped_watch_is_removed,
);

fn key(name: &str) -> Key {
    Key::new(&["token", name])
}

fn put(name: &str, value: &str) -> Batch {
    writes([Write::Put(key(name), value.into())])
}

fn writes(writes: impl IntoIterator<Item = Write>) -> Batch {
    Batch { checks: Vec::new(), writes: writes.into_iter().collect() }
}

async fn get(store: &dyn Store, name: &str) -> Option<Record> {
    store.get(&key(name), Freshness::Linearizable).await.unwrap()
}

async fn value(store: &dyn Store, name: &str) -> Option<String> {
    get(store, name).await.map(|record| String::from_utf8(record.value.to_vec()).unwrap())
}

/// Returns the last key segments of a page, and whether there are more.
async fn names(store: &dyn Store, prefix: &str, after: Option<Key>, limit: usize) -> (Vec<String>, bool) {
    let listing = store.list(prefix, Page { after, limit }, Freshness::Linearizable).await.unwrap();
    (listing.entries.iter().map(|(key, _)| key.last_segment().to_owned()).collect(), listing.more)
}

async fn revision_of(store: &dyn Store, prefix: &str) -> Revision {
    store.list(prefix, Page { after: None, limit: 1 }, Freshness::Linearizable).await.unwrap().revision
}

fn conflict(outcome: Result<Revision, CommitError>) -> Key {
    match outcome {
        Err(CommitError::Conflict(key)) => key,
        other => panic!("{other:?}"),
    }
}

/// Fails if a future does not complete within a few seconds.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), what).await.expect("it did not happen in a minute")
}
