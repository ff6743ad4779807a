//! Listeners with several threads.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full};
use keyward_http::reverse_proxy::{Forwarder, ForwarderOptions, ResponseBody, UpstreamAddress};
use keyward_http::server::{
    Endpoint, HttpMetrics, IncomingBody, Listener, ListenerLabel, ListenerLimits, ListenerMetrics, Peer, UnixSocket,
};
use keyward_telemetry::metrics::Metrics;
use tempfile::TempDir;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::reverse_proxy::forward;
use crate::harness::raw::Raw;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const HELD: &str = "GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n";

thread_local! {
    /// Reports the end of the thread.
    static END: RefCell<Option<ThreadEnd>> = const { RefCell::new(None) };
}

struct ThreadEnd(mpsc::UnboundedSender<String>, String);

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        let _ = self.0.send(std::mem::take(&mut self.1));
    }
}

fn thread_name() -> String {
    format!("{:?}", std::thread::current().id())
}

/// A listener with two threads, of which a response names the one that made it.
struct Scene {
    folder: TempDir,
    metrics: Metrics,
    stop: CancellationToken,
    servers: JoinSet<()>,
    /// Requests to `/held` wait for a permit.
    permits: std::sync::Arc<Semaphore>,
    held: mpsc::UnboundedReceiver<()>,
    ended: mpsc::UnboundedReceiver<String>,
}

impl Scene {
    fn new(limits: ListenerLimits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let permits = std::sync::Arc::new(Semaphore::new(0));
        let ((hold, held), (end, ended)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let (metrics, stop, servers) = (Metrics::default(), CancellationToken::new(), JoinSet::new());
        let mut scene = Self { folder, metrics, stop, servers, permits, held, ended };
        let listener = scene.bind("front");
        let permits = std::sync::Arc::clone(&scene.permits);
        let service = move |_: Peer, request: Request<IncomingBody>| {
            END.with_borrow_mut(|slot| slot.get_or_insert_with(|| ThreadEnd(end.clone(), thread_name())).1.len());
            let (permits, hold) = (std::sync::Arc::clone(&permits), hold.clone());
            async move {
                if request.uri().path() == "/held" {
                    hold.send(()).unwrap();
                    permits.acquire().await.unwrap().forget();
                }
                Response::new(Full::new(Bytes::from(thread_name())))
            }
        };
        let limits = scene.two_threads(limits, "front");
        scene.servers.spawn(listener.serve(service, limits, scene.stop.clone()));
        scene
    }

    fn two_threads(&self, limits: ListenerLimits, name: &str) -> ListenerLimits {
        let listener_metrics = Some(ListenerMetrics { metrics: self.metrics.clone(), listener: name.to_owned() });
        ListenerLimits { listener_metrics, threads: 2, ..limits }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn bind(&self, name: &str) -> Listener {
        let socket = UnixSocket { path: self.path(name), mode: 0o600, owner: None, group: None };
        Listener::bind(&Endpoint::Unix(socket)).unwrap()
    }

    async fn connect(&self) -> Raw {
        Raw::unix(&self.path("front")).await
    }

    fn open(&self, listener: &str) -> i64 {
        let label = ListenerLabel { listener: listener.to_owned() };
        self.metrics.get::<HttpMetrics>().connections.get_or_create(&label).get()
    }
}

#[tokio::test]
async fn connections_are_given_to_the_threads_in_turn_and_stay_with_them() {
    let scene = Scene::new(ListenerLimits::default());
    let mut connections = Vec::new();
    let mut first = Vec::new();
    for _ in 0..4 {
        let mut connection = scene.connect().await;
        first.push(connection.ask(REQUEST).await.body);
        connections.push(connection);
    }
    assert_eq!((&first[0], &first[1]), (&first[2], &first[3]));
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 2);
    assert!(first.contains(&thread_name()), "the listener's own thread serves, too");
    for (connection, thread) in connections.iter_mut().zip(&first) {
        assert_eq!(connection.ask(REQUEST).await.body, *thread);
    }
    assert_eq!(scene.open("front"), 4);
}

#[tokio::test]
async fn a_stop_waits_for_the_requests_of_all_threads_and_then_ends_the_threads() {
    let mut scene = Scene::new(ListenerLimits::default());
    let mut connections = Vec::new();
    for _ in 0..4 {
        let mut connection = scene.connect().await;
        connection.send(HELD).await;
        scene.held.recv().await.unwrap();
        connections.push(connection);
    }
    let mut idle = vec![scene.connect().await, scene.connect().await];
    for connection in &mut idle {
        connection.ask(REQUEST).await;
    }
    scene.stop.cancel();
    for connection in &mut idle {
        assert!(connection.answer().await.is_none(), "an idle connection is closed");
    }
    assert!(scene.servers.try_join_next().is_none(), "requests are in flight");
    scene.permits.add_permits(4);
    let mut threads = BTreeSet::new();
    for connection in &mut connections {
        let response = connection.answer().await.unwrap();
        assert_eq!((response.status, response.header("connection")), (200, Some("close")));
        threads.insert(response.body);
    }
    scene.servers.join_next().await.unwrap().unwrap();
    assert_eq!((threads.len(), scene.open("front")), (2, 0));
    threads.remove(&thread_name());
    assert_eq!(scene.ended.recv().await, threads.pop_first());
}

#[tokio::test]
async fn a_dropped_listener_ends_its_threads_and_requests() {
    let mut scene = Scene::new(ListenerLimits::default());
    let mut connections = vec![scene.connect().await, scene.connect().await];
    for connection in &mut connections {
        connection.send(HELD).await;
        scene.held.recv().await.unwrap();
    }
    scene.servers.shutdown().await;
    for connection in &mut connections {
        assert!(connection.answer().await.is_none());
    }
    assert!(scene.ended.recv().await.is_some());
}

#[tokio::test]
async fn the_limit_of_connections_holds_for_all_threads_together() {
    let scene = Scene::new(ListenerLimits { connections: 4, per_user: 4, ..ListenerLimits::default() });
    let mut connections = Vec::new();
    for _ in 0..9 {
        let mut connection = scene.connect().await;
        assert_eq!(connection.ask(REQUEST).await.status, 200);
        connections.push(connection);
        assert!(scene.open("front") <= 5, "the evicted one may be about to end: {}", scene.open("front"));
    }
    while scene.open("front") > 4 {
        tokio::task::yield_now().await;
    }
    // The others were closed for later ones, on either thread.
    let mut ended = 0;
    for connection in &mut connections[..5] {
        ended += usize::from(connection.answer().await.is_none());
    }
    assert_eq!(ended, 5);
}

#[tokio::test]
async fn connections_to_an_upstream_stay_with_a_thread_and_have_one_limit() {
    for max in [1, 2] {
        let mut scene = Scene::new(ListenerLimits::default());
        let back = scene.bind("back");
        let label = ListenerMetrics { metrics: scene.metrics.clone(), listener: "back".to_owned() };
        let limits = ListenerLimits { listener_metrics: Some(label), ..ListenerLimits::default() };
        let respond = async |_: Peer, _: Request<IncomingBody>| Response::new(Full::new(Bytes::from_static(b"back")));
        let respond = move |peer, request| Box::pin(respond(peer, request));
        scene.servers.spawn(back.serve(respond, limits, CancellationToken::new()));
        let forwarder = Forwarder::new(ForwarderOptions {
            target: UpstreamAddress::Unix(scene.path("back")),
            tls: None,
            connections: max,
            idle: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            body_idle: None,
            recorder: None,
        });
        let limits = scene.two_threads(ListenerLimits::default(), "proxy");
        let proxy = scene.bind("proxy");
        scene.servers.spawn(proxy.serve(forward_by(forwarder), limits, CancellationToken::new()));
        let mut callers = Vec::new();
        for _ in 0..4 {
            callers.push(Raw::unix(&scene.path("proxy")).await);
        }
        for _ in 0..3 {
            for caller in &mut callers {
                assert_eq!(caller.ask(REQUEST).await.body, "back");
            }
        }
        // One that was closed for another thread's may be about to end.
        while scene.open("back") > i64::try_from(max).unwrap() {
            tokio::task::yield_now().await;
        }
        assert_eq!(scene.open("back"), i64::try_from(max).unwrap());
    }
}

type ProxyBody = Either<ResponseBody, Full<Bytes>>;

/// Forwards each request as it comes.
fn forward_by(
    forwarder: Forwarder,
) -> impl Fn(Peer, Request<IncomingBody>) -> std::pin::Pin<Box<dyn Future<Output = Response<ProxyBody>> + Send>> + Clone
{
    move |peer, request| {
        let forwarder = forwarder.clone();
        Box::pin(
            async move { forward(&forwarder, peer, request, Duration::from_secs(10)).await.unwrap().map(Either::Left) },
        )
    }
}
