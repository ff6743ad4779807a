//! SIGHUP applies a new configuration as a whole, or keeps the old one and reports the error.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation};
use rustix::process::Signal;

use crate::harness::agent::{Agent, Load};
use crate::harness::binary::{ask, eventually};
use crate::harness::world::{World, run_in_network_namespace};

const OK: &str = "ok";
const FAILED: &str = "failed";

/// The configuration of an agent whose reloads may listen on other ports.
fn without_sandbox(text: String) -> String {
    text.replacen("[agent]\n", "[agent]\nsandbox = \"off\"\n", 1)
}

#[test]
fn a_hundred_reloads_under_load_cause_no_login_and_fail_no_call() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text);
        let token = agent.sink("token");
        let load = Load::start(&agent.socket(), 4);
        for _ in 0..100 {
            agent.reload(OK);
        }
        let (calls, failed) = load.end();
        assert!(failed.is_empty(), "of {calls} calls failed {failed:?}");
        assert!(calls > 200, "{calls} calls are no load");
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 1);
        assert_eq!(agent.get("/agent/v1/token")["token"], token);
        assert_eq!(agent.get("/agent/v1/status")["reload_error"], serde_json::Value::Null);
    });
}

#[test]
fn a_reload_with_errors_keeps_the_old_configuration_and_logs_the_errors() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text);
        let good = std::fs::read_to_string(&agent.config).unwrap();
        let line = good.lines().position(|line| line.starts_with("mode")).unwrap() + 1;
        agent.edit(|text| text.replace("mode = \"0640\"", "mood = \"0640\"\npaths = 3"));
        agent.reload(FAILED);

        let places =
            [format!("{}:{line}:1: ", agent.config.display()), format!("{}:{}:1: ", agent.config.display(), line + 1)];
        let error = agent.get("/agent/v1/status")["reload_error"].as_str().unwrap().to_owned();
        for place in &places {
            assert!(error.contains(place), "{place} in {error}");
            agent.logs(place);
        }
        assert_eq!(ask(&agent.socket(), "GET", "/agent/v1/token").unwrap().0, 200);
        assert_eq!(ask(&agent.socket(), "GET", "/readyz").unwrap().0, 200, "the old configuration is ready as before");

        std::fs::write(&agent.config, good).unwrap();
        agent.reload(OK);
        assert_eq!(agent.get("/agent/v1/status")["reload_error"], serde_json::Value::Null);
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 1);
    });
}

#[test]
fn a_reload_adds_and_removes_outputs() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], without_sandbox);
        let token = agent.sink("token");
        let logins = || world.secrets.faults().counts().get(Operation::Login);

        // Added.
        agent.edit(|text| {
            text + "[sink.more]\npath = \"FOLDER/more\"\n[listener.second]\naddress = \"unix://FOLDER/second.sock\"\n\
                    [listener.probes]\nkind = \"health\"\naddress = \"tcp://127.0.0.1:8301\"\n"
        });
        agent.reload(OK);
        assert_eq!(agent.sink("more"), token);
        assert_eq!(ask(&agent.path("second.sock"), "GET", "/agent/v1/token").unwrap().0, 200);
        assert!(TcpStream::connect("127.0.0.1:8301").is_ok());
        let ready = || agent.components()["sink/more"]["ready"].as_bool();
        eventually(
            Duration::from_secs(30),
            || if ready() == Some(true) { Ok(()) } else { Err(format!("{:?}", ready())) },
        );

        // A listener by another name takes the address over.
        agent.edit(|text| text.replace("[listener.probes]", "[listener.kubelet]"));
        agent.reload(OK);
        assert!(TcpStream::connect("127.0.0.1:8301").is_ok());
        let components = agent.components();
        assert!(components["listener/kubelet"].is_object(), "{components}");
        eventually(Duration::from_secs(30), || match &agent.components()["listener/probes"] {
            serde_json::Value::Null => Ok(()),
            old => Err(format!("{old}")),
        });

        // Removed.
        agent.edit(|text| text.split("[sink.more]").next().unwrap().to_owned());
        agent.reload(OK);
        eventually(Duration::from_secs(30), || match TcpStream::connect("127.0.0.1:8301") {
            Ok(_) => Err("the removed listener still answers".to_owned()),
            Err(_) => Ok(()),
        });
        eventually(Duration::from_secs(30), || match ask(&agent.path("second.sock"), "GET", "/livez") {
            Ok(response) => Err(format!("the removed listener still answers {response:?}")),
            Err(_) => Ok(()),
        });
        assert!(!agent.path("second.sock").exists());
        eventually(Duration::from_secs(30), || match &agent.components() {
            components if components.as_object().unwrap().len() == 3 => Ok(()),
            components => Err(components.to_string()),
        });
        assert_eq!(logins(), 1);

        // The removed sink is not written; the remaining one is.
        world.secrets.faults().revoke_all();
        ask(&agent.socket(), "POST", "/agent/v1/check").unwrap();
        eventually(Duration::from_secs(30), || match agent.sink("token") {
            new if new != token => Ok(()),
            _ => Err(agent.binary.output()),
        });
        assert_eq!(agent.sink("more"), token);
        assert_eq!(logins(), 2);
    });
}

#[test]
fn a_changed_mode_or_level_takes_effect_and_the_socket_stays_where_it_is() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text);
        let mode = |name: &str| std::fs::metadata(agent.path(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("api.sock"), mode("token")), (0o660, 0o640));
        let load = Load::start(&agent.socket(), 4);
        for changed in [0o600, 0o666, 0o660] {
            agent.edit(|text| {
                let text = text.split("mode = \"06").next().unwrap().to_owned();
                let state = agent.path("state");
                format!(
                    "{text}mode = \"0{changed:o}\"\n[listener.local]\naddress = \"unix://FOLDER/api.sock\"\n\
                     mode = \"0{changed:o}\"\n[agent]\nstate_dir = \"{}\"\n",
                    state.display()
                )
            });
            agent.reload(OK);
            assert_eq!(mode("api.sock"), changed);
            eventually(Duration::from_secs(30), || match mode("token") {
                now if now == changed => Ok(()),
                now => Err(format!("{now:o}: {}", agent.binary.output())),
            });
        }
        let (calls, failed) = load.end();
        assert!(failed.is_empty(), "of {calls} calls failed {failed:?}");
        assert!(!agent.binary.output().contains("another agent"), "{}", agent.binary.output());

        assert!(!agent.binary.output().contains("DEBUG"));
        agent.edit(|text| text + "[log]\nlevel = \"debug\"\n");
        agent.reload(OK);
        ask(&agent.socket(), "GET", "/agent/v1/token").unwrap();
        agent.logs("DEBUG");
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 1);
    });
}

#[test]
fn a_port_that_is_taken_fails_the_reload_as_a_whole() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], without_sandbox);
        let taken = TcpListener::bind("127.0.0.1:8302").unwrap();
        agent.edit(|text| {
            text + "[sink.more]\npath = \"FOLDER/more\"\n[listener.first]\naddress = \"unix://FOLDER/first.sock\"\n\
                    [listener.second]\nkind = \"health\"\naddress = \"tcp://127.0.0.1:8302\"\n[log]\nlevel = \"debug\"\n"
        });
        agent.reload(FAILED);
        let error = agent.get("/agent/v1/status")["reload_error"].as_str().unwrap().to_owned();
        assert!(error.contains("listener second") && error.contains("127.0.0.1:8302"), "{error}");
        assert!(error.contains("in use"), "{error}");
        assert!(!agent.path("more").exists(), "nothing of the new file is in force");
        assert!(ask(&agent.path("first.sock"), "GET", "/livez").is_err());
        assert!(!agent.path("first.sock").exists(), "what was bound for it is taken away");
        ask(&agent.socket(), "GET", "/agent/v1/token").unwrap();
        assert!(!agent.binary.output().contains("DEBUG"), "{}", agent.binary.output());
        let components = agent.components();
        assert_eq!(components.as_object().unwrap().len(), 3, "{components}");

        drop(taken);
        agent.reload(OK);
        assert!(TcpStream::connect("127.0.0.1:8302").is_ok());
        assert_eq!(agent.sink("more"), agent.sink("token"));
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 1);
    });
}

#[test]
fn a_listener_that_moves_to_all_addresses_on_its_port_needs_a_restart() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| {
            without_sandbox(text) + "[listener.probes]\nkind = \"health\"\naddress = \"tcp://127.0.0.1:8302\"\n"
        });
        agent.edit(|text| text.replace("127.0.0.1:8302", "0.0.0.0:8302"));
        agent.reload(FAILED);
        let status = agent.get("/agent/v1/status");
        let error = status["reload_error"].as_str().unwrap();
        assert!(error.contains("listener probes of this agent holds the port: restart keyward"), "{error}");
        assert!(!error.contains("KW-1501"), "{error}");
        assert_eq!(status["reload_needs_restart"], true, "{status}");
        assert!(TcpStream::connect("127.0.0.1:8302").is_ok(), "the old listener serves");
    });
}

#[test]
fn a_reload_does_not_wait_for_a_login_that_hangs() {
    run_in_network_namespace(|| {
        let world = World::start();
        world.secrets.faults().set_unresponsive(true);
        let agent = Agent::start(&world, &[], |text| text);
        eventually(Duration::from_secs(30), || ask(&agent.socket(), "GET", "/livez"));
        agent.edit(|text| text + "[sink.more]\npath = \"FOLDER/more\"\n");
        agent.reload(OK);
        assert_eq!(ask(&agent.socket(), "GET", "/agent/v1/token").unwrap().0, 503);
        world.secrets.faults().set_unresponsive(false);
        assert_eq!(agent.sink("more"), agent.sink("token"));
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 1, "the login went on through the reload");
    });
}

#[test]
fn lifecycle_options_can_change_while_the_server_is_unavailable() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text);
        let token = agent.sink("token");
        world.secrets.faults().set_unresponsive(true);
        agent.edit(|text| text.replace("mount = \"azure\"", "mount = \"azure\"\ncheck_interval = \"1h\""));
        agent.reload(OK);
        let (status, body) = ask(&agent.socket(), "GET", "/agent/v1/token").unwrap();
        assert_eq!(status, 200, "{body}");
        assert!(body.contains(&token));
        assert_eq!(ask(&agent.socket(), "GET", "/readyz").unwrap().0, 200);
        world.secrets.faults().set_unresponsive(false);
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 1);
    });
}

#[test]
fn a_removed_session_empties_its_sink_before_it_revokes_its_token() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| {
            text.replace("mount = \"azure\"", "mount = \"azure\"\nrevoke_on_exit = true")
        });
        agent.edit(|text| text.replace("role = \"web\"", "role = \"another\""));
        agent.reload(OK);
        agent.logs("token.revoke.ok");
        let log = agent.binary.output();
        let at = |event: &str| log.find(event).unwrap_or_else(|| panic!("no {event} in {log}"));
        assert!(at("sink.emptied") < at("token.revoke.ok"), "{log}");
    });
}

#[test]
fn a_session_keeps_its_token_across_a_lifecycle_change_and_logs_in_for_another_server() {
    run_in_network_namespace(|| {
        let world = World::start();
        let logins = || world.secrets.faults().counts().get(Operation::Login);
        let agent = Agent::ready(&world, &[], |text| text);
        let token = agent.sink("token");
        let load = Load::start(&agent.socket(), 2);
        for setting in ["check_interval = \"20s\"", "check_interval = \"off\"", "login_jitter = \"1h\""] {
            agent.edit(|text| text.replace("mount = \"azure\"\n", &format!("mount = \"azure\"\n{setting}\n")));
            agent.reload(OK);
            agent.edit(|text| text.replace(&format!("{setting}\n"), ""));
        }
        let (calls, failed) = load.end();
        assert!(failed.is_empty(), "of {calls} calls failed {failed:?}");
        assert_eq!((agent.sink("token"), logins()), (token, 1));

        for (round, proxy) in [(2, "direct"), (3, "environment")] {
            let before = agent.sink("token");
            agent.edit(|text| {
                let (start, end) = (text.find("[server.main]").unwrap(), text.find("[session.web]").unwrap());
                let server = text[start..end].lines().filter(|line| !line.starts_with("proxy")).collect::<Vec<_>>();
                format!("{}{}\nproxy = \"{proxy}\"\n{}", &text[..start], server.join("\n"), &text[end..])
            });
            agent.reload(OK);
            eventually(Duration::from_secs(30), || match agent.sink("token") {
                new if new != before => Ok(()),
                _ => Err(agent.binary.output()),
            });
            // Longer than the old process may take to save its state.
            std::thread::sleep(Duration::from_millis(300));
            let status = agent.get("/agent/v1/status");
            assert_eq!(status["sessions"]["web"]["serving"], true, "{status}");
            assert_eq!(agent.get("/agent/v1/token")["token"], agent.sink("token"));
            assert_eq!(ask(&agent.socket(), "GET", "/readyz").unwrap().0, 200);
            assert_eq!(logins(), round);
        }
    });
}

/// A role or a resource that the server refuses, and its correction.
const MISTAKES: [(&str, &str); 2] = [
    ("role = \"web\"", "role = \"wbe\""),
    ("resource = \"https://management.azure.com/\"", "resource = \"api://other\""),
];

#[test]
fn a_corrected_session_logs_in_at_once_after_a_reload_and_after_a_restart() {
    run_in_network_namespace(|| {
        let world = World::start();
        for (right, wrong) in MISTAKES {
            for restart in [false, true] {
                let mut agent = Agent::start(&world, &[], |text| text.replace(right, wrong));
                agent.logs("token.login.failed");
                agent.edit(|text| text.replace(wrong, right));
                if restart {
                    agent.binary.signal(Signal::KILL);
                    agent.binary.wait(Duration::from_secs(30));
                    agent.restart(&[]);
                } else {
                    agent.reload(OK);
                }
                // The old refusal would have it wait for 150 s at least.
                agent.sink("token");
            }
        }
    });
}

#[test]
fn a_reload_without_changes_has_a_failing_session_try_at_once_and_no_other() {
    run_in_network_namespace(|| {
        let world = World::start();
        let refused = "Azure token verified, but the principal is not bound to this role";
        world.secrets.faults().respond_always(Operation::Login, Some(CannedResponse::error(403, refused)));
        let agent = Agent::start(&world, &[], |text| text);
        agent.logs("token.login.failed");
        // The error was outside of the configuration, such as the content of a file or the role on the server.
        world.secrets.faults().respond_always(Operation::Login, None);
        agent.reload(OK);
        agent.sink("token");
        let logins = world.secrets.faults().counts().get(Operation::Login);
        agent.reload(OK);
        agent.reload(OK);
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), logins);
    });
}

#[test]
fn a_backoff_that_continues_after_a_restart_reports_its_end_and_its_cause() {
    run_in_network_namespace(|| {
        let world = World::start();
        let mut agent = Agent::start(&world, &[], |text| text.replace("role = \"web\"", "role = \"wbe\""));
        // The first three refusals are followed by a quick retry.
        eventually(Duration::from_mins(1), || {
            let refusals = agent.binary.output().matches("token.login.failed").count();
            if refusals == 4 { Ok(()) } else { Err(refusals.to_string()) }
        });
        let state = agent.path("state").join("web.state");
        eventually(Duration::from_secs(30), || match std::fs::read_to_string(&state) {
            Ok(text) if text.contains("\"failures\":4") => Ok(()),
            other => Err(format!("{other:?}")),
        });
        agent.binary.signal(Signal::KILL);
        agent.binary.wait(Duration::from_secs(30));
        agent.restart(&[]);
        agent.logs("token.login.delayed");
        let output = agent.binary.output();
        let line = output.lines().find(|line| line.contains("token.login.delayed")).unwrap();
        assert!(line.contains("until=") && line.contains("invalid role name"), "{line}");
        assert!(line.contains("4 logins failed in the previous process, the last with: "), "{line}");
        let session = agent.get("/agent/v1/status")["sessions"]["web"].clone();
        assert!(session["last_error"].as_str().unwrap().contains("invalid role name"), "{session}");
        assert!(session["next_step_at"].is_string(), "{session}");
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 4);
    });
}

#[test]
fn a_reload_serves_the_old_token_until_the_new_settings_have_logged_in() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text.replace("mount =", "revoke_on_exit = true\nmount ="));
        let first = agent.sink("token");
        let load = Load::start(&agent.socket(), 4);
        let (right, wrong) = MISTAKES[1];
        agent.edit(|text| text.replace(right, wrong));
        agent.reload(OK);
        agent.logs("token.login.failed");
        assert_eq!(agent.get("/agent/v1/token")["token"], *first);
        assert_eq!(ask(&agent.socket(), "GET", "/readyz").unwrap().0, 200);
        assert_eq!(agent.sink("token"), first);
        let counts = world.secrets.faults().counts();
        assert_eq!(
            (world.secrets.faults().tokens(), counts.get(Operation::Renew)),
            (1, 0),
            "nothing is revoked or renewed"
        );
        assert!(counts.get(Operation::Login) <= 2, "{counts:?}");

        agent.edit(|text| text.replace(wrong, right));
        agent.reload(OK);
        eventually(Duration::from_secs(30), || match agent.sink("token") {
            new if new != first => Ok(()),
            _ => Err(agent.binary.output()),
        });
        let (calls, failed) = load.end();
        assert!(failed.is_empty(), "of {calls} calls failed {failed:?}");

        // Another role's token is another's.
        agent.edit(|text| text.replace("role = \"web\"", "role = \"wbe\""));
        agent.reload(OK);
        eventually(Duration::from_secs(30), || match ask(&agent.socket(), "GET", "/agent/v1/token") {
            Ok((503, _)) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        eventually(Duration::from_secs(30), || match world.secrets.faults().tokens() {
            0 => Ok(()),
            left => Err(format!("{left} tokens were not revoked")),
        });
    });
}

#[test]
fn a_connection_after_a_reload_is_never_judged_by_the_key_before() {
    run_in_network_namespace(|| {
        let (world, folder) = (World::start(), tempfile::tempdir().unwrap());
        let path = folder.path().join("local.key");
        let write = |key: &str| {
            std::fs::write(&path, key).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        write("key-of-round-0-0123456789abcdef0123456789");
        let agent = Agent::ready(&world, &[], |text| {
            text + &format!("\n[listener.tcp]\naddress = \"tcp://127.0.0.1:8200\"\nkey_file = {path:?}\n")
        });
        let ask = |key: &str| {
            let mut stream = TcpStream::connect("127.0.0.1:8200").unwrap();
            let head = format!("Host: localhost\r\nX-Vault-Request: true\r\nX-Keyward-Key: {key}");
            write!(stream, "GET /agent/v1/status HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n").unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).unwrap();
            response.split(' ').nth(1).unwrap().to_owned()
        };
        for round in 1..80 {
            let [old, new] = [round - 1, round].map(|round| format!("key-of-round-{round}-0123456789abcdef0123456789"));
            write(&new);
            agent.reload("ok");
            assert_eq!([ask(&new), ask(&old), ask(&new)], ["200", "403", "200"], "round {round}");
        }
    });
}
