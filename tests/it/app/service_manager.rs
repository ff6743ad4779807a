//! Notifications of the real binary to a service manager, and the effect of signals.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use keyward_emulators::secrets::Operation;
use rustix::process::Signal;

use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually, wait_until_token_saved};
use crate::harness::world::{World, run_in_network_namespace};

/// The other end of `NOTIFY_SOCKET` (`sd_notify(3)`).
struct ServiceManager {
    socket: UnixDatagram,
    path: PathBuf,
    _folder: tempfile::TempDir,
    messages: Vec<String>,
}

impl ServiceManager {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        Self { socket, path, _folder: folder, messages: Vec::new() }
    }

    fn variable(&self) -> (&str, &str) {
        ("NOTIFY_SOCKET", self.path.to_str().unwrap())
    }

    /// Waits for this notification.
    #[track_caller]
    fn expect_message(&mut self, text: &str) {
        let from = self.messages.len();
        eventually(Duration::from_secs(30), || {
            self.listen(Duration::from_millis(200));
            let messages = &self.messages[from..];
            if messages.iter().any(|message| message.contains(text)) {
                Ok(())
            } else {
                Err(format!("{text}? {messages:?}"))
            }
        });
    }

    /// Returns the notifications of this period.
    fn listen(&mut self, span: Duration) -> &[String] {
        let (from, end) = (self.messages.len(), now() + span);
        let mut bytes = [0; 4096];
        loop {
            let left = end.saturating_duration_since(now());
            if left.is_zero() {
                return &self.messages[from..];
            }
            self.socket.set_read_timeout(Some(left)).unwrap();
            if let Ok(length) = self.socket.recv(&mut bytes) {
                self.messages.push(String::from_utf8(bytes[..length].to_vec()).unwrap());
            }
        }
    }

    fn count(&self, text: &str) -> usize {
        self.messages.iter().flat_map(|message| message.lines()).filter(|line| *line == text).count()
    }
}

#[expect(clippy::disallowed_methods, reason = "a process is waited for, in real time")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn ready_is_reported_once_every_output_has_its_token_and_watchdog_messages_before() {
    run_in_network_namespace(|| {
        let world = World::start();
        world.secrets.faults().set_unresponsive(true);
        let mut manager = ServiceManager::start();
        let agent = Agent::start(&world, &[manager.variable(), ("WATCHDOG_USEC", "400000")], |text| text);
        manager.expect_message("EXTEND_TIMEOUT_USEC=");
        manager.expect_message("STATUS=waiting for session/web: ");
        agent.binary.signal(Signal::HUP);
        agent.logs("config.reload.ok");
        manager.listen(Duration::from_secs(1));
        assert_eq!(manager.count("READY=1"), 0, "a reload does not make it ready: {:?}", manager.messages);
        assert!(manager.count("WATCHDOG=1") >= 3, "{:?}", manager.messages);

        world.secrets.faults().set_unresponsive(false);
        manager.expect_message("STATUS=ready");
        assert_eq!(manager.count("READY=1"), 1, "{:?}", manager.messages);
        agent.sink("token");
        let messages = manager.listen(Duration::from_millis(1500));
        let pings = messages.iter().filter(|message| message.contains("WATCHDOG=1")).count();
        assert!((4..40).contains(&pings), "{messages:?}");

        let before = manager.messages.len();
        agent.binary.signal(Signal::HUP);
        manager.expect_message("READY=1");
        let reload: Vec<&String> = manager.messages[before..]
            .iter()
            .filter(|message| message.contains("RELOADING=1") || message.contains("READY=1"))
            .collect();
        assert_eq!(reload.len(), 2, "{reload:?}");
        assert!(reload[0].contains("RELOADING=1\nMONOTONIC_USEC="), "{reload:?}");
        assert_eq!(reload[1].trim(), "READY=1");

        agent.binary.signal(Signal::TERM);
        manager.expect_message("STOPPING=1");
        manager.listen(Duration::from_millis(500));
        assert_eq!(manager.count("READY=1"), 2);
    });
}

#[test]
fn a_stop_asks_the_service_manager_for_the_time_that_the_configuration_allows() {
    run_in_network_namespace(|| {
        let world = World::start();
        let child = "[process]\ncommand = [\"sleep\", \"1000\"]\nstop_timeout = \"7s\"\n";
        for (more, limit) in [("", 36), (child, 53)] {
            let mut manager = ServiceManager::start();
            let agent = Agent::start(&world, &[manager.variable()], |text| {
                text.replacen("[agent]\n", "[agent]\nstop_grace = \"3s\"\n", 1) + more
            });
            manager.expect_message("READY=1");
            agent.binary.signal(Signal::TERM);
            manager.expect_message(&format!("EXTEND_TIMEOUT_USEC={limit}000000\n"));
        }
    });
}

#[test]
fn a_process_stopped_before_it_is_ready_never_reports_ready() {
    run_in_network_namespace(|| {
        let world = World::start();
        world.secrets.faults().set_unresponsive(true);
        let mut manager = ServiceManager::start();
        let agent = Agent::start(&world, &[manager.variable()], |text| text);
        manager.expect_message("EXTEND_TIMEOUT_USEC=");
        let (status, output) = agent.binary.stop();
        assert_eq!(status.code(), Some(0), "{output}");
        manager.listen(Duration::from_millis(200));
        assert_eq!((manager.count("STOPPING=1"), manager.count("READY=1")), (1, 0), "{:?}", manager.messages);
        assert!(!output.contains("agent.ready"), "{output}");
    });
}

#[test]
fn ready_can_mean_only_listeners_or_only_tokens() {
    run_in_network_namespace(|| {
        let world = World::start();
        world.secrets.faults().set_unresponsive(true);
        let mut manager = ServiceManager::start();
        let agent = Agent::start(&world, &[manager.variable()], |text| text + "ready = \"listener\"\n");
        manager.expect_message("READY=1");
        assert_eq!(ask(&agent.socket(), "GET", "/readyz").unwrap().0, 503);
        drop(agent);

        // Another agent has the sink.
        for (ready, expected) in [("token", 1), ("outputs", 0)] {
            world.secrets.faults().set_unresponsive(true);
            let mut manager = ServiceManager::start();
            let agent = Agent::start(&world, &[manager.variable()], |text| text + &format!("ready = \"{ready}\"\n"));
            let lock = std::fs::File::create(agent.path(".token.lock")).unwrap();
            lock.try_lock().unwrap();
            manager.expect_message("STATUS=waiting for session/web");
            world.secrets.faults().set_unresponsive(false);
            manager.expect_message("another agent writes");
            manager.listen(Duration::from_millis(300));
            assert_eq!(manager.count("READY=1"), expected, "{ready}: {:?}", manager.messages);
            drop(lock);
            manager.expect_message("STATUS=ready");
            assert_eq!(manager.count("READY=1"), 1, "{ready}: {:?}", manager.messages);
        }
    });
}

#[test]
fn a_stop_answers_waiting_calls_and_exits_with_0() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text);
        let token = agent.get("/agent/v1/token");
        let mut waiting = UnixStream::connect(agent.socket()).unwrap();
        let after = token["generation"].as_str().unwrap();
        write!(
            waiting,
            "GET /agent/v1/token?wait=30s&after={after} HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\r\n"
        )
        .unwrap();
        eventually(Duration::from_secs(30), || match agent.metric("keyward_local_connections{listener=\"local\"}") {
            // The waiting process, and the one that triggers the stop.
            2 => Ok(()),
            other => Err(other.to_string()),
        });
        let start = now();
        let (status, output) = agent.binary.stop();
        assert_eq!(status.code(), Some(0), "{output}");
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        let mut response = String::new();
        waiting.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        assert!(response.contains(token["token"].as_str().unwrap()), "the token is still good");
        assert_eq!(world.secrets.faults().counts().get(Operation::Revoke), 0, "nobody asked for that");
    });
}

#[test]
fn a_stop_is_quick_despite_a_hanging_server_and_idle_connections() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text);
        let _silent = UnixStream::connect(agent.socket()).unwrap();
        let mut idle = UnixStream::connect(agent.socket()).unwrap();
        write!(idle, "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\r\n").unwrap();
        idle.read_exact(&mut [0; 15]).unwrap();
        // The caller waits for a look at a server that does not answer.
        world.secrets.faults().set_unresponsive(true);
        let mut checking = UnixStream::connect(agent.socket()).unwrap();
        let check =
            "POST /agent/v1/check HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nContent-Length: 0\r\n\r\n";
        checking.write_all(check.as_bytes()).unwrap();
        eventually(Duration::from_secs(30), || match world.secrets.faults().counts().get(Operation::Lookup) {
            0 => Err("the server was not asked".to_owned()),
            _ => Ok(()),
        });
        stops_soon(agent);
        world.secrets.faults().set_unresponsive(false);

        // The metadata service accepts and does not answer.
        world.cloud.faults().delay(Duration::from_mins(1));
        let agent = Agent::start(&world, &[], |text| text);
        agent.logs("identity.source.chosen");
        stops_soon(agent);
    });
}

#[track_caller]
fn stops_soon(agent: Agent) {
    let start = now();
    let (status, output) = agent.binary.stop();
    assert_eq!(status.code(), Some(0), "{output}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}: {output}", start.elapsed());
}

#[expect(clippy::needless_pass_by_value, reason = "an edit of a text takes and gives one")]
fn revoking(text: String) -> String {
    text.replace("mount = \"azure\"", "mount = \"azure\"\nrevoke_on_exit = true")
}

/// vault#6492, vault-k8s#593: each stop leaves a live token behind.
#[test]
fn a_token_is_revoked_at_a_stop_after_its_sink_is_emptied() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], revoking);
        agent.sink("token");
        let sink = agent.path("token");
        world.secrets.faults().set_unresponsive(true);
        let start = now();
        agent.binary.signal(Signal::TERM);
        eventually(Duration::from_secs(30), || match world.secrets.faults().counts().get(Operation::Revoke) {
            1 => Ok(()),
            _ => Err("the server was not asked to revoke".to_owned()),
        });
        assert_eq!(std::fs::read_to_string(&sink).unwrap(), "", "the sink has let it go before");
        let mut binary = agent.binary;
        let status = binary.wait(Duration::from_secs(30));
        assert_eq!(status.code(), Some(0), "{}", binary.output());
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(binary.output().contains("token.revoke.failed"), "{}", binary.output());
        world.secrets.faults().set_unresponsive(false);

        let before = world.secrets.faults().counts().get(Operation::Revoke);
        let agent = Agent::ready(&world, &[], revoking);
        let tokens = world.secrets.faults().tokens();
        let (status, output) = agent.binary.stop();
        assert_eq!(status.code(), Some(0), "{output}");
        assert_eq!(world.secrets.faults().counts().get(Operation::Revoke), before + 1);
        assert_eq!(world.secrets.faults().tokens(), tokens - 1);
        assert!(output.contains("token.revoke.ok"), "{output}");
    });
}

#[test]
fn a_second_stop_signal_ends_the_process_at_once() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], revoking);
        world.secrets.faults().set_unresponsive(true);
        agent.binary.signal(Signal::TERM);
        agent.logs("agent.stopping");
        // A reload during the stop is ignored and delays nothing.
        for _ in 0..4 {
            agent.binary.signal(Signal::HUP);
            std::thread::sleep(Duration::from_millis(50));
        }
        // Those that come with the first one are the same stop; one that comes later is a second.
        agent.binary.signal(Signal::TERM);
        agent.binary.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(1500));
        let start = now();
        agent.binary.signal(Signal::TERM);
        let mut binary = agent.binary;
        let status = binary.wait(Duration::from_secs(30));
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}: {}", start.elapsed(), binary.output());
        assert_eq!(status.code(), Some(1));
        assert!(binary.output().contains("a second signal stopped keyward immediately"), "{}", binary.output());
    });
}

#[test]
fn two_stop_signals_at_once_count_as_one() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], revoking);
        // Until the token is revoked it is stopping.
        world.secrets.faults().set_unresponsive(true);
        agent.binary.signal(Signal::TERM);
        agent.logs("agent.stopping");
        agent.binary.signal(Signal::TERM);
        // Both signals have come, at once by the program's measure, which is a second.
        std::thread::sleep(Duration::from_millis(200));
        world.secrets.faults().set_unresponsive(false);
        let mut binary = agent.binary;
        let status = binary.wait(Duration::from_secs(30));
        assert_eq!(status.code(), Some(0), "{}", binary.output());
        assert!(binary.output().contains("agent.stopped"), "{}", binary.output());
    });
}

/// vault#26265, vault#16148: a token outlives a restart on only one platform.
#[test]
fn a_killed_agent_restores_its_sealed_token() {
    run_in_network_namespace(|| {
        let world = World::start();
        let mut agent = Agent::ready(&world, &[], |text| {
            let key = "mount = \"azure\"\nseal_key_file = \"FOLDER/seal.key\"";
            text.replace("mount = \"azure\"", key)
        });
        let token = agent.sink("token");
        wait_until_token_saved(&agent.path("state/web.state"));
        agent.binary.signal(Signal::KILL);
        agent.binary.wait(Duration::from_secs(5));
        assert!(agent.socket().exists(), "nobody removed it");
        agent.restart(&[]);
        eventually(Duration::from_secs(30), || match ask(&agent.socket(), "GET", "/readyz") {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}: {}", agent.binary.output())),
        });
        assert_eq!(agent.get("/agent/v1/token")["token"], token);
        assert_eq!(agent.sink("token"), token);
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 1);
        agent.logs("state.resumed");
    });
}
