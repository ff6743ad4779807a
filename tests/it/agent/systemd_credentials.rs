//! Credentials that systemd loads for units, on a running agent; a thread of the test is systemd.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use keyward_emulators::secrets::{Operation, Secrets};
use keyward_machine::tasks::TaskGroup;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::derived_tokens::{call, server, sink, start};
use crate::harness::binary::{Binary, ask, eventually};
use crate::harness::credential_loader::{NOBODY, as_user, connect, load, load_by_name, name};
use crate::harness::not_run::is_root;

const GREETING: &str = "hello from the emulated Vault";

const LISTENER: &str = "[listener.systemd]\nkind = \"systemd_credentials\"\naddress = \"unix://FOLDER/systemd.sock\"\n\
    wait = \"20s\"\nmode = \"0666\"\n\
    [listener.systemd.credential.greeting]\nunits = [\"app.service\", \"worker@*.service\"]\n\
    path = \"secret/data/example\"\nfield = \"greeting\"\n\
    [listener.systemd.credential.settings]\nunits = \"app.service\"\nid = \"app.conf\"\n\
    contents = \"greeting={{ with secret \\\"secret/data/example\\\" }}{{ .Data.data.greeting }}{{ end }}\"\n\
    [listener.systemd.credential.token]\nunits = \"job.service\"\ntoken = true\n";

/// Loads a credential for a unit, as text.
fn loaded(socket: &Path, unit: &str, credential: &str) -> String {
    String::from_utf8(load(socket, unit, credential).unwrap()).unwrap()
}

/// The value of a metric, named with its labels; 0 if it is not there.
fn metric(folder: &Path, name: &str) -> u64 {
    let (_, text) = ask(&folder.join("checks.sock"), "GET", "/metrics").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    line.unwrap_or_default()
}

fn outcomes(folder: &Path, outcome: &str) -> u64 {
    metric(folder, &format!("keyward_systemd_credentials_total{{listener=\"systemd\",outcome=\"{outcome}\"}}"))
}

/// A server, and an agent that serves credentials of its secrets.
struct Site {
    secrets: Secrets,
    agent: Binary,
    socket: PathBuf,
    folder: TempDir,
    _tasks: TaskGroup,
}

impl Site {
    /// Starts both, with this text after the listener's section.
    fn start(more: &str) -> Self {
        let mut tasks = TaskGroup::default();
        let secrets = server(&mut tasks);
        Self::start_with(secrets, tasks, more)
    }

    /// Starts the agent; waits until its socket is there, and lets every user reach it.
    fn start_with(secrets: Secrets, tasks: TaskGroup, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let agent = start(&secrets, folder.path(), &format!("{LISTENER}{more}"));
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o711)).unwrap();
        let socket = folder.path().join("systemd.sock");
        tokio::task::block_in_place(|| {
            eventually(Duration::from_secs(30), || if socket.exists() { Ok(()) } else { Err(agent.output()) });
        });
        Self { secrets, agent, socket, folder, _tasks: tasks }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn systemd_loads_a_secret_a_rendered_text_and_a_token_each_for_its_units_alone() {
    if !is_root() {
        return;
    }
    let Site { agent, socket, folder, _tasks, .. } = Site::start("");
    let token = sink(&agent, &folder.path().join("raw"), "");
    tokio::task::block_in_place(|| {
        assert_eq!(loaded(&socket, "app.service", "greeting"), GREETING);
        assert_eq!(loaded(&socket, "worker@eu-1.service", "greeting"), GREETING);
        assert_eq!(loaded(&socket, "app.service", "app.conf"), format!("greeting={GREETING}"));
        assert_eq!(loaded(&socket, "job.service", "token"), token);
        for (unit, credential) in [
            ("app.service", "token"),
            ("job.service", "greeting"),
            ("job.service", "app.conf"),
            ("worker@.service", "greeting"),
            ("worker.service", "greeting"),
            ("app.service", "settings"),
            ("app.socket", "greeting"),
        ] {
            assert_eq!(loaded(&socket, unit, credential), "", "{unit} {credential}");
        }
        for name in [&b""[..], b"/unit/app.service/greeting", b"5/unit/app.service", b"5/user/app.service/greeting"] {
            assert_eq!(load_by_name(&socket, name).unwrap(), b"", "{}", name.escape_ascii());
        }
        assert_eq!((outcomes(folder.path(), "granted"), outcomes(folder.path(), "not_granted")), (4, 7));
        assert_eq!((outcomes(folder.path(), "name"), outcomes(folder.path(), "peer")), (4, 0));
        let (_, ready) = ask(&folder.path().join("checks.sock"), "GET", "/readyz").unwrap();
        for part in ["greeting", "settings", "token"] {
            assert!(ready.contains(&format!("\"credential/systemd/{part}\":{{\"ready\":true")), "{ready}");
        }
    });
    let (_, output) = agent.stop();
    for part in ["systemd_credential.granted", "unit=\"job.service\" credential=\"token\"", "reason=\"not_granted\""] {
        assert!(output.contains(part), "{part}: {output}");
    }
    assert!(!output.contains(GREETING) && !output.contains(&token), "a secret in the log: {output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t06_nobody_forges_a_hundred_names_and_reads_no_byte() {
    if !is_root() {
        return;
    }
    let Site { agent, socket, folder, _tasks, .. } = Site::start("");
    tokio::task::block_in_place(|| {
        assert_eq!(loaded(&socket, "app.service", "greeting"), GREETING, "{}", agent.output());
        let forge = |uid, gid, times: usize| {
            as_user(uid, gid, || {
                let all = [("app.service", "greeting"), ("app.service", "app.conf"), ("job.service", "token")];
                let all = all.into_iter().cycle().take(times);
                all.map(|(unit, credential)| load(&socket, unit, credential).unwrap().len()).sum::<usize>()
            })
        };
        assert_eq!(forge(NOBODY, NOBODY, 100), 0, "nobody reads a credential");
        assert_eq!(forge(1000, 0, 3) + forge(0, 1000, 3), 0, "root's user without root's group, or the group alone");
        assert_eq!(outcomes(folder.path(), "peer"), 106);
        assert_eq!(
            loaded(&socket, "job.service", "token").len(),
            token_length(folder.path()),
            "systemd is still served"
        );
    });
    let (_, output) = agent.stop();
    let lines = output.matches("systemd_credential.refused").count();
    assert!((1..10).contains(&lines), "{lines} lines: {output}");
    assert!(output.contains("reason=\"peer\"") && output.contains("uid=65534"), "{output}");
}

/// Length of the session's token.
fn token_length(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("raw")).unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_waits_for_the_server_and_starts_with_nothing_once_the_wait_is_over() {
    if !is_root() {
        return;
    }
    let mut tasks = TaskGroup::default();
    let secrets = server(&mut tasks);
    secrets.faults().go_away().await;
    let more = "[listener.short]\nkind = \"systemd_credentials\"\naddress = \"unix://FOLDER/short.sock\"\nwait = \"1s\"\n\
        [listener.short.credential.token]\nunits = \"job.service\"\ntoken = true\n";
    let Site { secrets, agent, socket, folder, _tasks } = Site::start_with(secrets, tasks, more);
    tokio::task::block_in_place(|| {
        let started = now();
        assert_eq!(loaded(&folder.path().join("short.sock"), "job.service", "token"), "");
        let waited = started.elapsed();
        assert!((1..15).contains(&waited.as_secs()), "{waited:?}");
        let metric =
            metric(folder.path(), "keyward_systemd_credentials_total{listener=\"short\",outcome=\"not_ready\"}");
        assert_eq!(metric, 1);
        agent.logs("systemd_credential.unavailable");
        let (_, ready) = ask(&folder.path().join("checks.sock"), "GET", "/readyz").unwrap();
        assert!(ready.contains("\"credential/systemd/token\":{\"ready\":false"), "{ready}");
    });
    let waiting: Vec<_> = [("app.service", "greeting"), ("app.service", "app.conf"), ("job.service", "token")]
        .map(|(unit, credential)| connect(&socket, &name(unit, credential)).unwrap())
        .into_iter()
        .collect();
    secrets.faults().come_back().await;
    tokio::task::block_in_place(|| {
        let texts: Vec<String> = waiting.into_iter().map(|stream| std::io::read_to_string(stream).unwrap()).collect();
        assert_eq!(texts[0], GREETING, "{}", agent.output());
        assert_eq!(texts[1], format!("greeting={GREETING}"));
        assert!(!texts[2].is_empty());
    });
    assert_eq!(secrets.faults().counts().get(Operation::Login), 1, "units that wait are not logins");
    let (status, output) = agent.stop();
    assert_eq!(status.code(), Some(0), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_that_waits_when_the_agent_stops_gets_nothing_and_the_log_says_so() {
    if !is_root() {
        return;
    }
    let mut tasks = TaskGroup::default();
    let secrets = server(&mut tasks);
    secrets.faults().go_away().await;
    let Site { agent, socket, folder, .. } = Site::start_with(secrets, tasks, "");
    tokio::task::block_in_place(|| {
        let config = folder.path().join("keyward.toml");
        let text = std::fs::read_to_string(&config).unwrap().replace("[agent]\n", "[agent]\nstop_grace = \"200ms\"\n");
        std::fs::write(&config, text).unwrap();
        agent.signal(Signal::HUP);
        agent.logs("config.reload.ok");
        let waiting = connect(&socket, &name("app.service", "greeting")).unwrap();
        let metric = "keyward_local_connections{listener=\"systemd\"}";
        eventually(Duration::from_secs(30), || match self::metric(folder.path(), metric) {
            1 => Ok(()),
            count => Err(format!("{count} connections")),
        });
        let (status, output) = agent.stop();
        assert_eq!(status.code(), Some(0), "{output}");
        assert_eq!(std::io::read_to_string(waiting).unwrap(), "");
        let line = output.lines().find(|line| line.contains("systemd_credential.unavailable")).unwrap_or_default();
        assert!(line.contains("the listener ends, by a stop or a reload") && line.contains("app.service"), "{output}");
    });
}

#[expect(clippy::disallowed_methods, reason = "a process is waited for, in real time")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_gets_a_derived_token_where_the_listener_has_one() {
    if !is_root() {
        return;
    }
    let derived = "[listener.systemd.derived_token]\npolicies = [\"web\"]\nttl = \"1h\"\n";
    let Site { secrets, agent, socket, folder, _tasks } = Site::start(derived);
    let raw = sink(&agent, &folder.path().join("raw"), "");
    let token = tokio::task::block_in_place(|| loaded(&socket, "job.service", "token"));
    assert!(!token.is_empty() && token != raw, "{}", agent.output());
    let (_, lookup) = call(&secrets, &token, "auth/token/lookup-self", None).await;
    assert_eq!((&lookup["data"]["policies"], &lookup["data"]["orphan"]), (&json!(["default", "web"]), &json!(false)));
    // A secret is read by the session itself.
    assert_eq!(tokio::task::block_in_place(|| loaded(&socket, "app.service", "greeting")), GREETING);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_changes_who_may_load_a_credential_and_those_that_wait_go_on_waiting() {
    if !is_root() {
        return;
    }
    let mut tasks = TaskGroup::default();
    let secrets = server(&mut tasks);
    secrets.faults().go_away().await;
    let Site { secrets, agent, socket, folder, _tasks } = Site::start_with(secrets, tasks, "");
    let waiting = tokio::task::block_in_place(|| {
        let waiting = connect(&socket, &name("app.service", "greeting")).unwrap();
        let config = folder.path().join("keyward.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, text.replace("\"app.service\", \"worker@*.service\"", "\"web.service\"")).unwrap();
        agent.signal(Signal::HUP);
        eventually(Duration::from_secs(30), || {
            if agent.output().contains("config.reload.ok") { Ok(()) } else { Err(agent.output()) }
        });
        waiting
    });
    secrets.faults().come_back().await;
    tokio::task::block_in_place(|| {
        assert_eq!(
            std::io::read_to_string(waiting).unwrap(),
            GREETING,
            "granted before the reload: {}",
            agent.output()
        );
        assert_eq!(loaded(&socket, "web.service", "greeting"), GREETING);
        assert_eq!(loaded(&socket, "app.service", "greeting"), "");
        assert_eq!(loaded(&socket, "app.service", "app.conf"), format!("greeting={GREETING}"));
    });
    let reads = secrets.faults().counts().get(Operation::Secret);
    assert_eq!(reads, 1, "templates and credentials, before and after, share one read of the secret");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_load_is_in_the_audit_and_one_that_cannot_be_recorded_gets_nothing() {
    if !is_root() {
        return;
    }
    let audit = tempfile::tempdir().unwrap();
    let place = audit.path().display();
    std::fs::write(audit.path().join("key"), "canary-audit-key-0123456789-0123456789").unwrap();
    std::fs::set_permissions(audit.path().join("key"), PermissionsExt::from_mode(0o600)).unwrap();
    let more = format!("[audit.main]\npath = \"{place}/records/audit.jsonl\"\nkey_file = \"{place}/key\"\n");
    std::fs::create_dir(audit.path().join("records")).unwrap();
    let Site { agent, socket, folder, _tasks, .. } = Site::start(&more);
    tokio::task::block_in_place(|| {
        assert_eq!(loaded(&socket, "app.service", "greeting"), GREETING, "{}", agent.output());
        assert_eq!(loaded(&socket, "web.service", "greeting"), "");
        let records = eventually(Duration::from_secs(10), || {
            let text = std::fs::read_to_string(audit.path().join("records/audit.jsonl")).unwrap();
            let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let loads: Vec<Value> = records.filter(|record| record["route"] == "systemd_credential").collect();
            let has = |decision| loads.iter().any(|record| record["decision"] == decision);
            if has("granted") && has("refused") { Ok(loads) } else { Err(text) }
        });
        assert!(records.iter().all(|record| record["path"].to_string().contains("greeting")), "{records:#?}");
        assert!(!format!("{records:?}").contains(GREETING), "a secret in the audit: {records:#?}");
        // A file in the place of the folder: no record can be written.
        std::fs::remove_dir_all(audit.path().join("records")).unwrap();
        std::fs::write(audit.path().join("records"), "").unwrap();
        assert_eq!(loaded(&socket, "app.service", "greeting"), "", "{}", agent.output());
        assert!(outcomes(folder.path(), "unaudited") >= 1, "{}", agent.output());
    });
}
