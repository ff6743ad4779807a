//! Tries forbidden operations in a thread before and inside the sandbox. Threads that it starts inherit the sandbox.

use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Child, Command};

use rustix::fs::{FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use super::*;

/// Targets outside the sandbox.
struct Outside {
    folder: tempfile::TempDir,
    port: TcpListener,
    free_port: u16,
    child: Child,
    abstract_name: String,
    _abstract_socket: UnixListener,
}

impl Outside {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["sinks", "other", "config"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("config/keyward.toml"), "x").unwrap();
        fs::write(folder.path().join("other/secret"), "x").unwrap();
        let abstract_name = format!("keyward-sandbox-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        // Released before it is bound again by the act, which fails.
        let free_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self {
            folder,
            port: TcpListener::bind("127.0.0.1:0").unwrap(),
            free_port,
            child: Command::new("sleep").arg("600").spawn().unwrap(),
            abstract_name,
            _abstract_socket: UnixListener::bind_addr(&address).unwrap(),
        }
    }

    fn plan(&self) -> SandboxPlan {
        let path = |name: &str| self.folder.path().join(name);
        SandboxPlan {
            read: [path("config/keyward.toml"), "/proc".into()].into(),
            write: [path("sinks")].into(),
            ..SandboxPlan::default()
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    /// Tries each act; returns its name, and its error.
    fn try_acts(&self) -> Vec<(&'static str, Option<io::Error>)> {
        use rustix::thread::{Uid, set_thread_uid};
        let port = self.port.local_addr().unwrap();
        let abstract_socket = SocketAddr::from_abstract_name(&self.abstract_name).unwrap();
        let device = self.path("sinks/device");
        let acts: [(&str, io::Result<()>); 12] = [
            ("read /etc/shadow", File::open("/etc/shadow").map(drop)),
            ("write /etc", fs::write("/etc/keyward-sandbox-test", "x")),
            ("write outside the sinks", fs::write(self.path("other/new"), "x")),
            ("remove a file of another folder", fs::remove_file(self.path("other/secret"))),
            ("execute a program", Command::new("/bin/true").spawn().and_then(|mut child| child.wait()).map(drop)),
            ("listen on another port", TcpListener::bind(("127.0.0.1", self.free_port)).map(drop)),
            ("connect to another port", TcpStream::connect(port).map(drop)),
            ("signal another process", kill_process(self.pid(), Signal::CONT).map_err(Into::into)),
            ("connect to an abstract socket", UnixStream::connect_addr(&abstract_socket).map(drop)),
            ("read the memory of another process", File::open(format!("/proc/{}/mem", self.child.id())).map(drop)),
            (
                "create a device",
                mknodat(CWD, &device, FileType::CharacterDevice, Mode::RUSR, rustix::fs::makedev(1, 3))
                    .map_err(Into::into),
            ),
            ("change the root folder", rustix::process::chroot("/").map_err(Into::into)),
        ];
        let mut tried: Vec<_> = acts.into_iter().map(|(act, result)| (act, result.err())).collect();
        // Last: it changes this thread's user where it succeeds.
        let user = set_thread_uid(Uid::from_raw(12345)).map_err(io::Error::from);
        tried.push(("become another user", user.err()));
        tried
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs it on a separate thread: the sandbox is only for that thread.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// Writes to standard error that a test was not run: the test runner hides the output of passing tests.
fn not_run(why: &str) {
    let said = format!("not run: forbidden acts in the sandbox: {why}\n");
    std::io::Write::write_all(&mut std::io::stderr(), said.as_bytes()).unwrap();
}

#[test]
fn forbidden_acts_fail_in_the_sandbox_and_in_threads_that_start_there() {
    if !rustix::process::geteuid().is_root() {
        return not_run("without root the kernel denies most of the acts anyway");
    }
    // Its end is for this thread: the other one becomes another user, who may not kill the child.
    let outside = Outside::new();
    let tried = on_a_thread(|| outside.try_acts());
    let _ = fs::remove_file("/etc/keyward-sandbox-test");
    for (act, error) in tried {
        assert!(error.is_none(), "without the sandbox root can {act}: {error:?}");
    }
    drop(outside);
    let outside = Outside::new();
    on_a_thread(|| {
        let (allowed, report) = apply(&outside.plan(), SandboxMode::BestEffort, false).unwrap();
        if report.landlock_abi < 6 {
            return not_run(&format!("Landlock ABI {} is too old", report.landlock_abi));
        }
        // The threads of the test.
        assert_eq!(report.missing, ["the process has other threads, which keep their rights"]);
        assert_eq!((allowed.capabilities, allowed.spawner), (Some(CapabilitySet::empty()), false));
        for tried in [on_a_thread(|| outside.try_acts()), outside.try_acts()] {
            for (act, error) in tried {
                let error = error.unwrap_or_else(|| panic!("it could {act}"));
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{act}: {error}");
            }
        }
        // The plan's own accesses work.
        assert_eq!(fs::read(outside.path("config/keyward.toml")).unwrap(), b"x");
        fs::write(outside.path("sinks/new"), "x").unwrap();
        fs::rename(outside.path("sinks/new"), outside.path("sinks/token")).unwrap();
        fs::rename(outside.path("sinks/token"), outside.path("other/token")).unwrap_err();
        let missing =
            allowed.missing_here(&SandboxPlan { write: [outside.path("other/a/b")].into(), ..outside.plan() });
        assert_eq!(missing, [format!("writes in {}", outside.path("other/a/b").display())]);
    });
}

#[test]
fn a_complete_sandbox_is_needed_to_enforce_and_none_is_applied_when_it_is_off() {
    on_a_thread(|| {
        let (allowed, report) = apply(&SandboxPlan::default(), SandboxMode::Off, false).unwrap();
        assert!(allowed.spawner && allowed.files.is_none() && report.parts.is_empty());
        fs::read_dir("/").unwrap();
    });
    on_a_thread(|| {
        // The threads of the test.
        let error = apply(&SandboxPlan::default(), SandboxMode::Enforce, false).unwrap_err().to_string();
        let expected = "agent.sandbox is \"enforce\", and the sandbox is incomplete: the process has other threads";
        assert!(error.starts_with(expected), "{error}");
    });
}
