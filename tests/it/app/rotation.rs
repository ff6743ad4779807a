//! The token of a session is renewed, replaced as its life ends, and replaced after it was revoked, while everything that the
//! agent does is in use: no call fails, and nothing is created, rendered or started because of it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use keyward_emulators::secrets::{LeaseTerms, Operation};
use serde_json::json;

use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually};
use crate::harness::program::write_script;
use crate::harness::world::{World, run_in_network_namespace};

const LIMIT: Duration = Duration::from_mins(2);

/// Requests of the callers, in turn: the token, a value and a login that the proxy caches, and one that it does not.
const ASKED: [(&str, &str); 4] = [
    ("api.sock", "/agent/v1/token"),
    ("vault.sock", "/v1/secret/data/app"),
    ("vault.sock", "/v1/database/creds/dev"),
    ("vault.sock", "/v1/sys/mounts"),
];

/// Callers that ask two hundred times a second between them, each call at its time, however long others take.
struct Callers {
    stop: Arc<AtomicBool>,
    /// True if callers wait for a token.
    patient: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    running: Vec<JoinHandle<Vec<String>>>,
}

impl Callers {
    fn start(folder: &Path) -> Self {
        let (stop, patient) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let calls = Arc::new(AtomicU64::new(0));
        let caller = |first: usize| {
            let (folder, stop, patient) = (folder.to_owned(), Arc::clone(&stop), Arc::clone(&patient));
            let calls = Arc::clone(&calls);
            std::thread::spawn(move || call_until(&stop, &patient, &calls, &folder, first))
        };
        let running = (0..4).map(caller).collect();
        Self { stop, patient, calls, running }
    }

    fn end(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::SeqCst);
        let failed = self.running.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
        (self.calls.load(Ordering::SeqCst), failed)
    }
}

#[expect(clippy::disallowed_methods, reason = "calls are made at a rate, in real time")]
fn call_until(stop: &AtomicBool, patient: &AtomicBool, calls: &AtomicU64, folder: &Path, first: usize) -> Vec<String> {
    let (start, mut failed) = (Instant::now(), Vec::new());
    for number in 0_u32.. {
        // Fifty a second for each of four.
        let due = start + Duration::from_millis(20) * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let (socket, path) = ASKED[(first + number as usize) % ASKED.len()];
        let waits = path.starts_with("/agent") && patient.load(Ordering::SeqCst);
        let path = if waits { format!("{path}?wait=30s") } else { path.to_owned() };
        match ask(&folder.join(socket), "GET", &path) {
            Ok((200, _)) => {}
            other => failed.push(format!("{path}: {other:?}")),
        }
        calls.fetch_add(1, Ordering::SeqCst);
    }
    failed
}

/// State that must not change: the rendered file, the number of renderings, the child process.
#[derive(Debug, PartialEq)]
struct Untouched {
    file: (u64, i64, i64),
    renders: [u64; 2],
    child: String,
    starts: [u64; 3],
}

impl Untouched {
    fn capture(agent: &Agent) -> Self {
        let file = std::fs::metadata(agent.path("conf")).unwrap();
        let renders = ["conf", "PASSWORD"]
            .map(|name| format!("keyward_template_renders_total{{template=\"{name}\",outcome=\"ok\"}}"));
        let starts =
            ["first", "changed", "ended"].map(|reason| format!("keyward_process_starts_total{{reason=\"{reason}\"}}"));
        Self {
            file: (file.ino(), file.mtime(), file.mtime_nsec()),
            renders: renders.map(|name| agent.metric(&name)),
            child: std::fs::read_to_string(agent.path("pids")).unwrap(),
            starts: starts.map(|name| agent.metric(&name)),
        }
    }
}

/// An agent with everything: sink, local API, proxy with a cache, a template and a child.
fn start(world: &World) -> Agent {
    let value = "'{{ with secret \"secret/data/app\" }}{{ .Data.data.password }}{{ end }}'";
    let agent = Agent::start(world, &[("PATH", "/usr/bin:/bin")], |text| {
        let state = text.lines().find_map(|line| line.strip_prefix("state_dir = \"")).unwrap();
        let folder = PathBuf::from(state.trim_end_matches('"')).parent().unwrap().to_owned();
        let script = folder.join("child.sh");
        write_script(&script, &format!("echo $$ $PASSWORD >> {}/pids\nexec sleep 600", folder.display()));
        format!(
            "{text}[listener.vault]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/vault.sock\"\n\
             [listener.vault.cache]\nmax_age = \"1s\"\n\
             [templates]\ninterval = \"10s\"\n\
             [template.conf]\ncontents = {value}\ndestination = \"FOLDER/conf\"\n\
             [env_template.PASSWORD]\ncontents = {value}\n\
             [process]\ncommand = [\"{}\"]\n",
            script.display()
        )
    });
    eventually(LIMIT, || match ask(&agent.socket(), "GET", "/readyz") {
        Ok((200, _)) if agent.path("pids").exists() => Ok(()),
        other => Err(format!("{other:?}: {}", agent.binary.output())),
    });
    agent
}

#[test]
fn a_rotation_under_load_fails_no_call_and_causes_no_login_render_or_restart() {
    run_in_network_namespace(|| {
        let world = World::with(
            |_| (),
            |_, secrets| {
                for role in secrets.roles.values_mut() {
                    (role.ttl, role.max_ttl) = (Duration::from_secs(8), Some(Duration::from_secs(18)));
                }
                let hour = Duration::from_hours(1);
                secrets.database.insert("dev".to_owned(), LeaseTerms { ttl: hour, max_ttl: hour, renewable: true });
            },
        );
        world.put("app", &json!({ "password": "one" }));
        let agent = start(&world);
        let request_count = |operation| world.secrets.faults().counts().get(operation);
        let lent = || world.secrets.faults().leases_issued();
        let (before, first) = (Untouched::capture(&agent), agent.sink("token"));
        assert_eq!((before.renders, before.starts), ([1, 1], [1, 0, 0]));
        let callers = Callers::start(agent.socket().parent().unwrap());

        // Renewed: the same token and the same leases.
        eventually(LIMIT, || {
            let made = lent();
            let (logins, renewals) = (request_count(Operation::Login), request_count(Operation::Renew));
            assert!(made <= logins, "{made} credentials were made for {logins} tokens");
            if logins == 1 && renewals < 2 { Err(format!("{renewals} renewals")) } else { Ok(()) }
        });
        // Replaced shortly before its maximum TTL: its leases end with it, and are requested once again.
        eventually(LIMIT, || match (request_count(Operation::Login), agent.sink("token")) {
            (2.., token) if token != first => Ok(()),
            (logins, _) => Err(format!("{logins} logins: {}", agent.binary.output())),
        });
        let (logins, second) = (request_count(Operation::Login), agent.sink("token"));
        eventually(LIMIT, || if lent() >= 2 { Ok(()) } else { Err(format!("{} credentials", lent())) });

        // Revoked: a call through the proxy detects it, and is answered with the next token.
        callers.patient.store(true, Ordering::SeqCst);
        let made = callers.calls.load(Ordering::SeqCst);
        eventually(LIMIT, || if callers.calls.load(Ordering::SeqCst) > made + 8 { Ok(()) } else { Err(String::new()) });
        world.secrets.faults().revoke_all();
        eventually(LIMIT, || match (request_count(Operation::Login), agent.sink("token")) {
            (after, token) if after > logins && token != second => Ok(()),
            (after, _) => Err(format!("{after} logins: {}", agent.binary.output())),
        });
        let made = callers.calls.load(Ordering::SeqCst);
        eventually(
            LIMIT,
            || if callers.calls.load(Ordering::SeqCst) > made + 200 { Ok(()) } else { Err(String::new()) },
        );

        let (calls, failed) = callers.end();
        assert!(failed.is_empty(), "of {calls} calls failed {failed:?}: {}", agent.binary.output());
        assert!(calls > 1000, "{calls} calls are no load");
        assert_eq!(Untouched::capture(&agent), before, "{}", agent.binary.output());
        let (made, logins) = (lent(), request_count(Operation::Login));
        assert!(made <= logins, "{made} credentials were made for {logins} tokens");
    });
}
