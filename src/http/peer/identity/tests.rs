use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;
use crate::peer::executable::WantedExecutable;
use crate::peer::reader::PeerKernel;
use crate::peer::support::KernelSupport;

#[tokio::test]
async fn a_tcp_peer_that_has_reset_its_connection_is_not_taken_for_the_next_one_at_its_address() {
    let reader = Arc::new(PeerReader::new(Arc::new(PeerKernel::new(KernelSupport::probe())), Vec::new()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let local = listener.local_addr().unwrap();
    let connect = async |from: SocketAddr| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(from).unwrap();
        socket.connect(local).await.unwrap()
    };
    let closed = connect(([127, 0, 0, 1], 0).into()).await;
    let from = closed.local_addr().unwrap();
    closed.set_zero_linger().unwrap();
    drop(closed);
    let _there = connect(from).await;
    let own = Some(rustix::process::geteuid().as_raw());
    for user in [None, own] {
        let (accepted, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, from);
        let identity = PeerIdentity::from_tcp(&reader, &accepted, peer, local);
        assert_eq!(identity.facts().uid, user);
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_that_a_process_executes_later_is_noticed_at_once_or_at_the_next_look() {
    let shell = std::fs::canonicalize("/bin/sh").unwrap();
    let wanted = vec![WantedExecutable { path: shell, digest: false }];
    let kernel = Arc::new(PeerKernel::new(KernelSupport::probe()));
    let reader = Arc::new(PeerReader::new(kernel, wanted));
    let mut child = Command::new("/bin/sh").args(["-c", "read line; exec cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let process = PinnedProcess::from_pid(child.id(), reader.support()).unwrap();
    let reading = reader.read(&process, reader.executable_of(&process)).unwrap();
    let (facts, _) = reader.facts(&PeerFacts::unknown(FactSource::Procfs), Some(&process), &reading);
    let identity = PeerIdentity::new(&reader, facts, Some((Arc::new(process), reading)));
    let wait = |millis| tokio::time::advance(Duration::from_millis(millis));
    assert_eq!(identity.compare(ExecutableAge::Current), PeerChange::Same);

    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"go\n").unwrap();
    let executable = format!("/proc/{}/exe", child.id());
    while !std::fs::read_link(&executable).unwrap().ends_with("cat") {
        std::thread::yield_now();
    }
    wait(99).await;
    assert_eq!(identity.compare(ExecutableAge::Recent), PeerChange::Same, "the last look is recent");
    let is_changed = |age| matches!(identity.compare(age), PeerChange::Changed(now) if now.executable.is_none());
    assert!(is_changed(ExecutableAge::Current));
    assert!(is_changed(ExecutableAge::Recent), "the look of another request counts");
    wait(100).await;
    assert!(is_changed(ExecutableAge::Recent), "it is looked at again");
    drop(stdin);
    child.wait().unwrap();
    assert_eq!(identity.compare(ExecutableAge::Recent), PeerChange::Ended);
}
