//! A local user without a key takes all the connections that it can get, of a listener and of an upstream: callers
//! of another user are served as before. Running a process as another user needs root.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use keyward_http::server::{Endpoint, IncomingBody, Listener, ListenerLimits, Peer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "acl")]
use crate::harness::binary::{Binary, eventually};
use crate::harness::not_run::is_root;
use crate::harness::vault::Proxied;

/// A process of the user `nobody`. It is killed when dropped.
struct Stranger(Child);

impl Stranger {
    /// Runs a Perl script, and waits until it prints that it is ready.
    async fn start(script: &str, address: SocketAddr, arguments: &[&str]) -> Self {
        let become_nobody = "use POSIX; use IO::Socket::INET; use IO::Handle; \
            POSIX::setgid(65534); POSIX::setuid(65534); $) = \"65534 65534\"; die if $< != 65534 || $> != 65534; \
            sub dial { IO::Socket::INET->new(PeerAddr => $ARGV[0], Timeout => 20) or die \"$!\" } STDOUT->autoflush(1);";
        let mut child = Command::new("perl")
            .args(["-e", &format!("{become_nobody} {script}"), &address.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("perl");
        let mut stdout = child.stdout.take().unwrap();
        let ready = tokio::task::spawn_blocking(move || {
            let mut line = [0; 6];
            std::io::Read::read_exact(&mut stdout, &mut line).map(|()| line)
        });
        let ready = tokio::time::timeout(Duration::from_mins(1), ready).await.expect("ready in time");
        assert_eq!(&ready.unwrap().unwrap(), b"ready\n");
        Self(child)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Holds more connections than the listener allows, each answered once, and opens five hundred silent ones a second.
const HOARD: &str = r#"
    my $request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"; my @held;
    sub hold { my $s = dial(); print $s $request; $s->flush; push @held, $s; }
    hold() for 1 .. $ARGV[1];
    print "ready\n";
    my @silent;
    while (1) {
        my $s = IO::Socket::INET->new(PeerAddr => $ARGV[0], Timeout => 5);
        push @silent, $s if $s; shift @silent if @silent > 200;
        select undef, undef, undef, 0.002;
    }"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t09_a_user_that_hoards_connections_of_a_tcp_listener_costs_another_user_no_request() {
    if !is_root() {
        return;
    }
    let listener = Listener::bind(&Endpoint::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
    let address = listener.tcp_address().unwrap();
    let response = |_: Peer, _: Request<IncomingBody>| async { Response::new(Full::new(Bytes::from_static(b"quick"))) };
    let limits = ListenerLimits { connections: 256, ..ListenerLimits::default() };
    let mut servers = tokio::task::JoinSet::new();
    servers.spawn(listener.serve(
        move |peer, request| Box::pin(response(peer, request)),
        limits,
        CancellationToken::new(),
    ));
    let stranger = Stranger::start(HOARD, address, &["280"]).await;

    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..10 {
        callers.spawn(async move {
            let mut failed = Vec::new();
            for _ in 0..100 {
                if let Err(error) = ask_late(address).await {
                    failed.push(error.to_string());
                }
            }
            failed
        });
    }
    let failed: Vec<String> = callers.join_all().await.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{} of 1000 requests failed, the first: {}", failed.len(), failed[0]);
    drop(stranger);
}

/// Sends requests on a separate connection that is idle for a moment before each.
async fn ask_late(address: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        let (mut response, mut piece) = (Vec::new(), [0; 512]);
        while !response.ends_with(b"quick") {
            match stream.read(&mut piece).await? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => response.extend_from_slice(&piece[..count]),
            }
        }
    }
    Ok(())
}

/// Sends bodies that never end, a byte a second each.
const DRIP: &str = r#"
    my $head = "POST /v1/secret/data/a HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nTransfer-Encoding: chunked\r\n\r\n";
    my @held; $SIG{PIPE} = "IGNORE";
    for (1 .. $ARGV[1]) { my $s = dial(); print $s $head . "1\r\nx\r\n"; $s->flush; push @held, $s; }
    select undef, undef, undef, 1;
    print "ready\n";
    while (1) { sleep 1; for my $s (@held) { print $s "1\r\nx\r\n"; $s->flush; } }"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_whose_bodies_never_end_leaves_others_their_part_of_the_connections_to_the_server() {
    if !is_root() {
        return;
    }
    let proxied = Proxied::with(|options, _| options.connections = 32);
    let stranger = Stranger::start(DRIP, proxied.address, &["40"]).await;
    for round in 0..20 {
        let response = tokio::time::timeout(Duration::from_secs(30), proxied.get("secret/data/b")).await;
        let response = response.expect("an answer in time");
        assert_eq!(response.status, 200, "round {round}: {response:?}");
    }
    drop(stranger);
}

/// Runs a program that may open no netlink socket (seccomp(2)), as under a unit without `AF_NETLINK`.
#[cfg(feature = "acl")]
const WITHOUT_NETLINK: &str = r#"
    use Config; my ($prctl, $socket) = $Config{archname} =~ /^aarch64/ ? (167, 198) : (157, 41);
    my @rules = ([0x20, 0, 0, 0], [0x15, 0, 3, $socket], [0x20, 0, 0, 16], [0x15, 0, 1, 16], [0x06, 0, 0, 0x50061],
        [0x06, 0, 0, 0x7fff0000]);
    my $filter = join "", map { pack "SCCL", @$_ } @rules;
    my $program = pack "Sx6P", scalar @rules, $filter;
    syscall($prctl, 38, 1, 0, 0, 0) == 0 && syscall($prctl, 22, 2, $program) == 0 or die "seccomp: $!";
    exec @ARGV;"#;

/// Holds so many connections, each answered once, and opens no more.
#[cfg(feature = "acl")]
const HOLD: &str = r#"
    my $request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"; my @held;
    for (1 .. $ARGV[1]) { my $s = dial(); print $s $request; $s->flush; push @held, $s; }
    print "ready\n";
    sleep 600;"#;

#[cfg(feature = "acl")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_not_ask_for_users_warns_once_and_groups_callers_by_address() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("acl").display().to_string();
    let setup = format!("exec perl -e '{WITHOUT_NETLINK}' \"$0\" \"$@\"");
    let args = ["acl", "serve", "--dir", &dir, "--listen", "127.0.0.1:0"];
    let service = Binary::start_after(&setup, &args, &[], folder.path());
    let address: SocketAddr = tokio::task::block_in_place(|| {
        eventually(Duration::from_secs(30), || {
            let output = service.output();
            let rest_of_output = output.split_once("keyward acl bootstrap --address http://");
            rest_of_output.and_then(|(_, rest)| rest.split_once(' ')?.0.parse().ok()).ok_or(output)
        })
    });
    // More than the listener has: users are looked up above half of them, and groups decide at the end.
    let stranger = Stranger::start(HOLD, address, &["1100"]).await;
    for _ in 0..20 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut response = [0; 9];
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        stream.read_exact(&mut response).await.expect("callers of one address make room for each other");
        assert_eq!(&response, b"HTTP/1.1 ");
    }
    drop(stranger);
    let (status, output) = tokio::task::block_in_place(|| service.stop());
    assert_eq!(status.code(), Some(0), "{output}");
    assert_eq!(output.matches("event=\"listener.callers.unknown\"").count(), 1, "{output}");
}
