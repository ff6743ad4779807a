//! The accept loop of the real binary: a socket that was passed to it, and descriptors that are used up.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::binary::{ask, eventually};

/// An agent that cannot log in, started by a shell command that ends in `exec "$@"`.
struct Agent {
    child: Child,
    log: PathBuf,
}

impl Agent {
    fn start(folder: &Path, listener: &str, shell: &str, stdin: Stdio) -> Self {
        let (config, log) = (folder.join("keyward.toml"), folder.join("log"));
        let text = format!(
            "[server.main]\nkind = \"vault\"\naddress = \"http://127.0.0.1:9\"\n\
             [session.main.cloud]\nrole = \"web\"\nresource = \"https://management.azure.com/\"\n\
             [listener.api]\naddress = \"{listener}\"\n"
        );
        std::fs::write(&config, text).unwrap();
        let child = Command::new("sh")
            .args(["-c", shell, "sh", env!("CARGO_BIN_EXE_keyward"), "run", "--config"])
            .arg(config)
            .env_clear()
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// User and system time so far, in hundredths of a second (`proc_pid_stat(5)`).
    fn cpu(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = text[text.rfind(')').unwrap() + 2..].split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    fn answers(&self, socket: &Path) {
        eventually(Duration::from_secs(30), || match ask(socket, "GET", "/livez") {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}\n{}", self.log())),
        });
    }

    fn stop(&mut self) -> Option<i32> {
        kill_process(Pid::from_raw(self.child.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(feature = "acl")]
#[test]
fn requests_that_arrived_while_the_process_did_not_run_are_served() {
    use std::net::TcpStream;
    let folder = tempfile::tempdir().unwrap();
    let (service, url) = crate::acl::server_process::serve(folder.path(), "127.0.0.1:0", &[]);
    let address = url.trim_start_matches("http://");
    let request = b"GET /v1/acl/token/self HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let responds = |stream: &mut TcpStream, case: &str| {
        let mut response = [0; 9];
        stream.read_exact(&mut response).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(&response, b"HTTP/1.1 ", "{case}");
    };
    // Nothing of the request, or a part of it, was read before: these have limits of two and five seconds.
    for (read_before, stopped) in [(0, 3), (9, 6)] {
        let mut streams: Vec<_> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
        for stream in &mut streams {
            stream.write_all(&request[..read_before]).unwrap();
        }
        // Connections are accepted in their order: those before this one are.
        let mut last = TcpStream::connect(address).unwrap();
        last.write_all(request).unwrap();
        responds(&mut last, "before the pause");
        service.signal(Signal::STOP);
        for stream in &mut streams {
            stream.write_all(&request[read_before..]).unwrap();
        }
        std::thread::sleep(Duration::from_secs(stopped));
        service.signal(Signal::CONT);
        for stream in &mut streams {
            responds(stream, &format!("{read_before} bytes were read before"));
        }
    }
    let (status, output) = service.stop();
    assert_eq!(status.code(), Some(0), "{output}");
}

#[test]
fn a_socket_that_the_service_manager_passed_is_served_and_left_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("passed.sock");
    let passed = OwnedFd::from(UnixListener::bind(&path).unwrap());
    // A caller that was there before the agent waits in the kernel's queue.
    let mut early = UnixStream::connect(&path).unwrap();
    early.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\r\n").unwrap();
    let shell = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=api exec \"$@\"";
    let mut agent = Agent::start(folder.path(), "systemd:api", shell, passed.into());
    let mut response = [0; 15];
    early.read_exact(&mut response).unwrap();
    assert_eq!(&response, b"HTTP/1.1 200 OK");
    agent.answers(&path);
    assert_eq!(agent.stop(), Some(0), "{}", agent.log());
    assert!(path.exists(), "it is the service manager's");
}

#[test]
fn a_passed_socket_beyond_loopback_is_refused_with_what_to_set() {
    let folder = tempfile::tempdir().unwrap();
    let shell = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=api exec \"$@\"";
    for address in ["0.0.0.0:0", "[::]:0"] {
        let socket = TcpListener::bind(address).unwrap();
        let port = socket.local_addr().unwrap().port();
        let mut agent = Agent::start(folder.path(), "systemd:api", shell, OwnedFd::from(socket).into());
        assert_ne!(agent.child.wait().unwrap().code(), Some(0));
        let expected = format!("which is not loopback; set ListenStream=127.0.0.1:{port} in its unit");
        assert!(agent.log().contains(&expected), "{}", agent.log());
    }
}

#[test]
fn a_passed_socket_with_an_abstract_name_is_refused_with_what_to_set() {
    let folder = tempfile::tempdir().unwrap();
    let shell = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=api exec \"$@\"";
    let address = SocketAddr::from_abstract_name(format!("keyward-passed-{}", std::process::id())).unwrap();
    let passed = OwnedFd::from(UnixListener::bind_addr(&address).unwrap());
    let mut agent = Agent::start(folder.path(), "systemd:api", shell, passed.into());
    assert_ne!(agent.child.wait().unwrap().code(), Some(0));
    assert!(agent.log().contains("has an abstract name, which no mode protects; set ListenStream="), "{}", agent.log());
}

#[test]
fn an_announced_socket_that_was_not_passed_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, expected) in [
        ("exec \"$@\"", "the service manager passed no socket named api (passed: none)"),
        (
            "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=other exec \"$@\"",
            "the service manager passed no socket named api (passed: other)",
        ),
    ] {
        let passed = OwnedFd::from(UnixListener::bind(folder.path().join(expected.len().to_string())).unwrap());
        let mut agent = Agent::start(folder.path(), "systemd:api", shell, passed.into());
        assert_ne!(agent.child.wait().unwrap().code(), Some(0));
        assert!(agent.log().contains(expected), "{}", agent.log());
    }
}

#[test]
fn t10_an_agent_without_descriptors_neither_spins_nor_floods_its_log_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("api.sock");
    let shell = "ulimit -n 64; exec \"$@\"";
    let address = format!("unix://{}", socket.display());
    let mut agent = Agent::start(folder.path(), &address, shell, Stdio::null());
    agent.answers(&socket);
    // Each waits for a token: none of them can be closed to make room.
    let request = "GET /agent/v1/token?wait=1m HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\r\n";
    let open: Vec<UnixStream> = (0..120)
        .map(|_| {
            let mut caller = UnixStream::connect(&socket).unwrap();
            caller.write_all(request.as_bytes()).unwrap();
            caller
        })
        .collect();
    eventually(Duration::from_secs(30), || {
        let log = agent.log();
        if log.contains("listener.accept.failed") { Ok(()) } else { Err(log) }
    });
    let (cpu, length) = (agent.cpu(), agent.log().len());
    // The span in which the processor's time is measured.
    std::thread::sleep(Duration::from_secs(3));
    assert!(agent.cpu() - cpu <= 15, "{} hundredths of a second in three", agent.cpu() - cpu);
    assert!(agent.log().len() - length < 4096, "{}", agent.log());
    drop(open);
    agent.answers(&socket);
    eventually(Duration::from_secs(30), || {
        let log = agent.log();
        let recovered = log.lines().find(|line| line.contains("event=\"listener.recovered\""));
        if recovered.is_some_and(|line| line.contains("listener=\"api\" lasted_seconds=")) { Ok(()) } else { Err(log) }
    });
    assert_eq!(agent.stop(), Some(0), "{}", agent.log());
}

#[test]
fn an_unread_log_blocks_no_caller() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("api.sock");
    let (mut log, stderr) = std::io::pipe().unwrap();
    // At this level each request is a line.
    let shell = "exec \"$@\" --log-level debug 2>&0 </dev/null";
    let address = format!("unix://{}", socket.display());
    let mut agent = Agent::start(folder.path(), &address, shell, OwnedFd::from(stderr).into());
    agent.answers(&socket);
    let reads = |times: usize| {
        for _ in 0..times {
            assert_eq!(ask(&socket, "GET", "/agent/v1/token").unwrap().0, 503);
        }
    };
    for _ in 0..2000 {
        assert_eq!(ask(&socket, "TRACE", "/agent/v1/token").unwrap().0, 405);
    }
    reads(3000);
    // A late reader gets the number of dropped lines.
    let text = Arc::new(Mutex::new(Vec::new()));
    let reader = std::thread::spawn({
        let text = Arc::clone(&text);
        move || {
            let mut buffer = vec![0; 65536];
            while let count @ 1.. = log.read(&mut buffer).unwrap() {
                text.lock().extend_from_slice(&buffer[..count]);
            }
        }
    });
    reads(1);
    // From then on the last lines fit.
    eventually(Duration::from_mins(1), || {
        let text = text.lock();
        let dropped = memchr::memmem::find(&text, b"log.lines.dropped");
        dropped.map(|_| ()).ok_or_else(|| format!("{} bytes", text.len()))
    });
    assert_eq!(agent.stop(), Some(0));
    reader.join().unwrap();
    let log_text = String::from_utf8(std::mem::take(&mut text.lock())).unwrap();
    assert!(log_text.contains("log.lines.dropped"), "{} bytes: {}", log_text.len(), &log_text[log_text.len() - 4000..]);
    assert!(log_text.trim_end().ends_with("event=\"agent.stopped\""), "{}", &log_text[log_text.len() - 4000..]);
    let refusals = log_text.lines().filter(|line| line.contains("local.refused")).count();
    assert!((1..10).contains(&refusals), "{refusals} lines of refusals");
}
