//! Store on a cluster of three members that are killed one after the other.
#![expect(
    clippy::disallowed_methods,
    clippy::large_futures,
    reason = "servers and processes are waited for in real time, and end with the test"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keyward_acl::store::etcd::EtcdOptions;
use keyward_acl::store::{Batch, Check, CommitError, Etcd, Freshness, Key, Page, Revision, Store, Write};
use keyward_telemetry::error_chain::format_chain;
use tokio::task::JoinSet;

use super::etcd_process::{Server, options};
use super::{key, put, soon};

/// Outcomes of a writer's batches.
#[derive(Default)]
struct BatchOutcomes {
    written: Vec<String>,
    unknown: Vec<String>,
    /// Longest time without a written batch.
    gap: Duration,
}

/// Writes batches of two records until stopped.
async fn write(store: Arc<Etcd>, writer: usize, stop: Arc<AtomicBool>) -> BatchOutcomes {
    let (mut outcomes, mut last) = (BatchOutcomes::default(), Instant::now());
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("{writer}-{number}");
        let mut batch = Batch { checks: vec![Check::Absent(key(&name))], ..put(&name, &name) };
        batch.writes.push(Write::Put(Key::new(&["twin", &name]), Vec::new()));
        match store.commit(batch).await {
            Ok(_) => {
                outcomes.written.push(name);
                outcomes.gap = outcomes.gap.max(last.elapsed());
                last = Instant::now();
            }
            Err(CommitError::Unknown(_)) => outcomes.unknown.push(name),
            // Certainly not written, and never a conflict with its own write.
            Err(CommitError::Store(_)) => {}
            Err(error) => panic!("{}", format_chain(&error)),
        }
    }
    outcomes
}

async fn all(store: &Etcd, prefix: &str) -> Vec<String> {
    let listing = store.list(prefix, Page { after: None, limit: usize::MAX }, Freshness::Linearizable).await.unwrap();
    listing.entries.iter().map(|(key, _)| key.last_segment().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losing_a_member_during_writes_loses_nothing_and_wakes_waiters() {
    let mut servers = Server::cluster();
    for server in &servers {
        soon(server.ready()).await;
    }
    let options = options(servers.each_ref().map(|server| server.endpoint("http")));
    // Requests that a member forwards to a dead leader are lost.
    let options = EtcdOptions { request_timeout: Duration::from_secs(1), ..options };
    let open = async || Etcd::open(&options, "dc1").await.unwrap_or_else(|error| panic!("{}", format_chain(&error)));
    let stores = [Arc::new(open().await), Arc::new(open().await)];
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        writers.spawn(write(Arc::clone(&stores[writer % 2]), writer, Arc::clone(&stop)));
    }
    // Each member once, including the leader and those that the stores use.
    for (place, server) in servers.iter_mut().enumerate() {
        let name = format!("while-{place}-is-away");
        let now = stores[1].changed("late/", Revision(0)).await.unwrap();
        let waiters: Vec<_> = stores
            .iter()
            .map(|store| {
                let (store, name) = (Arc::clone(store), format!("late/{name}"));
                tokio::spawn(async move { store.changed(&name, now).await })
            })
            .collect();
        // They wait by now; one that comes later finds the change, and nothing is woken.
        tokio::time::sleep(Duration::from_millis(150)).await;
        server.kill();
        let batch = || Batch { checks: Vec::new(), writes: vec![Write::Put(Key::new(&["late", &name]), Vec::new())] };
        soon(async { while stores[0].commit(batch()).await.is_err() {} }).await;
        for waiter in waiters {
            assert!(soon(waiter).await.unwrap().unwrap() > now);
        }
        server.run();
        // Two others must be running before the next one is killed.
        soon(server.ready()).await;
    }
    stop.store(true, Ordering::Relaxed);
    let outcomes = soon(writers.join_all()).await;

    let (tokens, twins) = (all(&stores[1], "token/").await, all(&stores[0], "twin/").await);
    assert_eq!(tokens, twins, "a batch was written in part");
    for BatchOutcomes { written, unknown, gap } in outcomes {
        for name in &written {
            assert!(tokens.binary_search(name).is_ok(), "{name} was acknowledged and is lost");
        }
        // Some seconds of errors for each lost leader.
        assert!(!written.is_empty() && unknown.len() <= 30, "{} written, {} unknown", written.len(), unknown.len());
        assert!(gap < Duration::from_secs(30), "no batch was written for {gap:?}");
    }
}
