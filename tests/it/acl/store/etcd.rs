//! Store on one etcd server: shared by several of ours, rejected for others, and unreachable for a while.
#![expect(
    clippy::disallowed_methods,
    reason = "servers and processes are waited for in real time, and end with the test"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyward_acl::store::etcd::EtcdOptions;
use keyward_acl::store::{Batch, Check, CommitError, Etcd, Freshness, OpenError, Page, Revision, Store, StoreError};
use keyward_telemetry::error_chain::format_chain;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::etcd_process::{Server, options, shared};
use super::{conflict, get, key, names, put, soon, value};

async fn open(options: &EtcdOptions) -> Etcd {
    Etcd::open(options, "dc1").await.unwrap_or_else(|error| panic!("{}", format_chain(&error)))
}

/// Returns the full error of opening a store.
async fn open_error(options: &EtcdOptions, datacenter: &str) -> String {
    match Etcd::open(options, datacenter).await {
        Ok(store) => panic!("{store:?}"),
        Err(error) => format_chain(&error),
    }
}

/// Short timeout. Operations that must succeed are retried: a loaded machine is slower at times.
fn quick_options(options: EtcdOptions) -> EtcdOptions {
    EtcdOptions { connect_timeout: Duration::from_millis(200), request_timeout: Duration::from_millis(800), ..options }
}

/// Opens a store with a short timeout.
async fn open_quick(options: &EtcdOptions) -> Etcd {
    let attempt = Box::pin(async {
        loop {
            match Etcd::open(options, "dc1").await {
                Ok(store) => return store,
                Err(OpenError::Unreachable { .. }) => {}
                Err(error) => panic!("{}", format_chain(&error)),
            }
        }
    });
    soon(attempt).await
}

/// Retries an idempotent write until it succeeds.
async fn write(store: &Etcd, name: &str, value: &str) -> Revision {
    let attempt = Box::pin(async {
        loop {
            match store.commit(put(name, value)).await {
                Ok(at) => return at,
                Err(CommitError::Store(StoreError::Unavailable(_)) | CommitError::Unknown(_)) => {}
                Err(error) => panic!("{}", format_chain(&error)),
            }
        }
    });
    soon(attempt).await
}

/// Waits until the store answers again.
async fn wait_until_ready(store: &Etcd) {
    soon(async { while store.get(&key("a"), Freshness::Linearizable).await.is_err() {} }).await;
}

#[tokio::test]
async fn a_store_of_another_datacenter_or_format_is_rejected() {
    let server = shared();
    let options = server.options();
    open(&options).await.commit(put("a", "1")).await.unwrap();
    let place = options.to_string();
    let error = open_error(&options, "dc2").await;
    assert_eq!(error, format!("{place} belongs to datacenter \"dc1\", but this server is of \"dc2\""));
    assert_eq!(value(&open(&options).await, "a").await.as_deref(), Some("1"));

    let mut client = etcd_client::Client::connect([options.endpoints[0].as_str()], None).await.unwrap();
    let about = format!("{}about", options.prefix);
    client.put(about.clone(), r#"{"format":"9","datacenter":"dc1"}"#, None).await.unwrap();
    assert_eq!(open_error(&options, "dc1").await, format!("{place} has format 9, but this version supports 1"));
    client.put(about, "something else", None).await.unwrap();
    assert!(matches!(Etcd::open(&options, "dc1").await, Err(OpenError::Damaged { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_servers_share_a_store_without_a_leader_among_them() {
    let server = shared();
    let options = server.options();
    let (one, other) = (open(&options).await, open(&options).await);
    let now = one.commit(put("a", "1")).await.unwrap();
    // A write of the other store wakes waiters here and is read.
    let (woken, at) = tokio::join!(soon(one.changed("token/a", now)), other.commit(put("a", "2")));
    let at = at.unwrap();
    assert_eq!(woken.unwrap(), at);
    assert_eq!(value(&one, "a").await.as_deref(), Some("2"));
    conflict(one.commit(Batch { checks: vec![Check::Unchanged(key("a"), now)], ..put("a", "3") }).await);
    let last = one.commit(Batch { checks: vec![Check::Unchanged(key("a"), at)], ..put("a", "3") }).await.unwrap();
    // Revisions are valid in both.
    assert_eq!(soon(other.changed("token/", at)).await.unwrap(), last);
    let page = Page { after: None, limit: 9 };
    assert_eq!(other.list("token/", page, Freshness::Linearizable).await.unwrap().revision, last);
    // Changes of another store on the same etcd are not.
    assert_eq!(names(&open(&server.options()).await, "token/", None, 9).await, (vec![], false));
}

#[tokio::test]
async fn an_unreachable_cluster_fails_at_start_with_advice() {
    // A closed port, and one that never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let start = Instant::now();
    let away = quick_options(options(["http://127.0.0.1:9".parse().unwrap(), silent.parse().unwrap()]));
    let error = open_error(&away, "dc1").await;
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    let place = away.to_string();
    assert!(
        error.starts_with(&format!("cannot open {place}: check that it is running and that addresses and ")),
        "{error}"
    );
    for expected in ["http://127.0.0.1:9: ", "Connection refused", &silent, "no answer in time"] {
        assert!(error.contains(expected), "{expected} is not in {error}");
    }
    // One reachable member is enough.
    let server = shared();
    let endpoints = [away.endpoints[0].clone(), server.endpoint("http"), away.endpoints[1].clone()];
    let store =
        open(&EtcdOptions { request_timeout: Duration::from_secs(8), ..quick_options(options(endpoints)) }).await;
    let at = store.commit(put("a", "1")).await.unwrap();
    assert_eq!(get(&store, "a").await.unwrap().modified, at);
    assert!(store.get(&key("a"), Freshness::Stale).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_cluster_fails_fast_and_recovers() {
    let mut server = Server::start();
    let options = server.options();
    // With the default timeout, as etcd has just started.
    open(&options).await;
    let store = Arc::new(open_quick(&quick_options(options.clone())).await);
    let now = write(&store, "a", "1").await;
    let waiter = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.changed("token/a", now).await })
    };
    server.kill();
    let start = Instant::now();
    let name = key("a");
    let (newest, stale) = tokio::join!(store.get(&name, Freshness::Linearizable), store.get(&name, Freshness::Stale));
    for error in [newest.unwrap_err(), stale.unwrap_err()] {
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        assert!(
            format_chain(&error).starts_with("the store does not respond: http://127."),
            "{}",
            format_chain(&error)
        );
    }
    // A refused connection proves that the write was not executed. A loaded machine may not see the refusal in time,
    // and the outcome is then unknown.
    let refusal = async {
        loop {
            match store.commit(put("b", "1")).await.unwrap_err() {
                CommitError::Unknown(_) => {}
                error => return error,
            }
        }
    };
    let error = soon(Box::pin(refusal)).await;
    assert!(matches!(error, CommitError::Store(StoreError::Unavailable(_))), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());

    server.run();
    wait_until_ready(&store).await;
    let other = open(&options).await;
    assert_eq!(names(&other, "token/", None, 9).await, (vec!["a".into()], false));
    let at = write(&store, "a", "2").await;
    assert!(soon(waiter).await.unwrap().unwrap() > now);
    // Changes of others are reported again, too.
    let (woken, at) = tokio::join!(soon(store.changed("token/a", at)), other.commit(put("a", "3")));
    assert!(woken.unwrap() >= at.unwrap());
}

/// TCP proxy to a server that can be closed (connections are reset), lost (they hang), or block responses.
struct TcpProxy {
    address: url::Url,
    state: tokio::sync::watch::Sender<State>,
    _tasks: JoinSet<()>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    closed: bool,
    /// Number of times that connections were lost.
    lost: usize,
    /// Blocks responses.
    mute: bool,
}

impl TcpProxy {
    async fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (state, receiver) = tokio::sync::watch::channel(State::default());
        let target = server.endpoint("http").socket_addrs(|| None).unwrap()[0];
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut ways = JoinSet::new();
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let (mut closed, mut lost, mut mute) = (receiver.clone(), receiver.clone(), receiver.clone());
                ways.spawn(async move {
                    let before = lost.borrow_and_update().lost;
                    let mut far = TcpStream::connect(target).await.unwrap();
                    let (mut from_near, mut to_near) = near.split();
                    let (mut from_far, mut to_far) = far.split();
                    let back = async {
                        let mut bytes = [0; 4096];
                        while let Ok(length @ 1..) = from_far.read(&mut bytes).await {
                            let _ = mute.wait_for(|state| !state.mute).await;
                            if to_near.write_all(&bytes[..length]).await.is_err() {
                                return;
                            }
                        }
                    };
                    tokio::select! {
                        // In this order: nothing passes after closing or losing it.
                        biased;
                        _ = closed.wait_for(|state| state.closed) => return,
                        _ = lost.wait_for(|state| state.lost > before) => {}
                        _ = tokio::io::copy(&mut from_near, &mut to_far) => return,
                        () = back => return,
                    }
                    std::future::pending::<()>().await;
                });
            }
        });
        Self { address, state, _tasks: tasks }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_outlives_a_lost_connection_and_a_compaction() {
    let server = Server::start();
    let mut client = etcd_client::Client::connect([server.endpoint("http").as_str()], None).await.unwrap();
    let direct = server.options();
    let other = open(&direct).await;
    let way = TcpProxy::to(&server).await;
    let store = Arc::new(open(&EtcdOptions { endpoints: vec![way.address.clone()], ..direct }).await);
    let mut now = other.commit(put("a", "0")).await.unwrap();
    assert_eq!(soon(store.changed("token/a", Revision(now.0 - 1))).await.unwrap(), now);

    for (round, compacted) in [("1", false), ("2", true)] {
        let wait = |prefix: &'static str| {
            let (store, now) = (Arc::clone(&store), now);
            tokio::spawn(async move { soon(store.changed(prefix, now)).await.unwrap() })
        };
        let (waiting, elsewhere) = (wait("token/a"), wait("token/b"));
        way.state.send_modify(|state| state.closed = true);
        other.commit(put("a", round)).await.unwrap();
        now = other.commit(put("c", round)).await.unwrap();
        if compacted {
            let last = i64::try_from(now.0).unwrap();
            client.compact(last, None).await.unwrap();
        }
        assert!(!waiting.is_finished());
        way.state.send_modify(|state| state.closed = false);
        assert!(waiting.await.unwrap() <= now);
        assert_eq!(value(&*store, "a").await.as_deref(), Some(round));
        if compacted {
            // Changes in between were compacted: all waiters wake.
            assert!(elsewhere.await.unwrap() >= now);
        } else {
            assert!(!elsewhere.is_finished());
            elsewhere.abort();
        }
        assert!(soon(store.changed("token/b", Revision(0))).await.unwrap() >= now);
    }
    let (woken, at) = tokio::join!(soon(store.changed("token/b", now)), other.commit(put("b", "1")));
    assert_eq!(woken.unwrap(), at.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_with_unknown_outcome_is_reported_and_not_retried() {
    let server = Server::start();
    let options = server.options();
    let other = open(&options).await;
    let store = open_quick(&quick_options(options.clone())).await;
    write(&store, "a", "1").await;
    // The server executes the batch and answers after the client gave up.
    server.stop();
    let absent = Batch { checks: vec![Check::Absent(key("b"))], ..put("b", "1") };
    unknown(soon(store.commit(absent.clone())).await);
    server.go_on();
    wait_until_ready(&store).await;
    // Written or not, possibly late, but at most once.
    let again = other.commit(absent).await;
    assert!(matches!(&again, Ok(_) | Err(CommitError::Conflict(_))), "{again:?}");
    let record = get(&other, "b").await.unwrap();
    assert_eq!(record.created, record.modified);
    write(&store, "c", "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_with_a_lost_response_is_written_once() {
    let server = shared();
    let direct = server.options();
    let way = TcpProxy::to(&server).await;
    let store =
        open_quick(&quick_options(EtcdOptions { endpoints: vec![way.address.clone()], ..direct.clone() })).await;
    let other = open(&direct).await;
    way.state.send_modify(|state| state.mute = true);
    unknown(soon(store.commit(put("a", "1"))).await);
    soon(async { while get(&other, "a").await.is_none() {} }).await;
    way.state.send_modify(|state| state.mute = false);
    write(&store, "b", "1").await;
    let record = get(&other, "a").await.unwrap();
    assert_eq!(record.created, record.modified, "it was sent twice");
}

/// Checks that the outcome is reported as unknown.
fn unknown(outcome: Result<Revision, CommitError>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, CommitError::Unknown(StoreError::Unavailable(_))), "{error:?}");
    assert!(
        format_chain(&error).starts_with("the change may or may not have been written: "),
        "{}",
        format_chain(&error)
    );
    assert!(format_chain(&error).ends_with("no answer in time"), "{}", format_chain(&error));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_is_replaced() {
    let server = shared();
    let way = TcpProxy::to(&server).await;
    // Longer than a loaded machine needs, and shorter than the detection of a lost connection.
    let patience = EtcdOptions { request_timeout: Duration::from_secs(4), ..options([way.address.clone()]) };
    let store = open(&patience).await;
    store.commit(put("a", "1")).await.unwrap();
    way.state.send_modify(|state| state.lost += 1);
    let error = store.commit(put("a", "2")).await.unwrap_err();
    assert!(matches!(error, CommitError::Unknown(_)), "{error:?}");
    store.commit(put("a", "3")).await.unwrap();
    assert_eq!(value(&store, "a").await.as_deref(), Some("3"));
}
