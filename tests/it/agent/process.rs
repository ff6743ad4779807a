//! The child process of a running agent with templates: its environment, its restarts, the signals that reach it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use keyward_emulators::secrets::{Operation, Role};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;

use crate::harness::agent::Agent;
use crate::harness::binary::{Binary, eventually, run};
use crate::harness::program::write_script;
use crate::harness::world::{World, run_in_network_namespace};

const LIMIT: Duration = Duration::from_secs(30);

/// Writes a value to the key-value store as another client.
fn put(world: &World, path: &str, fields: &serde_json::Value) {
    let token = world.secrets.token(&Role::default());
    let url = format!("{}/v1/secret/data/{path}", world.secrets.url());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let status = runtime.block_on(async {
        let request = reqwest::Client::new().post(url).header("x-vault-token", token.expose_secret());
        let body = json!({ "data": fields }).to_string();
        request.header("content-type", "application/json").body(body).send().await.unwrap().status()
    });
    assert!(status.is_success(), "{status}");
}

/// A program of lines for a shell, in the agent's folder, and the sections that have it run as the child.
fn child(folder: &Path, lines: &str, more: &str) -> String {
    let script = folder.join("child.sh");
    write_script(&script, lines);
    format!(
        "[templates]\ninterval = \"10s\"\n\
         [env_template.DB_PASSWORD]\n\
         contents = '{{{{ with secret \"secret/data/app\" }}}}{{{{ .Data.data.password }}}}{{{{ end }}}}'\ndebounce = \"0s\"\n\
         [process]\ncommand = [\"{}\"]\ndebounce = \"100ms\"\npass_env = [\"APP_MODE\"]\n{more}\n",
        script.display()
    )
}

/// Starts an agent whose child process runs this script.
fn start(world: &World, variables: &[(&str, &str)], lines: &str, more: &str) -> Agent {
    Agent::start(world, variables, |text| {
        let state = text.lines().find_map(|line| line.strip_prefix("state_dir = \"")).unwrap();
        let folder = Path::new(state.trim_end_matches('"')).parent().unwrap().to_owned();
        let lines = lines.replace("FOLDER", &folder.display().to_string());
        text + &child(&folder, &lines, more)
    })
}

fn read(agent: &Agent, name: &str) -> String {
    eventually(LIMIT, || match std::fs::read_to_string(agent.path(name)) {
        Ok(text) if !text.is_empty() => Ok(text),
        other => Err(format!("{name}: {other:?}; {}", agent.binary.output())),
    })
}

/// First command of each child: writes its process id.
const PID: &str = "echo $$ > FOLDER/pid.new; mv FOLDER/pid.new FOLDER/pid";

fn pid(agent: &Agent) -> Pid {
    Pid::from_raw(read(agent, "pid").trim().parse().unwrap()).unwrap()
}

#[test]
fn t21_a_child_finds_its_variables_and_nothing_else_of_the_agents() {
    run_in_network_namespace(|| {
        let world = World::start();
        put(&world, "app", &json!({ "password": "canary-5ecret" }));
        let variables = [
            ("PATH", "/usr/bin:/bin"),
            ("LANG", "C"),
            ("APP_MODE", "blue"),
            ("OTHER", "x"),
            ("AZURE_CONFIG_DIR", "x"),
            ("IDENTITY_SOMETHING", "x"),
            ("MSI_SOMETHING", "x"),
            ("WATCHDOG_USEC", "9000000000"),
            ("CREDENTIALS_DIRECTORY", "/x"),
            ("NOTIFY_SOCKET", "/nowhere"),
        ];
        let lines = format!("{PID}\nexec sleep 600");
        let agent = start(&world, &variables, &lines, "");
        let pid = pid(&agent);
        let process = format!("/proc/{}", pid.as_raw_nonzero());
        let found = eventually(LIMIT, || {
            let command = std::fs::read_to_string(format!("{process}/cmdline")).unwrap();
            if command.starts_with("sleep") { Ok(command) } else { Err(command) }
        });
        assert_eq!(found.split('\0').collect::<Vec<_>>(), ["sleep", "600", ""]);
        let environment = std::fs::read_to_string(format!("{process}/environ")).unwrap();
        let mut environment: Vec<_> = environment
            .split('\0')
            .filter(|line| !line.is_empty() && !line.starts_with("PWD=") && !line.starts_with('_'))
            .collect();
        environment.sort_unstable();
        assert_eq!(environment, ["APP_MODE=blue", "DB_PASSWORD=canary-5ecret", "LANG=C", "PATH=/usr/bin:/bin"]);
        let mut descriptors: Vec<_> = std::fs::read_dir(format!("{process}/fd"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        descriptors.sort();
        assert_eq!(descriptors, ["0", "1", "2"]);
        let group = rustix::process::getpgid(Some(pid)).unwrap();
        assert_eq!(group, pid, "it has a process group of its own");
        assert!(!agent.binary.output().contains("canary-5ecret"), "a secret stands in the log");
    });
}

/// vault#11030: each new login restarts the program.
#[test]
fn a_child_is_restarted_when_a_value_changes_and_not_by_a_rotation_or_a_reload() {
    run_in_network_namespace(|| {
        let world = World::start();
        put(&world, "app", &json!({ "password": "one" }));
        let lines = format!("echo $DB_PASSWORD >> FOLDER/starts\n{PID}\nexec sleep 600");
        let agent = start(&world, &[("PATH", "/usr/bin:/bin")], &lines, "");
        assert_eq!(read(&agent, "starts"), "one\n");
        let first = pid(&agent);

        // A new token, reads of the secret and reloads do not affect it.
        let logins = || world.secrets.faults().counts().get(Operation::Login);
        let before = logins();
        world.secrets.faults().revoke_all();
        let (status, _) = crate::harness::binary::ask(&agent.socket(), "POST", "/agent/v1/check").unwrap();
        assert!((200..300).contains(&status), "{status}");
        eventually(LIMIT, || if logins() > before { Ok(()) } else { Err(agent.binary.output()) });
        for _ in 0..5 {
            agent.reload("ok");
        }
        let looks = || agent.metric("keyward_secret_calls_total{secret=\"templates\",call=\"read\",outcome=\"ok\"}");
        let looked = looks();
        eventually(LIMIT, || if looks() > looked { Ok(()) } else { Err(format!("{looked} looks")) });
        assert_eq!((pid(&agent), read(&agent, "starts").as_str()), (first, "one\n"));

        put(&world, "app", &json!({ "password": "two" }));
        eventually(LIMIT, || match read(&agent, "starts") {
            starts if starts == "one\ntwo\n" => Ok(()),
            starts => Err(format!("{starts}: {}", agent.binary.output())),
        });
        assert!(test_kill_process(first).is_err(), "the first one has ended");
        assert_eq!(agent.metric("keyward_process_starts_total{reason=\"changed\"}"), 1);
    });
}

#[test]
fn a_restart_that_the_limit_does_not_allow_is_seen_in_log_status_and_metrics() {
    run_in_network_namespace(|| {
        let world = World::start();
        put(&world, "app", &json!({ "password": "one" }));
        let lines = format!("echo $DB_PASSWORD >> FOLDER/starts\n{PID}\nexec sleep 600");
        let agent = start(&world, &[("PATH", "/usr/bin:/bin")], &lines, "max_restarts_per = \"1/20s\"");
        assert_eq!(read(&agent, "starts"), "one\n");
        let await_starts = |expected: &str| {
            eventually(LIMIT, || match read(&agent, "starts") {
                starts if starts == expected => Ok(()),
                starts => Err(format!("{starts}: {}", agent.binary.output())),
            });
        };
        put(&world, "app", &json!({ "password": "two" }));
        await_starts("one\ntwo\n");
        put(&world, "app", &json!({ "password": "three" }));
        agent.logs("process.restart_postponed");
        assert_eq!(agent.metric("keyward_process_restart_pending"), 1);
        let process = agent.get("/agent/v1/status")["components"]["process"].clone();
        assert_eq!(process["ready"], true);
        let warning = process["warning"]["reason"].as_str().unwrap();
        assert!(warning.contains("max_restarts_per = \"1/20s\" allows the restart at 20"), "{warning}");
        assert_eq!(read(&agent, "starts"), "one\ntwo\n");
        await_starts("one\ntwo\nthree\n");
        let output = agent.binary.output();
        assert_eq!(output.matches("process.restart_postponed").count(), 1, "{output}");
        eventually(LIMIT, || match agent.get("/agent/v1/status")["components"]["process"].clone() {
            process if process["warning"].is_null() && agent.metric("keyward_process_restart_pending") == 0 => Ok(()),
            process => Err(process.to_string()),
        });
    });
}

#[test]
fn the_agent_ends_with_the_childs_code_and_a_child_that_does_not_end_is_killed_with_its_own() {
    run_in_network_namespace(|| {
        let world = World::start();
        put(&world, "app", &json!({ "password": "one" }));
        let mut agent = start(&world, &[("PATH", "/usr/bin:/bin")], "exit 42", "");
        assert_eq!(agent.binary.wait(LIMIT).code(), Some(42), "{}", agent.binary.output());
        drop(agent);

        let lines = format!("trap '' TERM\nsleep 600 &\necho $! > FOLDER/own\n{PID}\nwait; sleep 600");
        let mut agent = start(&world, &[("PATH", "/usr/bin:/bin")], &lines, "stop_timeout = \"500ms\"");
        let first = pid(&agent);
        let own = Pid::from_raw(read(&agent, "own").trim().parse().unwrap()).unwrap();
        agent.binary.signal(Signal::TERM);
        let status = agent.binary.wait(LIMIT);
        assert_eq!(status.code(), Some(137), "{}", agent.binary.output());
        for process in [first, own] {
            eventually(LIMIT, || check_ended(process));
        }
    });
}

/// Fails unless a process has ended; a zombie has ended.
fn check_ended(process: Pid) -> Result<(), String> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
    match status {
        Err(_) => Ok(()),
        Ok(status) if status.contains("State:\tZ") => Ok(()),
        Ok(_) => Err(format!("{process:?} lives")),
    }
}

#[test]
fn signals_are_passed_on_and_a_crash_is_followed_by_a_start() {
    run_in_network_namespace(|| {
        let world = World::start();
        put(&world, "app", &json!({ "password": "one" }));
        let lines = format!(
            "trap 'echo usr1 >> FOLDER/heard' USR1\ntrap 'echo hup >> FOLDER/heard' HUP\ntrap 'exit 0' TERM\n{PID}\n\
             while :; do sleep 0.05; done"
        );
        let more = "on_change = \"signal\"\nrestart = \"on_failure\"";
        let agent = start(&world, &[("PATH", "/usr/bin:/bin")], &lines, more);
        let first = pid(&agent);
        agent.binary.signal(Signal::USR1);
        assert_eq!(read(&agent, "heard"), "usr1\n");
        put(&world, "app", &json!({ "password": "two" }));
        eventually(LIMIT, || match read(&agent, "heard") {
            signals if signals == "usr1\nhup\n" => Ok(()),
            signals => Err(format!("{signals}: {}", agent.binary.output())),
        });
        assert_eq!(pid(&agent), first, "it was told, and not restarted");

        kill_process(first, Signal::KILL).unwrap();
        eventually(LIMIT, || if pid(&agent) == first { Err(agent.binary.output()) } else { Ok(()) });
        assert_eq!(agent.metric("keyward_process_starts_total{reason=\"ended\"}"), 1);
        let (status, output) = agent.binary.stop();
        assert_eq!(status.code(), Some(0), "{output}");
    });
}

#[test]
fn a_child_that_cannot_be_started_is_reported_and_its_successor_gets_no_earlier_signal() {
    run_in_network_namespace(|| {
        let world = World::start();
        put(&world, "app", &json!({ "password": "one" }));
        let lines = format!("{PID}\nexec sleep 600");
        let agent = Agent::start(&world, &[("PATH", "/usr/bin:/bin")], |text| {
            let state = text.lines().find_map(|line| line.strip_prefix("state_dir = \"")).unwrap();
            let folder = Path::new(state.trim_end_matches('"')).parent().unwrap().to_owned();
            let lines = lines.replace("FOLDER", &folder.display().to_string());
            let sections = child(&folder, &lines, "restart = \"on_failure\"");
            std::fs::rename(folder.join("child.sh"), folder.join("later.sh")).unwrap();
            text + &sections
        });
        agent.logs("process.failed");
        let process = eventually(LIMIT, || match agent.components()["process"].clone() {
            process if process["code"] == "KW-1408" => Ok(process),
            process => Err(process.to_string()),
        });
        assert!(process["reason"].as_str().unwrap().starts_with("it cannot be started: "), "{process}");
        // It ends a program without a handler.
        agent.binary.signal(Signal::USR1);
        std::fs::rename(agent.path("later.sh"), agent.path("child.sh")).unwrap();
        pid(&agent);
        let (status, output) = agent.binary.stop();
        assert_eq!(status.code(), Some(0), "{output}");
        assert!(!output.contains("process.ended"), "{output}");
    });
}

#[test]
fn a_child_ends_when_its_agent_is_killed() {
    run_in_network_namespace(|| {
        let world = World::start();
        put(&world, "app", &json!({ "password": "one" }));
        let agent = start(&world, &[("PATH", "/usr/bin:/bin")], &format!("{PID}\nexec sleep 600"), "");
        let first = pid(&agent);
        agent.binary.signal(Signal::KILL);
        eventually(LIMIT, || check_ended(first));
    });
}

#[test]
fn files_are_rendered_by_the_real_agent_and_kept_across_a_reload() {
    run_in_network_namespace(|| {
        let world = World::start();
        put(&world, "app", &json!({ "password": "one" }));
        let section = "[template.conf]\nsource = \"FOLDER/conf.tmpl\"\ndestination = \"FOLDER/made/conf\"\n\
                       create_folders = true\ncommand = [\"echo ran >> FOLDER/runs\"]\nshell = true\n";
        let agent = Agent::start(&world, &[("PATH", "/usr/bin:/bin")], |text| {
            let state = text.lines().find_map(|line| line.strip_prefix("state_dir = \"")).unwrap();
            let folder = Path::new(state.trim_end_matches('"')).parent().unwrap();
            let template = "{{ with secret \"secret/data/app\" }}password={{ .Data.data.password }}{{ end }}";
            std::fs::write(folder.join("conf.tmpl"), template).unwrap();
            text + section
        });
        assert_eq!(read(&agent, "made/conf"), "password=one");
        assert_eq!(read(&agent, "runs"), "ran\n");
        assert_eq!(std::fs::metadata(agent.path("made/conf")).unwrap().permissions().mode() & 0o777, 0o640);
        eventually(LIMIT, || {
            let components = agent.components();
            if components["template/conf"]["ready"] == true { Ok(()) } else { Err(components.to_string()) }
        });
        for _ in 0..5 {
            agent.reload("ok");
        }
        assert_eq!(agent.metric("keyward_template_renders_total{template=\"conf\",outcome=\"ok\"}"), 1);

        // A reload uses the changed template file. An invalid one is refused with its position.
        let text = std::fs::read_to_string(agent.path("conf.tmpl")).unwrap();
        std::fs::write(agent.path("conf.tmpl"), format!("# new\n{text}")).unwrap();
        agent.reload("ok");
        eventually(LIMIT, || match read(&agent, "made/conf") {
            made if made == "# new\npassword=one" => Ok(()),
            made => Err(made),
        });
        std::fs::write(agent.path("conf.tmpl"), "ok\n{{ secrt \"x\" }}").unwrap();
        agent.reload("failed");
        agent.logs("conf.tmpl:2:4: unknown function secrt; did you mean secret?");
        assert_eq!(read(&agent, "made/conf"), "# new\npassword=one");

        // So does a check, and a start.
        let (code, output, _) = run(&["check", "--config", agent.config.to_str().unwrap()], &[]);
        assert!(output.contains("conf.tmpl:2:4: unknown function secrt"), "{output}");
        assert_eq!(code, 3);
        let config = agent.config.display().to_string();
        let folder = tempfile::tempdir().unwrap();
        let mut other = Binary::start(&["run", "--config", &config], &[], folder.path());
        assert_eq!(other.wait(LIMIT).code(), Some(78), "{}", other.output());
    });
}

#[test]
fn as_process_1_the_agent_reaps_orphans_and_still_learns_how_its_child_ends() {
    run_in_network_namespace(|| {
        let world = World::start();
        put(&world, "app", &json!({ "password": "x" }));
        for sandbox in ["off", "best_effort"] {
            // Each `sleep` loses its parent at once.
            let lines = "for number in 1 2 3 4 5; do (sleep 0.2 & echo $! >> FOLDER/orphans); done\n\
                for half_second in 1 2 3 4 5 6 7 8 9 10; do\nsleep 0.5\n\
                left=$(for id in $(cat FOLDER/orphans); do [ ! -e /proc/$id ] || echo $id; done)\n\
                echo \"$(cat /proc/1/comm) left: $left\" > FOLDER/left\n\
                [ -n \"$left\" ] || exit 7\ndone\nexit 8";
            let setup = "exec unshare --pid --fork --mount-proc --kill-child \"$0\" \"$@\"";
            let mut agent = Agent::start_after(&world, setup, |text| {
                let state = text.lines().find_map(|line| line.strip_prefix("state_dir = \"")).unwrap();
                let folder = Path::new(state.trim_end_matches('"')).parent().unwrap().to_owned();
                let text = text.replacen("[agent]", &format!("[agent]\nsandbox = \"{sandbox}\""), 1);
                text + &child(&folder, &lines.replace("FOLDER", &folder.display().to_string()), "")
            });
            let status = agent.binary.wait(LIMIT);
            let left = std::fs::read_to_string(agent.path("left"));
            let output = agent.binary.output();
            assert_eq!(left.as_deref().ok(), Some("keyward left: \n"), "{sandbox}: {left:?} {output}");
            assert_eq!(status.code(), Some(7), "{sandbox}: {output}");
        }
    });
}
