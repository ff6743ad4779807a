//! The sandbox of a running agent: what it gives up, what goes on working in it, and reloads that need more.

use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::harness::agent::Agent;
use crate::harness::binary::{Binary, ask, assert_no_rights, eventually, of_threads, run};
use crate::harness::dns::{Dns, DnsAnswer, mount_at, resolver_settings};
use crate::harness::not_run::{is_root, not_run};
use crate::harness::program::write_script;
use crate::harness::refused_calls::{CREATE_RULESET, ENOSYS, can_refuse_calls, without};
use crate::harness::world::{World, run_in_network_namespace};

const LIMIT: Duration = Duration::from_secs(30);

/// Adds a setting to `[agent]`.
fn with_sandbox(text: &str, mode: &str) -> String {
    text.replacen("[agent]\n", &format!("[agent]\nsandbox = \"{mode}\"\n"), 1)
}

fn is_supported(agent: &Agent) -> bool {
    let abi = agent.get("/agent/v1/status")["sandbox"]["landlock_abi"].as_u64().unwrap();
    if abi < 6 {
        not_run(&format!("Landlock ABI {abi} is too old"));
    }
    abi >= 6
}

fn script(folder: &Path, name: &str, lines: &str) -> String {
    let path = folder.join(name);
    write_script(&path, lines);
    path.display().to_string()
}

#[test]
fn t38_an_agent_in_its_sandbox_has_no_capabilities_and_runs_programs_with_their_own_rights() {
    run_in_network_namespace(|| {
        let world = World::start();
        let outside = tempfile::tempdir().unwrap();
        let out = outside.path().display().to_string();
        let command =
            script(outside.path(), "command.sh", &format!("cat /etc/shadow > {out}/command && echo x >> {out}/runs"));
        let lines = format!(
            "grep -E 'NoNewPrivs|CapEff' /proc/self/status > {out}/rights\necho $$ > {out}/pid.new; mv {out}/pid.new {out}/pid\nexec sleep 600"
        );
        let child = script(outside.path(), "child.sh", &lines);
        let agent = Agent::ready(&world, &[("PATH", "/usr/bin:/bin")], |text| {
            with_sandbox(&text, "enforce")
                + &format!(
                    "[template.page]\ncontents = \"page\"\ndestination = \"FOLDER/page\"\ncommand = [\"{command}\"]\n\
                     [process]\ncommand = [\"{child}\"]\n"
                )
        });
        if !is_supported(&agent) {
            return;
        }
        agent.logs("event=\"sandbox.applied\"");
        assert_no_rights(agent.binary.id());
        for part in ["no_new_privileges", "capabilities", "files", "ports", "scopes"] {
            assert_eq!(agent.metric(&format!("keyward_sandbox{{part=\"{part}\"}}")), 1, "{part}");
        }
        assert_eq!(agent.metric("keyward_spawner_up"), 1);
        assert!(!agent.sink("token").is_empty());
        assert_eq!(agent.sink("page"), "page");
        let read = |name: &str| {
            eventually(LIMIT, || match std::fs::read_to_string(outside.path().join(name)) {
                Ok(text) if !text.is_empty() => Ok(text),
                other => Err(format!("{name}: {other:?}; {}", agent.binary.output())),
            })
        };
        assert_eq!(read("runs"), "x\n");
        let ours = of_threads(std::process::id(), "CapEff:").remove(0);
        let rights = read("rights");
        assert!(rights.contains("NoNewPrivs:\t0") && rights.contains(&ours), "{rights}");
        // Signals and the end of the agent reach the child.
        let child = Pid::from_raw(read("pid").trim().parse().unwrap()).unwrap();
        agent.reload("ok");
        agent.binary.signal(Signal::KILL);
        eventually(
            LIMIT,
            || if test_kill_process(child).is_err() { Ok(()) } else { Err("the child lives".to_owned()) },
        );
    });
}

#[test]
fn a_reload_that_needs_more_than_the_sandbox_allows_is_refused_with_what_it_needs() {
    run_in_network_namespace(|| {
        let world = World::start();
        let outside = tempfile::tempdir().unwrap();
        let agent = Agent::ready(&world, &[], |text| with_sandbox(&text, "best_effort"));
        if !is_supported(&agent) {
            return;
        }
        let whole = std::fs::read_to_string(&agent.config).unwrap();
        let refused = |more: &str, expected: &str| {
            agent.edit(|_| format!("{whole}{more}"));
            agent.reload("failed");
            let status = agent.get("/agent/v1/status");
            let error = status["reload_error"].as_str().unwrap_or_default();
            assert_eq!(status["reload_needs_restart"], true);
            assert!(error.contains("needs more than the sandbox allows") && error.contains(expected), "{error}");
            assert!(error.contains("systemctl restart keyward"), "{error}");
        };
        let folder = outside.path().display();
        let template = format!("[template.page]\ncontents = \"page\"\ndestination = \"{folder}/page\"\n");
        refused(&template, &format!("writes in {folder}"));
        refused("[process]\ncommand = [\"/bin/sleep\", \"600\"]\n", "runs /bin/sleep");
        refused("[listener.other]\nkind = \"health\"\naddress = \"tcp://127.0.0.1:8999\"\n", "listens on port 8999");
        assert!(!outside.path().join("page").exists());
        assert_eq!(ask(&agent.socket(), "GET", "/agent/v1/token").unwrap().0, 200);
        agent.edit(|_| format!("{whole}[template.page]\ncontents = \"page\"\ndestination = \"FOLDER/page\"\n"));
        agent.reload("ok");
        assert_eq!(agent.sink("page"), "page");
    });
}

#[test]
fn a_reload_to_another_program_runs_it_as_the_spawner_finds_it_in_the_configuration() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[("PATH", "/usr/bin:/bin"), ("PAGE", "page")], |text| {
            let page = "[template.page]\ncontents = \"page\"\ndestination = \"FOLDER/${env:PAGE}\"\n";
            let process = "[process]\ncommand = [\"/bin/sleep\", \"600\"]\nrestart = \"always\"\n";
            format!("{}{page}{process}", with_sandbox(&text, "best_effort"))
        });
        if !is_supported(&agent) {
            return;
        }
        agent.edit(|text| {
            let command = "[\"/bin/sh\", \"-c\", \"echo $NEW $$ > FOLDER/ran; exec sleep 600\"]";
            let text = text.replace("[\"/bin/sleep\", \"600\"]", command);
            format!("{text}[env_template.NEW]\ncontents = \"new\"\n")
        });
        agent.reload("ok");
        let running = || {
            let ran = std::fs::read_to_string(agent.path("ran")).map_err(|error| error.to_string())?;
            ran.trim().strip_prefix("new ").and_then(|pid| pid.parse::<i32>().ok()).ok_or(ran)
        };
        let first = eventually(LIMIT, running);

        // The agent keeps its configuration, and the spawner the program that it found.
        agent.edit(|text| text.replace("restart = \"always\"", "restart = \"sometimes\""));
        agent.reload("failed");
        kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
        eventually(LIMIT, || running().and_then(|pid| if pid == first { Err(pid.to_string()) } else { Ok(()) }));
    });
}

#[test]
fn a_file_of_a_reference_is_read_again_by_a_reload() {
    run_in_network_namespace(|| {
        let world = World::start();
        let (names, pages) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = names.path().join("name");
        std::fs::write(&name, format!("{}/page\n", pages.path().display())).unwrap();
        let destination = format!("${{file:{}}}", name.display());
        let agent = Agent::ready(&world, &[], |text| {
            let text = with_sandbox(&text, "best_effort");
            format!("{text}[template.page]\ncontents = \"1\"\ndestination = \"{destination}\"\n")
        });
        if !is_supported(&agent) {
            return;
        }
        agent.edit(|text| text.replace("contents = \"1\"", "contents = \"2\""));
        agent.reload("ok");
        eventually(LIMIT, || {
            let page = std::fs::read_to_string(pages.path().join("page")).unwrap();
            if page == "2" { Ok(()) } else { Err(page) }
        });
    });
}

#[test]
fn a_kernel_without_landlock_is_said_once_and_is_an_error_where_the_sandbox_is_enforced() {
    if !can_refuse_calls() {
        return;
    }
    run_in_network_namespace(|| {
        let world = World::start();
        let old = without(&[(CREATE_RULESET, -1, 0, ENOSYS)]);
        let agent = Agent::ready_after(&world, &old, |text| text);
        agent.logs("event=\"sandbox.incomplete\"");
        let output = agent.binary.output();
        assert_eq!(output.matches("event=\"sandbox.incomplete\"").count(), 1, "{output}");
        assert!(output.contains("the kernel has no Landlock"), "{output}");
        let status = agent.get("/agent/v1/status");
        assert_eq!(status["sandbox"]["landlock_abi"], 0, "{status}");
        assert_eq!(agent.metric("keyward_sandbox{part=\"files\"}"), 0);
        assert_eq!(agent.metric("keyward_sandbox{part=\"no_new_privileges\"}"), 1);

        agent.edit(|text| with_sandbox(&text, "enforce"));
        let config = agent.config.display().to_string();
        let variables = [("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")];
        let mut enforced = Binary::start_after(&old, &["run", "--config", &config], &variables, &agent.path(""));
        assert!(!enforced.wait(LIMIT).success());
        let output = enforced.output();
        assert!(output.contains("agent.sandbox is \"enforce\"") && output.contains("has no Landlock"), "{output}");
    });
}

#[test]
fn the_end_of_the_spawner_is_reported_and_its_programs_end_with_it() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[("PATH", "/usr/bin:/bin")], |text| {
            let child = "echo $$ > FOLDER/pid.new; mv FOLDER/pid.new FOLDER/pid; exec sleep 600";
            format!("{text}[process]\ncommand = [\"/bin/sh\", \"-c\", \"{child}\"]\nrestart = \"always\"\n")
        });
        let child = Pid::from_raw(agent.sink("pid").trim().parse().unwrap()).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.as_raw_nonzero())).unwrap();
        let spawner = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap();
        assert_ne!(Some(spawner), i32::try_from(agent.binary.id()).ok());
        // A signal of the service manager to the whole group does not end it.
        let spawner = Pid::from_raw(spawner).unwrap();
        kill_process(spawner, Signal::TERM).unwrap();
        kill_process(spawner, Signal::HUP).unwrap();
        agent.reload("ok");
        assert_eq!(agent.metric("keyward_spawner_up"), 1, "{}", agent.binary.output());

        kill_process(spawner, Signal::KILL).unwrap();
        agent.logs("event=\"spawner.ended\"");
        eventually(
            LIMIT,
            || if test_kill_process(child).is_err() { Ok(()) } else { Err("the child lives".to_owned()) },
        );
        assert_eq!(agent.metric("keyward_spawner_up"), 0);
        assert_eq!(agent.components()["spawner"]["ready"], false);
        assert_eq!(ask(&agent.socket(), "GET", "/agent/v1/token").unwrap().0, 200);
    });
}

#[test]
fn a_file_that_is_replaced_by_a_swap_of_symlinks_is_read_in_the_sandbox() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| {
            // As a projected volume: `template` leads to `..data/template`, and `..data` to the current folder.
            let state = text.lines().find_map(|line| line.strip_prefix("state_dir = \"")).unwrap();
            let folder = Path::new(state.trim_end_matches('"')).parent().unwrap().to_owned();
            for version in ["one", "two"] {
                std::fs::create_dir_all(folder.join(format!("volume/..{version}"))).unwrap();
                std::fs::write(folder.join(format!("volume/..{version}/template")), version).unwrap();
            }
            symlink("..one", folder.join("volume/..data")).unwrap();
            symlink("..data/template", folder.join("volume/template")).unwrap();
            with_sandbox(&text, "enforce")
                + "[template.page]\nsource = \"FOLDER/volume/template\"\ndestination = \"FOLDER/page\"\n"
        });
        assert_eq!(agent.sink("page"), "one");
        symlink("..two", agent.path("volume/..new")).unwrap();
        std::fs::rename(agent.path("volume/..new"), agent.path("volume/..data")).unwrap();
        agent.reload("ok");
        eventually(LIMIT, || match agent.sink("page") {
            page if page == "two" => Ok(()),
            page => Err(format!("{page}: {}", agent.binary.output())),
        });
    });
}

#[test]
fn a_resolver_configuration_elsewhere_and_one_that_replaces_it_are_read_in_the_sandbox() {
    run_in_network_namespace(|| {
        let world = World::start();
        let folder = tempfile::tempdir().unwrap();
        let etc = folder.path().join("etc");
        std::fs::create_dir(&etc).unwrap();
        for name in ["group", "nsswitch.conf", "passwd"] {
            std::fs::copy(Path::new("/etc").join(name), etc.join(name)).unwrap();
        }
        // As a DHCP client does: a new file under the same name.
        let name_server = |address: Ipv4Addr| {
            std::fs::write(etc.join("new"), resolver_settings(address)).unwrap();
            std::fs::rename(etc.join("new"), etc.join("resolv.conf")).unwrap();
        };
        // Without a configuration, glibc asks 127.0.0.1.
        let [first, second, nowhere] = [2, 3, 4].map(|last| Ipv4Addr::new(127, 0, 0, last));
        std::fs::create_dir(folder.path().join("elsewhere")).unwrap();
        std::fs::write(folder.path().join("elsewhere/resolv.conf"), resolver_settings(first)).unwrap();
        symlink(folder.path().join("elsewhere/resolv.conf"), etc.join("resolv.conf")).unwrap();
        mount_at(&etc, "/etc");
        let _dns = [(first, Ipv4Addr::LOCALHOST), (second, nowhere)]
            .map(|(server, response)| Dns::at(server, DnsAnswer::Addresses(vec![response])));
        let by_name = world.secrets.url().replace("127.0.0.1", "localhost");
        let agent =
            Agent::ready(&world, &[], |text| with_sandbox(&text.replace(world.secrets.url(), &by_name), "enforce"));
        if !is_supported(&agent) {
            return;
        }
        name_server(second);
        // The changed session starts with a new client, which looks the name up.
        agent.edit(|text| text.replace("[server.main]", "[server.main]\nresponse_timeout = \"7s\""));
        agent.reload("ok");
        agent.logs(&nowhere.to_string());
    });
}

#[test]
fn a_file_whose_replacement_the_sandbox_denies_is_told_with_its_remedy() {
    run_in_network_namespace(|| {
        let world = World::start();
        let source = tempfile::Builder::new().prefix("keyward-template-").tempfile_in("/tmp").unwrap();
        std::fs::write(source.path(), "page").unwrap();
        let name = source.path().display().to_string();
        let agent = Agent::ready(&world, &[], |text| {
            format!("{text}[template.page]\nsource = \"{name}\"\ndestination = \"FOLDER/page\"\n")
        });
        if !is_supported(&agent) {
            return;
        }
        assert_eq!(agent.get("/agent/v1/status")["sandbox"]["denied_replacements"], serde_json::json!([name]));
        agent.logs("event=\"sandbox.replacements.denied\"");
        let socket = agent.socket().display().to_string();
        let (code, out, error) = run(&["status", "--address", &socket], &[]);
        assert_eq!(code, 0, "{error}");
        assert!(out.contains(&format!("replacements are not read: {name}")), "{out}");
    });
}

#[test]
fn callers_are_known_by_their_executables_in_a_complete_sandbox_until_the_spawner_ends() {
    if !is_root() {
        return;
    }
    run_in_network_namespace(|| {
        let world = World::start();
        let ours = std::env::current_exe().unwrap().display().to_string();
        let agent = Agent::start(&world, &[], |text| {
            with_sandbox(&text, "enforce")
                + &format!(
                    "[caller.tests]\nexecutable = \"{ours}\"\nsha256 = \"{}\"\nroutes = [\"token\", \"status\"]\n\
                     [caller.root]\nuid = \"0\"\nroutes = [\"status\"]\n",
                    sha256(&ours),
                )
        });
        eventually(LIMIT, || match ask(&agent.socket(), "GET", "/agent/v1/token")? {
            (200, _) => Ok(()),
            other => Err(format!("{other:?}: {}", agent.binary.output())),
        });
        if !is_supported(&agent) {
            return;
        }
        assert_no_rights(agent.binary.id());
        assert_eq!(agent.get("/agent/v1/status")["sandbox"]["missing"], serde_json::json!([]));
        let socket = agent.socket().display().to_string();
        let (code, _, error) = run(&["token", "--address", &socket], &[]);
        assert!(code != 0 && error.contains("caller"), "another program: {error}");
        let spawner = *children(agent.binary.id()).first().expect("a spawner");
        kill_process(spawner, Signal::STOP).unwrap();
        let state = || of_threads(spawner.as_raw_nonzero().get().cast_unsigned(), "State:");
        eventually(LIMIT, || match state() {
            states if states.iter().all(|state| state.starts_with('T')) => Ok(()),
            states => Err(format!("{states:?}")),
        });
        assert_eq!(ask(&agent.socket(), "GET", "/agent/v1/token").unwrap().0, 403);
        agent.logs("event=\"spawner.silent\"");
        eventually(LIMIT, || match &agent.get("/agent/v1/status")["components"]["spawner"]["warning"] {
            warning if warning.to_string().contains("does not respond") => Ok(()),
            warning => Err(warning.to_string()),
        });
        kill_process(spawner, Signal::KILL).unwrap();
        agent.logs("event=\"spawner.ended\"");
        assert_eq!(ask(&agent.socket(), "GET", "/agent/v1/token").unwrap().0, 403);
    });
}

fn sha256(path: &str) -> String {
    let sum = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(sum.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

/// Child processes, the oldest first.
fn children(pid: u32) -> Vec<Pid> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    list.split_whitespace().map(|child| Pid::from_raw(child.parse().unwrap()).unwrap()).collect()
}
