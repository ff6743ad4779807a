//! Real etcd server processes for tests.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use keyward_acl::store::etcd::EtcdOptions;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

/// One etcd server, killed on drop or at the end of the tests.
pub(crate) struct Server {
    name: String,
    host: String,
    folder: TempDir,
    arguments: Vec<String>,
    child: Option<Child>,
}

static NEXT: AtomicU32 = AtomicU32::new(1);

/// Returns a local address that no other test or run uses.
pub(crate) fn host() -> String {
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("127.{}.{}.{}", 1 + number % 250, 1 + (process >> 8) % 250, 1 + (process & 0xff) % 250)
}

impl Server {
    /// Starts a single server.
    pub(crate) fn start() -> Self {
        let mut server = Self::new("alone", host(), None);
        server.form(&[server.peer()]);
        server
    }

    /// Starts a single server with mutual TLS, from `ca.pem`, `server.pem` and `server.key`.
    #[cfg(feature = "dev")]
    pub(crate) fn start_with(host: String, certificates: &Path) -> Self {
        let mut server = Self::new("alone", host, Some(certificates));
        server.form(&[server.peer()]);
        server
    }

    /// Starts a cluster of three.
    pub(crate) fn cluster() -> [Self; 3] {
        let mut servers = ["one", "two", "three"].map(|name| Self::new(name, host(), None));
        let peers = servers.each_ref().map(Self::peer);
        for server in &mut servers {
            server.form(&peers);
        }
        servers
    }

    fn new(name: &str, host: String, certificates: Option<&Path>) -> Self {
        let mut named = tempfile::Builder::new();
        let named = named.prefix("keyward-etcd-");
        // In memory if possible: etcd's disk is not under test, and each write would wait for it.
        let folder = named.tempdir_in("/dev/shm").or_else(|_| named.tempdir()).unwrap();
        let scheme = if certificates.is_some() { "https" } else { "http" };
        let mut arguments = Vec::new();
        for (flag, value) in [
            ("--name", name.to_owned()),
            ("--data-dir", folder.path().join("etcd").display().to_string()),
            ("--listen-client-urls", format!("{scheme}://{host}:2379")),
            ("--advertise-client-urls", format!("{scheme}://{host}:2379")),
            ("--listen-peer-urls", format!("http://{host}:2380")),
            ("--initial-advertise-peer-urls", format!("http://{host}:2380")),
            // Ten times faster elections: the loss of a leader is tested, not its duration.
            ("--heartbeat-interval", "25".to_owned()),
            ("--election-timeout", "250".to_owned()),
            // Cheaper password hashing.
            ("--bcrypt-cost", "4".to_owned()),
            ("--logger", "zap".to_owned()),
            ("--log-level", "error".to_owned()),
        ] {
            arguments.extend([flag.to_owned(), value]);
        }
        if let Some(folder) = certificates {
            let files = [("--trusted-ca-file", "ca.pem"), ("--cert-file", "server.pem"), ("--key-file", "server.key")];
            for (flag, name) in files {
                arguments.extend([flag.to_owned(), folder.join(name).display().to_string()]);
            }
            arguments.push("--client-cert-auth".to_owned());
        }
        Self { name: name.to_owned(), host, folder, arguments, child: None }
    }

    fn peer(&self) -> String {
        format!("{}=http://{}:2380", self.name, self.host)
    }

    fn form(&mut self, peers: &[String]) {
        self.arguments.extend(["--initial-cluster".to_owned(), peers.join(",")]);
        self.run();
    }

    /// Starts or restarts the process.
    pub(crate) fn run(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "etcd"]).args(&self.arguments).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(spawn(command));
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Waits until it answers linearizable reads.
    pub(crate) async fn ready(&self) {
        loop {
            let client = etcd_client::Client::connect([self.endpoint("http").as_str()], None).await.unwrap();
            let response = tokio::time::timeout(Duration::from_millis(300), client.kv_client().get("x", None)).await;
            if matches!(response, Ok(Ok(_))) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops it (SIGSTOP) until [`Server::go_on`]; connections stay open.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        // Threads stop one after another; wait for all.
        let process = self.child.as_ref().map(Pid::from_child).expect("it runs");
        let (_, status) = waitpid(Some(process), WaitOptions::UNTRACED).unwrap().expect("it is waited for");
        assert!(status.stopped(), "{status:?}");
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let process = self.child.as_ref().map(Pid::from_child).expect("it runs");
        kill_process(process, signal).unwrap();
    }

    pub(crate) fn endpoint(&self, scheme: &str) -> url::Url {
        format!("{scheme}://{}:2379", self.host).parse().unwrap()
    }

    /// Returns options for a store of one test.
    pub(crate) fn options(&self) -> EtcdOptions {
        options([self.endpoint("http")])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Opens a store with a unique prefix.
pub(crate) fn options(endpoints: impl IntoIterator<Item = url::Url>) -> EtcdOptions {
    EtcdOptions {
        endpoints: endpoints.into_iter().collect(),
        prefix: format!("test-{}/", NEXT.fetch_add(1, Ordering::Relaxed)),
        ca_file: None,
        identity: None,
        login: None,
        connect_timeout: EtcdOptions::CONNECT_TIMEOUT,
        request_timeout: EtcdOptions::REQUEST_TIMEOUT,
    }
}

/// Shared server of tests. It ends with its last user, and its directory with it.
pub(crate) fn shared() -> Arc<Server> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Server::start());
        *shared = Arc::downgrade(&server);
        server
    })
}

/// Starts processes on a separate thread: the kernel kills them when their starting thread ends (`PR_SET_PDEATHSIG`),
/// and a test's own thread ends sooner.
fn spawn(command: Command) -> Child {
    type Order = (Command, mpsc::Sender<std::io::Result<Child>>);
    static STARTER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, taken) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, response) in taken {
                let _ = response.send(command.spawn());
            }
        });
        orders
    });
    let there = std::env::split_paths(&path()).any(|folder| folder.join("etcd").is_file());
    assert!(there, "etcd is not on PATH: ./tests/run brings it and starts the tests (or install Debian's etcd-server)");
    let (response, started) = mpsc::channel();
    starter.send((command, response)).unwrap();
    started.recv().unwrap().expect("setpriv starts etcd (Debian: util-linux)")
}

#[expect(clippy::disallowed_methods, reason = "where the machine keeps its programs")]
fn path() -> String {
    std::env::var("PATH").unwrap_or_default()
}
