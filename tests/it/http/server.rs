//! The accept loop over real sockets: idle connections are closed, new callers get a connection, a stop lets requests end.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use keyward_http::server::{
    Endpoint, HttpMetrics, IncomingBody, Listener, ListenerLabel, ListenerLimits, ListenerMetrics, Peer, RefusalLabels,
    UnixSocket,
};
use keyward_telemetry::metrics::Metrics;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::harness::raw::Raw;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const SLOW: &str = "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n";

struct Scene {
    folder: TempDir,
    metrics: Metrics,
    stop: CancellationToken,
    servers: JoinSet<()>,
}

impl Scene {
    fn new() -> Self {
        let (folder, metrics) = (tempfile::tempdir().unwrap(), Metrics::default());
        Self { folder, metrics, stop: CancellationToken::new(), servers: JoinSet::new() }
    }

    fn serving(limits: ListenerLimits) -> Self {
        let mut scene = Self::new();
        scene.serve(Listener::bind(&scene.endpoint()).unwrap(), limits);
        scene
    }

    fn serve(&mut self, listener: Listener, limits: ListenerLimits) {
        let listener_metrics = Some(ListenerMetrics { metrics: self.metrics.clone(), listener: "test".to_owned() });
        self.servers.spawn(listener.serve(respond, ListenerLimits { listener_metrics, ..limits }, self.stop.clone()));
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("api.sock")
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(socket(&self.path()))
    }

    async fn connect(&self) -> Raw {
        Raw::unix(&self.path()).await
    }

    fn open(&self) -> i64 {
        self.metrics
            .get::<HttpMetrics>()
            .connections
            .get_or_create(&ListenerLabel { listener: "test".to_owned() })
            .get()
    }

    fn refused(&self, reason: &'static str) -> u64 {
        self.metrics
            .get::<HttpMetrics>()
            .refused
            .get_or_create(&RefusalLabels { listener: "test".to_owned(), reason })
            .get()
    }
}

fn socket(path: &Path) -> UnixSocket {
    UnixSocket { path: path.to_owned(), mode: 0o600, owner: None, group: None }
}

/// Answers at once; `/slow` after 20 seconds; `/large` with more than the kernel holds for a caller that does not read.
async fn respond(_: Peer, request: Request<IncomingBody>) -> Response<Full<Bytes>> {
    let body = match request.uri().path() {
        "/slow" => {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Bytes::from_static(b"slow")
        }
        "/large" => Bytes::from(vec![b'x'; 32 << 20]),
        _ => Bytes::from_static(b"quick"),
    };
    Response::new(Full::new(body))
}

#[tokio::test(start_paused = true)]
async fn silent_slow_and_idle_connections_are_closed() {
    let scene = Scene::serving(ListenerLimits::default());
    let check = async |before: &[&str], seconds: u64| {
        let mut connection = scene.connect().await;
        while scene.open() == 0 {
            tokio::task::yield_now().await;
        }
        let mut started = Instant::now();
        for (index, part) in before.iter().enumerate() {
            tokio::time::sleep(Duration::from_secs(u64::from(index > 0))).await;
            started = if index == 0 { Instant::now() } else { started };
            if *part == REQUEST {
                assert_eq!(connection.ask(REQUEST).await.status, 200);
                started = Instant::now();
            } else {
                connection.send(part).await;
            }
        }
        while scene.open() > 0 && started.elapsed() < Duration::from_mins(3) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let lasted = started.elapsed();
        assert!(connection.ends_within(Duration::ZERO).await, "{before:?}");
        let span = Duration::from_secs(seconds);
        // An idle connection is looked at once in a quarter of its time.
        let late = if seconds == 60 { Duration::from_secs(16) } else { Duration::from_millis(100) };
        assert!((span..span + late).contains(&lasted), "{before:?} lasted {lasted:?} and not {span:?}");
    };
    check(&[], 2).await;
    check(&["GET / HTTP/1.1\r\n"], 5).await;
    check(&["GET / H", "TTP/1", ".1\r\nH", "o"], 5).await;
    check(&[REQUEST], 60).await;
    check(&[REQUEST, "GET / HTTP/1.1\r\n"], 6).await;
    assert_eq!(scene.open(), 0, "all were counted out");
}

#[tokio::test(start_paused = true)]
async fn a_slow_response_is_not_closed_and_an_unread_one_is() {
    let limits = ListenerLimits { write_timeout: Duration::from_secs(30), ..ListenerLimits::default() };
    let scene = Scene::serving(limits);
    let mut connection = scene.connect().await;
    for _ in 0..3 {
        assert_eq!(connection.ask(SLOW).await.body, "slow");
    }
    let mut unresponsive = scene.connect().await;
    unresponsive.send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(scene.open(), 2);
    tokio::time::sleep(Duration::from_secs(17)).await;
    assert_eq!(scene.open(), 1, "it took no byte for half a minute");
}

#[tokio::test(start_paused = true)]
async fn a_new_caller_replaces_the_longest_idle_connection() {
    let scene = Scene::serving(ListenerLimits { connections: 4, ..ListenerLimits::default() });
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut connection = scene.connect().await;
        assert_eq!(connection.ask(REQUEST).await.status, 200);
        open.push(connection);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(open[0].ask(REQUEST).await.status, 200);
    let mut late = scene.connect().await;
    assert_eq!(late.ask(REQUEST).await.status, 200);
    assert!(open[1].ends_within(Duration::from_millis(10)).await, "the longest idle");
    for index in [0, 2, 3] {
        assert_eq!(open[index].ask(REQUEST).await.status, 200, "{index}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hoards_silent_connections_blocks_no_other_caller() {
    let scene = Scene::serving(ListenerLimits { connections: 32, ..ListenerLimits::default() });
    let mut asking = scene.connect().await;
    let mut hoard = Vec::new();
    for round in 0..200 {
        hoard.push(scene.connect().await);
        if round % 10 == 0 {
            assert_eq!(asking.ask(REQUEST).await.status, 200, "a caller that was there, round {round}");
            let mut new = scene.connect().await;
            assert_eq!(new.ask(REQUEST).await.status, 200, "a new caller, round {round}");
        }
    }
    assert!(scene.open() <= 33, "{}", scene.open());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(scene.open() <= 2, "silent connections end, {} are open", scene.open());
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_refused_and_counted_while_all_others_serve_requests() {
    let scene = Scene::serving(ListenerLimits { connections: 3, ..ListenerLimits::default() });
    let mut busy = Vec::new();
    for _ in 0..3 {
        let mut connection = scene.connect().await;
        connection.send(SLOW).await;
        busy.push(connection);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(scene.connect().await.ends_within(Duration::from_millis(10)).await);
    assert_eq!(scene.refused("connections"), 1);
    for connection in &mut busy {
        assert_eq!(connection.answer().await.unwrap().body, "slow", "those inside are left alone");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_drains_requests_and_closes_idle_connections() {
    let mut scene = Scene::serving(ListenerLimits { drain: Duration::from_secs(30), ..ListenerLimits::default() });
    let (mut busy, mut idle, mut silent) = (scene.connect().await, scene.connect().await, scene.connect().await);
    assert_eq!(idle.ask(REQUEST).await.status, 200);
    busy.send(SLOW).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    scene.stop.cancel();
    let stopped = Instant::now();
    assert!(idle.ends_within(Duration::from_millis(10)).await);
    assert!(silent.ends_within(Duration::from_millis(300)).await);
    assert!(!scene.path().exists(), "the socket's file is gone at once");
    let last = busy.answer().await.unwrap();
    assert_eq!((last.body.as_str(), last.header("connection")), ("slow", Some("close")));
    scene.servers.join_next().await.unwrap().unwrap();
    assert_eq!(stopped.elapsed().as_secs(), 19);
}

#[tokio::test(start_paused = true)]
async fn a_stop_serves_clients_that_connected_before_it() {
    let mut scene = Scene::new();
    let listener = Listener::bind(&scene.endpoint()).unwrap();
    let mut queued = Vec::new();
    for _ in 0..100 {
        let mut connection = scene.connect().await;
        connection.send(REQUEST).await;
        queued.push(connection);
    }
    scene.stop.cancel();
    scene.serve(listener, ListenerLimits::default());
    let mut late = scene.connect().await;
    for connection in &mut queued {
        assert_eq!(connection.answer().await.unwrap().status, 200);
        assert!(connection.ends_within(Duration::from_millis(100)).await);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let response = late.ask(REQUEST).await;
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    scene.servers.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_no_longer_than_the_drain_time() {
    let mut scene = Scene::serving(ListenerLimits { drain: Duration::from_secs(3), ..ListenerLimits::default() });
    let mut busy = scene.connect().await;
    busy.send(SLOW).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    scene.stop.cancel();
    let stopped = Instant::now();
    scene.servers.join_next().await.unwrap().unwrap();
    assert_eq!(stopped.elapsed().as_secs(), 3);
    assert!(busy.ends_within(Duration::from_millis(10)).await);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_too_large_or_malformed_is_refused_and_counted() {
    let scene = Scene::serving(ListenerLimits::default());
    let large = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: {}\r\n\r\n", "x".repeat(17 * 1024));
    let fits = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: {}\r\n\r\n", "x".repeat(15 * 1024));
    assert_eq!(scene.connect().await.ask(fits).await.status, 200);
    assert_eq!(scene.connect().await.ask(large).await.status, 431);
    assert_eq!(scene.connect().await.ask("GET\r\n\r\n").await.status, 400);
    assert_eq!(scene.connect().await.ask("GET / HTTP/1.1\r\nContent-Length: +5\r\n\r\n").await.status, 400);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((scene.refused("head_size"), scene.refused("malformed")), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_socket_is_handed_over_without_a_refused_caller() {
    let mut scene = Scene::new();
    let listener = Listener::bind(&scene.endpoint()).unwrap();
    let next = listener.try_clone().unwrap();
    let inode = std::fs::metadata(scene.path()).unwrap().ino();
    scene.serve(listener, ListenerLimits::default());
    let mut connection = scene.connect().await;
    assert_eq!(connection.ask(REQUEST).await.status, 200);
    std::mem::take(&mut scene.stop).cancel();
    scene.servers.join_next().await.unwrap().unwrap();
    let mut between = scene.connect().await;
    between.send(REQUEST).await;
    scene.serve(next, ListenerLimits::default());
    assert_eq!(between.answer().await.unwrap().status, 200);
    assert_eq!(std::fs::metadata(scene.path()).unwrap().ino(), inode, "the file was never away");
    scene.stop.cancel();
    scene.servers.join_next().await.unwrap().unwrap();
    assert!(!scene.path().exists());
}

/// vault#9806: a socket's mode, user and group are ignored without an error.
#[tokio::test]
async fn a_socket_has_its_mode_and_group_from_its_creation_whatever_it_replaces() {
    let scene = Scene::new();
    let path = scene.path();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a socket that its owner left behind");
    let group = rustix_group();
    let unix = UnixSocket { mode: 0o666, group: Some(group), ..socket(&path) };
    let listener = Listener::bind(&Endpoint::Unix(unix)).unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!((metadata.permissions().mode() & 0o7777, metadata.gid()), (0o666, group));
    let names: Vec<_> = std::fs::read_dir(scene.folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["api.sock"], "nothing else stays in the folder");
    drop(listener);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_socket_is_not_made_where_a_symlink_of_others_leads() {
    let scene = Scene::new();
    let (elsewhere, link) = (scene.folder.path().join("elsewhere"), scene.folder.path().join("link"));
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    std::os::unix::fs::lchown(&link, rustix::process::geteuid().is_root().then_some(65534), None).unwrap();
    let error = Listener::bind(&Endpoint::Unix(socket(&link.join("api.sock")))).unwrap_err();
    assert!(error.to_string().contains("leads through the symlink"), "{error}");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}

/// A program that may write in the folder puts a symlink in the place of the socket while it is made.
#[tokio::test]
async fn a_file_of_others_keeps_its_mode_whatever_takes_the_place_of_a_socket_that_is_made() {
    let scene = Scene::new();
    let (folder, victim) = (scene.folder.path().join("run"), scene.folder.path().join("victim"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(&victim, "precious").unwrap();
    std::fs::set_permissions(&victim, std::fs::Permissions::from_mode(0o600)).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let link = scene.folder.path().join("next");
                let _ = std::os::unix::fs::symlink(&victim, &link);
                for found in std::fs::read_dir(&folder).unwrap().flatten() {
                    let _ = std::fs::rename(&link, found.path());
                }
            }
        });
        let unix = UnixSocket { mode: 0o666, ..socket(&folder.join("api.sock")) };
        for _ in 0..3000 {
            let _ = Listener::bind(&Endpoint::Unix(unix.clone()));
            let _ = std::fs::remove_file(folder.join("api.sock"));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(std::fs::metadata(&victim).unwrap().permissions().mode() & 0o7777, 0o600);
}

/// The group of a new file: one that this process may set on a file.
fn rustix_group() -> u32 {
    tempfile::tempfile().unwrap().metadata().unwrap().gid()
}

#[tokio::test]
async fn a_path_that_is_not_a_socket_or_has_a_live_owner_is_not_replaced() {
    let scene = Scene::new();
    std::fs::write(scene.path(), "precious").unwrap();
    let error = Listener::bind(&scene.endpoint()).unwrap_err();
    assert_eq!(error.to_string(), "the path holds a file that is not a socket; remove it or choose another path");
    assert_eq!(std::fs::read_to_string(scene.path()).unwrap(), "precious");
    std::fs::remove_file(scene.path()).unwrap();

    let script = r#"use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 5) or die; print "up\n"; close STDOUT; sleep 60"#;
    let mut other = tokio::process::Command::new("perl")
        .args(["-e", script])
        .arg(scene.path())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut output = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut other.stdout.take().unwrap(), &mut output).await.unwrap();
    assert_eq!(output, "up\n");
    let inode = std::fs::metadata(scene.path()).unwrap().ino();
    let error = Listener::bind(&scene.endpoint()).unwrap_err();
    assert_eq!(error.to_string(), "another process listens on this socket");
    assert_eq!(std::fs::metadata(scene.path()).unwrap().ino(), inode);
    fill_the_queue(&scene.path()).await;
    let error = Listener::bind(&scene.endpoint()).unwrap_err();
    assert_eq!(error.to_string(), "another process listens on this socket");
    other.kill().await.unwrap();
    Listener::bind(&scene.endpoint()).unwrap();
}

/// Connects until the kernel's accept queue is full; closed connections stay in it.
async fn fill_the_queue(path: &Path) {
    while tokio::net::UnixStream::connect(path).await.is_ok() {}
}

#[tokio::test]
async fn a_socket_of_our_own_whose_queue_is_full_is_replaced_at_once() {
    let scene = Scene::new();
    let _busy = Listener::bind(&scene.endpoint()).unwrap();
    fill_the_queue(&scene.path()).await;
    Listener::bind(&scene.endpoint()).unwrap();
}

#[tokio::test]
async fn a_listener_removes_its_own_file_and_no_other() {
    let scene = Scene::new();
    let old = Listener::bind(&scene.endpoint()).unwrap();
    let new = Listener::bind(&scene.endpoint()).unwrap();
    drop(old);
    assert!(scene.path().exists(), "the one that took its place stays");
    std::fs::remove_file(scene.path()).unwrap();
    std::fs::write(scene.path(), "someone else's").unwrap();
    drop(new);
    assert!(scene.path().exists());
}

#[tokio::test]
async fn a_used_port_a_missing_folder_and_a_socket_that_was_not_passed_are_errors() {
    let taken = Listener::bind(&Endpoint::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
    let error = Listener::bind(&Endpoint::Tcp(taken.tcp_address().unwrap())).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    let scene = Scene::new();
    let error = Listener::bind(&Endpoint::Unix(socket(&scene.folder.path().join("none/api.sock")))).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    let error = Listener::bind(&Endpoint::Activated("api".to_owned())).unwrap_err();
    assert_eq!(error.to_string(), "the service manager passed no socket named api (passed: none)");
}

#[tokio::test]
async fn a_unix_peer_is_identified_by_user_and_process() {
    let mut scene = Scene::new();
    let listener = Listener::bind(&scene.endpoint()).unwrap();
    let (sender, mut peers) = tokio::sync::mpsc::unbounded_channel();
    let service = move |peer: Peer, _: Request<IncomingBody>| {
        sender.send(peer).unwrap();
        async { Response::new(Full::new(Bytes::new())) }
    };
    scene.servers.spawn(listener.serve(service, ListenerLimits::default(), scene.stop.clone()));
    assert_eq!(scene.connect().await.ask(REQUEST).await.status, 200);
    let (own, me) = (tempfile::tempfile().unwrap().metadata().unwrap(), std::process::id());
    let Peer::Unix { uid, pid, in_group, .. } = peers.recv().await.unwrap() else { panic!("a unix peer") };
    assert_eq!((uid, pid, in_group), (own.uid(), me, true));
}
