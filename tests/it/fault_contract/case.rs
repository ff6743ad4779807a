//! One case: an agent in a separate network, a fault, and the promises that always hold.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyward_emulators::secrets::{LoginMethod, Operation, Role, Secrets, SecretsOptions};
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use tokio::runtime::Runtime;

use super::record::{Invariant, Record};
use super::watcher::{Expectation, Watched, Watcher};
use crate::harness::binary::{Binary, ask, eventually};
use crate::harness::chaos::{ChaosProxy, Fault};
use crate::harness::world::{World, run_in_network_namespace_of, test_of};

/// The signed token that the agent logs in with.
pub(super) const JWT: &str = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJjYW5hcnkifQ.c2ln";
pub(super) const SEAL_KEY: &str = "0123456789abcdef0123456789abcdef";

/// Address of the agent's server, in the case's own network.
pub(super) const SERVER: &str = "127.0.0.1:8200";

/// Runs the case with this id in a separate network, checks the promises, and writes its file.
pub(super) fn case<T: FnOnce(&mut Case)>(id: &'static str, test: T) {
    run_in_network_namespace_of(test_of::<T>(), || {
        let mut case = Case::new();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            test(&mut case);
            case.finish();
        }));
        let error = outcome.as_ref().err().map(|error| {
            let text = error.downcast_ref::<String>().map(String::as_str);
            text.or_else(|| error.downcast_ref::<&str>().copied()).unwrap_or("the test failed").to_owned()
        });
        case.record.write(id, error.as_deref());
        if let Err(error) = outcome {
            resume_unwind(error);
        }
        let violations = case.record.violations();
        assert!(violations.is_empty(), "{violations:#?}\n{}", case.output());
    });
}

/// Settings of a case's server and agent.
pub(super) struct Setup<'a> {
    pub(super) role: Role,
    /// TLS of the server; `None` for plain HTTP.
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
    /// URL of the server in the agent's configuration.
    pub(super) address: String,
    /// More keys of `[server.main]`.
    pub(super) server: &'a str,
    /// More keys of `[session.web]`.
    pub(super) session: &'a str,
    /// More keys of `[sink.token]`.
    pub(super) sink: &'a str,
    /// Folder of `[sink.token]`.
    pub(super) sink_folder: &'a str,
    /// More sections.
    pub(super) sections: &'a str,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        let role = Role { ttl: LEASE, max_ttl: None, policies: vec!["web".to_owned()], ..Role::default() };
        let address = format!("http://{SERVER}");
        Self { role, tls: None, address, server: "", session: "", sink: "", sink_folder: "FOLDER", sections: "" }
    }
}

/// Lease of a token: short, and above the 5 s below which a lease is an error.
pub(super) const LEASE: Duration = Duration::from_secs(6);

/// Most upstream calls of a session in a case.
const CALLS: u64 = 12;

/// Most lines in the log from the fault on.
const LINES: usize = 20;

/// Maximum use of a core since the fault, in percent, of a debug build that gets ten requests a second.
const CPU: u64 = 10;

pub(super) struct Case {
    pub(super) network: Option<ChaosProxy>,
    /// The emulated machine of Azure, in the cases that need one.
    pub(super) world: Option<World>,
    pub(super) secrets: Option<Secrets>,
    pub(super) agent: Option<Binary>,
    pub(super) record: Record,
    pub(super) sink: PathBuf,
    pub(super) calls: u64,
    pub(super) lines: usize,
    /// Most use of a core from the fault on, in percent.
    pub(super) cpu: u64,
    /// Most KiB of memory beyond those of the ready agent.
    pub(super) memory: u64,
    pub(super) watcher: Option<Watcher>,
    pub(super) injected: Option<Mark>,
    cleared: Option<Instant>,
    /// Descriptors and KiB of memory once the agent was ready.
    pub(super) baseline: Option<(usize, u64)>,
    pub(super) folder: tempfile::TempDir,
    tasks: TaskGroup,
    pub(super) runtime: Runtime,
}

/// Figures at the time of the fault.
pub(super) struct Mark {
    pub(super) at: Instant,
    pub(super) cpu: u64,
    pub(super) lines: usize,
}

impl Case {
    fn new() -> Self {
        Self {
            network: None,
            world: None,
            secrets: None,
            agent: None,
            record: Record::default(),
            sink: PathBuf::new(),
            calls: CALLS,
            lines: LINES,
            cpu: CPU,
            memory: 4 << 10,
            watcher: None,
            injected: None,
            cleared: None,
            baseline: None,
            folder: tempfile::tempdir().unwrap(),
            tasks: TaskGroup::default(),
            runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap(),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn secrets(&self) -> &Secrets {
        self.secrets.as_ref().unwrap()
    }

    pub(super) fn agent(&self) -> &Binary {
        self.agent.as_ref().unwrap()
    }

    pub(super) fn network(&self) -> &ChaosProxy {
        self.network.as_ref().unwrap()
    }

    pub(super) fn output(&self) -> String {
        std::fs::read_to_string(self.path("output.txt")).unwrap_or_default()
    }

    /// Starts the server, with the proxy in front of it, and writes the agent's configuration.
    pub(super) fn prepare(&mut self, setup: &Setup<'_>) {
        let roles = BTreeMap::from([("ci".to_owned(), setup.role.clone())]);
        let method = LoginMethod::jwt(vec![SecretString::from(JWT)], roles);
        let options = SecretsOptions {
            tls: setup.tls.clone(),
            methods: BTreeMap::from([("jwt".to_owned(), method)]),
            ..SecretsOptions::for_anyone(Clock::System, "dev", Role::default())
        };
        let entered = self.runtime.enter();
        let secrets = Secrets::start(options, &mut self.tasks).unwrap();
        drop(entered);
        let upstream = secrets.url().split_once("://").unwrap().1.parse().unwrap();
        self.network = Some(ChaosProxy::start(self.runtime.handle(), SERVER.parse().unwrap(), upstream));
        self.secrets = Some(secrets);
        self.put("jwt", JWT);
        self.put("seal.key", SEAL_KEY);
        let text = format!(
            "[agent]\nstate_dir = \"FOLDER\"\n\
             [server.main]\nkind = \"vault\"\naddress = \"{}\"\n{}\n\
             [session.web]\nseal_key_file = \"FOLDER/seal.key\"\n{}\n\
             [session.web.jwt]\nrole = \"ci\"\nfile = \"FOLDER/jwt\"\n[sink.token]\npath = \"{}/token\"\n\
             mode = \"0640\"\n{}\n[listener.local]\naddress = \"unix://FOLDER/api.sock\"\n{}\n",
            setup.address, setup.server, setup.session, setup.sink_folder, setup.sink, setup.sections
        );
        self.put("keyward.toml", &text);
        self.sink = setup.sink_folder.replace("FOLDER", &self.path("").display().to_string()).into();
        self.sink.push("token");
    }

    /// Writes a file of the agent's folder; `FOLDER` in it is the folder.
    pub(super) fn put(&self, name: &str, text: &str) {
        let text = text.replace("FOLDER", &self.folder.path().display().to_string());
        std::fs::write(self.path(name), text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(self.path(name), mode).unwrap();
    }

    /// Starts the agent and the watch.
    pub(super) fn start(&mut self) {
        let config = self.path("keyward.toml").display().to_string();
        self.agent = Some(Binary::start(&["run", "--config", &config], &[], self.folder.path()));
        if self.watcher.is_none() {
            let (socket, sink) = (self.path("api.sock"), self.sink.clone());
            self.watcher = Some(Watcher::start(Watched { socket, sink, secrets: self.secrets().clone() }));
        }
    }

    /// Starts all, and waits until the agent is ready.
    pub(super) fn ready(&mut self, setup: &Setup<'_>) {
        self.prepare(setup);
        self.start();
        self.until_ready();
    }

    /// Waits until the agent is ready, and takes its figures.
    pub(super) fn until_ready(&mut self) {
        eventually(Duration::from_mins(1), || match self.ask("/readyz") {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}: {}", self.output())),
        });
        self.expect(|expected| expected.up = true);
        self.baseline = Some((self.descriptors(), self.memory_kib()));
    }

    pub(super) fn ask(&self, path: &str) -> Result<(u16, String), String> {
        ask(&self.path("api.sock"), "GET", path)
    }

    pub(super) fn expect(&self, change: impl FnOnce(&mut Expectation)) {
        change(&mut self.watcher.as_ref().unwrap().expectation.lock());
    }

    /// Marks the beginning of the fault, which `fault` makes.
    pub(super) fn inject(&mut self, fault: impl FnOnce(&mut Self)) {
        let running = self.agent.is_some();
        let cpu = if running { self.ticks() } else { 0 };
        self.injected = Some(Mark { at: now(), cpu, lines: self.output().lines().count() });
        fault(self);
    }

    /// Sets the behaviour of the network between the agent and its server.
    pub(super) fn set(&self, fault: Fault) {
        self.network().set(self.runtime.handle(), fault);
    }

    /// Marks the end of the fault, which `clear` ends.
    pub(super) fn clear(&mut self, clear: impl FnOnce(&mut Self)) {
        clear(self);
        self.cleared = Some(now());
    }

    /// Waits for something that the agent shall show within `limit` from now.
    pub(super) fn shows<T>(
        &mut self,
        name: &str,
        limit: Duration,
        mut inspect: impl FnMut(&Self) -> Result<T, String>,
    ) -> T {
        let begun = now();
        let found = eventually(Duration::from_secs(40), || inspect(self));
        self.took(Invariant::Observable, name, begun.elapsed(), limit);
        found
    }

    /// Records how long something took that has a limit, which the machine's own delays prolong.
    pub(super) fn took(&mut self, invariant: Invariant, name: &str, time: Duration, limit: Duration) {
        self.record.observe_time(name, time);
        let stall = self.watcher.as_ref().map_or(Duration::ZERO, |watcher| watcher.observations.lock().stall);
        let most = limit + stall * 3;
        self.record.check(invariant, (time > most).then(|| format!("{name} took {time:?}, and {limit:?} are allowed")));
    }

    /// Waits for a valid token as a caller does, and checks that one comes in time.
    pub(super) fn recovers(&mut self, limit: Duration) -> String {
        let since = self.cleared.expect("the fault is over");
        let token = eventually(Duration::from_mins(3), || {
            let (status, body) = self.ask("/agent/v1/token?wait=10s")?;
            let token = token(status, &body).ok_or_else(|| format!("{status}: {body}: {}", self.output()))?;
            self.secrets().remaining(&token).map(|_| token).ok_or_else(|| "a token that has ended".to_owned())
        });
        self.took(Invariant::Recovery, "recovery_s", since.elapsed(), limit);
        self.writes(Duration::from_secs(5));
        token
    }

    /// Checks that the sink holds the newest token in time, counted from the end of the fault.
    pub(super) fn writes(&mut self, limit: Duration) {
        let begun = now();
        eventually(Duration::from_mins(2), || self.sink_is_newest());
        self.took(Invariant::NoLostUpdate, "sink_after_recovery_s", begun.elapsed(), limit);
    }

    /// Fails unless the sink holds the served token.
    pub(super) fn sink_is_newest(&self) -> Result<(), String> {
        let (status, body) = self.ask("/agent/v1/token")?;
        let served = token(status, &body).ok_or_else(|| format!("{status}: {body}"))?;
        let sink = std::fs::read_to_string(&self.sink).unwrap_or_default();
        if sink == served { Ok(()) } else { Err(format!("the sink holds another token: {}", self.output())) }
    }

    /// Has the agent ask for its token, which the server no longer knows: a login follows. Returns the new token.
    pub(super) fn replace_token(&self) -> String {
        self.secrets().faults().revoke_all();
        let (status, body) = ask(&self.path("api.sock"), "POST", "/agent/v1/check").unwrap();
        assert_eq!(status, 200, "{body}");
        let (status, body) = self.ask("/agent/v1/token?wait=1m").unwrap();
        token(status, &body).unwrap_or_else(|| panic!("{status}: {body}: {}", self.output()))
    }

    /// Number of requests of an operation that the server has seen.
    pub(super) fn count(&self, operation: Operation) -> u64 {
        self.secrets().faults().counts().get(operation)
    }

    /// Calls that the agent has made or tried, by its own metrics.
    pub(super) fn upstream_calls(&self) -> u64 {
        let text = self.ask("/metrics").map(|(_, text)| text).unwrap_or_default();
        let of_sessions = ["keyward_logins_total{", "keyward_renewals_total{", "keyward_checks_total{"];
        let lines = text.lines().filter(|line| of_sessions.iter().any(|name| line.starts_with(name)));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// Value of a metric, named with its labels; 0 if it is not there.
    pub(super) fn metric(&self, name: &str) -> u64 {
        let text = self.ask("/metrics").map(|(_, text)| text).unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0)
    }

    /// Waits for a line in the log.
    pub(super) fn logs(&self, text: &str) {
        eventually(Duration::from_secs(40), || {
            let output = self.output();
            if output.contains(text) { Ok(()) } else { Err(format!("no {text:?} in {output}")) }
        });
    }
}

/// The token of a response.
pub(super) fn token(status: u16, body: &str) -> Option<String> {
    let body: serde_json::Value = serde_json::from_str(body).ok().filter(|_| status == 200)?;
    body["token"].as_str().map(str::to_owned)
}

#[expect(clippy::disallowed_methods, reason = "a process is measured, in real time")]
pub(super) fn now() -> Instant {
    Instant::now()
}
