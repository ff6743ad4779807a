//! Every command of the real binary: its output, its secrecy and its exit code.

use std::path::Path;
use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation};
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::agent::Agent;
use crate::harness::binary::{Binary, ask, eventually, run};
use crate::harness::ports;
use crate::harness::world::{World, run_in_network_namespace};

const COMMANDS: [&str; 10] =
    ["run", "dev", "check", "login", "status", "token", "wait", "healthcheck", "acl", "completions"];

/// Writes a configuration with a server that does not answer; returns its path.
fn config(folder: &Path, text: &str) -> String {
    let path = folder.join("keyward.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn config_without_server(folder: &Path) -> String {
    let folder_name = folder.display();
    let text = format!(
        "[server.main]\nkind = \"vault\"\naddress = \"http://127.0.0.1:9\"\n\
         [session.web.cloud]\nrole = \"web\"\nresource = \"https://management.azure.com/\"\n\
         [listener.local]\naddress = \"unix://{folder_name}/api.sock\"\n\
         [agent]\nstate_dir = \"{folder_name}\"\n"
    );
    config(folder, &text)
}

#[test]
fn t23_every_command_has_help_with_an_example_and_takes_no_secret() {
    for command in COMMANDS {
        let (code, help, _) = run(&[command, "--help"], &[]);
        assert_eq!(code, 0, "{command}");
        assert!(help.contains("\nExample:\n  ") || help.contains("\nExamples:\n  "), "{help}");
        let options = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
        for option in options {
            let name = option.split([' ', ',']).next().unwrap();
            let file = name.ends_with("-file");
            let secret = ["token", "secret", "password", "key", "credential"].iter().any(|word| name.contains(word));
            let secret = secret && !file;
            assert!(!secret, "{command} --{name}");
        }
        let (code, _, error) = run(&[command, "--token", "hvs.on-the-command-line"], &[]);
        assert_eq!(code, 1, "{command}: {error}");
        assert!(error.contains("unexpected argument '--token'"), "{error}");
    }
    let (code, help, _) = run(&["--help"], &[]);
    assert_eq!(code, 0);
    for word in COMMANDS.iter().chain(&["Exit codes:\n  0   done"]) {
        assert!(help.contains(word), "{word} in {help}");
    }
    let (code, version, _) = run(&["--version"], &[]);
    assert_eq!((code, version), (0, format!("keyward {}\n", env!("CARGO_PKG_VERSION"))));
    assert_eq!(run(&["fly"], &[]).0, 1);
    assert_eq!(run(&[], &[]).0, 1);
}

#[test]
fn completions_are_printed_for_each_shell() {
    for (shell, expected) in
        [("bash", "complete -F _keyward"), ("zsh", "#compdef keyward"), ("fish", "complete -c keyward")]
    {
        let (code, script, error) = run(&["completions", shell], &[]);
        assert_eq!((code, error.as_str()), (0, ""), "{shell}");
        assert!(script.contains(expected) && script.contains("healthcheck"), "{shell}: {script}");
    }
    assert_eq!(run(&["completions", "tcsh"], &[]).0, 1);
}

#[test]
fn every_command_lists_all_errors_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[server.main]\nkind = \"vault\"\nadress = \"https://vault.example\"\n\
                [session.web]\nmout = \"azure\"\n[session.web.cloud]\nrole = \"web\"\n";
    let file = config(folder.path(), text);
    let mistakes = [
        format!("{file}:1:9: server.main.address: missing; "),
        format!("{file}:3:1: server.main.adress: an unknown key; did you mean address?"),
        format!("{file}:5:1: session.web.mout: an unknown key; did you mean mount?"),
        format!("{file}:6:14: session.web.cloud.resource: missing; "),
    ];
    let check = |args: &[&str], expected: i32| {
        let (code, output, error) = run(args, &[]);
        assert_eq!(code, expected, "{args:?}: {error}");
        for mistake in &mistakes {
            assert!(output.contains(mistake) || error.contains(mistake), "{mistake} by {args:?}: {output}{error}");
        }
    };
    check(&["run", "--config", &file], 78);
    for command in ["check", "login"] {
        check(&[command, "--config", &file], 3);
    }
    let (code, output, _) = run(&["check", "--format", "json", "--config", &file], &[]);
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((code, &report["ok"]), (3, &Value::Bool(false)));
    let places: Vec<_> =
        report["errors"].as_array().unwrap().iter().map(|error| (error["line"].as_u64(), &error["key"])).collect();
    assert_eq!(places.len(), 4, "{places:?}");
    assert_eq!(places[1], (Some(3), &Value::from("server.main.adress")));

    let missing = folder.path().join("missing.toml").display().to_string();
    for (command, expected) in [("run", 78), ("check", 3), ("login", 3)] {
        let (code, output, error) = run(&[command, "--config", &missing], &[]);
        assert_eq!(code, expected, "{command}");
        assert!(format!("{output}{error}").contains(&missing), "{output}{error}");
    }
}

#[test]
fn an_unknown_log_level_is_an_error_of_the_command_line() {
    for command in COMMANDS.into_iter().filter(|command| *command != "completions") {
        for level in ["loud", "info,,", "5"] {
            // A group lists its commands even if another argument is wrong.
            let words: &[&str] = match command {
                "acl" => &["acl", "serve", "--dir", "x"],
                _ => &[command],
            };
            let (code, _, error) = run(&[&["--log-level", level], words].concat(), &[]);
            assert_eq!(code, 1, "{command}: {error}");
            assert!(error.contains("is not a log level; write error, warn, info"), "{error}");
        }
    }
}

#[test]
fn commands_report_that_no_agent_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = config_without_server(folder.path());
    let socket = folder.path().join("api.sock").display().to_string();
    for command in ["status", "token", "healthcheck"] {
        let (code, output, error) = run(&[command, "--config", &file], &[]);
        assert_eq!((code, output.as_str()), (7, ""), "{command}: {error}");
        assert!(error.contains("no agent answers: ") && error.contains(&socket), "{error}");
    }
    let (code, _, error) = run(&["wait", "--timeout", "300ms", "--config", &file], &[]);
    assert_eq!(code, 5, "{error}");
    assert!(error.contains("not ready after 300ms"), "{error}");

    let text = std::fs::read_to_string(&file).unwrap();
    let file = config(folder.path(), text.split("[listener").next().unwrap());
    let (code, _, error) = run(&["status", "--config", &file], &[]);
    assert_eq!(code, 1);
    assert!(error.contains("has no local API to ask"), "{error}");
}

#[test]
fn an_agent_without_a_token_is_live_and_not_ready() {
    run_in_network_namespace(|| {
        let world = World::start();
        let refused = "Azure token verified, but the principal is not bound to this role";
        world.secrets.faults().respond_always(Operation::Login, Some(CannedResponse::error(403, refused)));
        let agent = Agent::start(&world, &[], |text| text);
        agent.logs("token.login.failed");
        agent.logs("code=\"KW-1101\"");
        let file = agent.config.display().to_string();
        let check = |args: &[&str], expected: i32, expected_output: &str| {
            let args: Vec<&str> = args.iter().copied().chain(["--config", &file]).collect();
            let (code, output, error) = run(&args, &[]);
            assert_eq!(code, expected, "{args:?}: {output}{error}");
            assert!(
                format!("{output}{error}").contains(expected_output),
                "{args:?} tells {expected_output:?}: {output}{error}"
            );
        };
        check(&["healthcheck", "--live"], 0, "");
        check(&["healthcheck"], 4, "session/web: ");
        check(&["token"], 4, refused);
        check(&["token", "--wait", "200ms"], 4, refused);
        check(&["wait", "--timeout", "2s"], 5, "session/web: ");
        check(&["status"], 0, refused);
        check(&["status"], 0, "[KW-1101]");
        check(&["status", "-o", "json"], 0, "\"last_error_code\": \"KW-1101\"");
    });
}

#[test]
fn commands_query_a_running_agent() {
    run_in_network_namespace(|| {
        let world = World::start();
        world.secrets.faults().set_unresponsive(true);
        let agent = Agent::start(&world, &[], |text| text);
        let file = agent.config.display().to_string();
        let waiting = std::thread::spawn({
            let file = file.clone();
            move || run(&["wait", "--timeout", "20s", "--config", &file], &[])
        });
        let token = std::thread::spawn({
            let file = file.clone();
            move || {
                eventually(Duration::from_secs(30), || match run(&["token", "--wait", "20s", "--config", &file], &[]) {
                    (7, _, error) => Err(error),
                    answered => Ok(answered),
                })
            }
        });
        agent.logs("identity.source.chosen");
        world.secrets.faults().set_unresponsive(false);
        let sink = agent.sink("token");
        assert_eq!(waiting.join().unwrap().0, 0);
        assert_eq!(token.join().unwrap(), (0, format!("{sink}\n"), String::new()));

        let run_ok = |args: &[&str]| {
            let args: Vec<&str> = args.iter().copied().chain(["--config", &file]).collect();
            let (code, output, error) = run(&args, &[]);
            assert_eq!((code, error.as_str()), (0, ""), "{args:?}");
            output
        };
        assert_eq!(run_ok(&["healthcheck"]), "");
        let response: Value =
            serde_json::from_str(&run_ok(&["token", "--format", "json", "--session", "web"])).unwrap();
        assert_eq!((&response["token"], &response["session"]), (&Value::from(sink.clone()), &Value::from("web")));
        let status = run_ok(&["status"]);
        assert!(status.contains("web") && status.contains(world.secrets.url()), "{status}");
        assert!(!status.contains(&sink), "no token in it");
        let status: Value = serde_json::from_str(&run_ok(&["status", "--format", "json"])).unwrap();
        assert_eq!(status["sessions"]["web"]["serving"], true);
        let (code, _, error) = run(&["token", "--session", "other", "--config", &file], &[]);
        assert_eq!(code, 1);
        assert!(error.contains("it serves web"), "{error}");
    });
}

#[test]
fn a_wrong_listener_key_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let port = ports::reserve().port();
    let key = folder.path().join("local.key");
    std::fs::write(&key, "the-key-that-the-agent-read").unwrap();
    let text = std::fs::read_to_string(config_without_server(folder.path())).unwrap();
    let local = format!("address = \"tcp://127.0.0.1:{port}\"\nkey_file = \"{}\"", key.display());
    let unix = format!("address = \"unix://{}/api.sock\"", folder.path().display());
    let file = config(folder.path(), &text.replace(&unix, &local));
    let agent = Binary::start(&["run", "--config", &file], &[], folder.path());
    eventually(Duration::from_secs(30), || match run(&["healthcheck", "--live", "--config", &file], &[]) {
        (0, ..) => Ok(()),
        other => Err(format!("{other:?} {}", agent.output())),
    });
    assert_eq!(run(&["status", "--config", &file], &[]).0, 0);
    std::fs::write(&key, "another-key-of-this-length").unwrap();
    for command in ["status", "token"] {
        let (code, output, error) = run(&[command, "--config", &file], &[]);
        assert_eq!((code, output.as_str()), (6, ""), "{command}: {error}");
        assert!(!error.contains("another-key"), "{error}");
    }
}

#[test]
fn check_describes_the_agent_and_tries_it_with_online() {
    run_in_network_namespace(|| {
        let world = World::start();
        let folder = tempfile::tempdir().unwrap();
        let file = world.config(folder.path(), "");
        let (code, plan, _) = run(&["check", "--config", &file], &[]);
        assert_eq!(code, 0, "{plan}");
        for word in ["web", world.secrets.url(), "https://management.azure.com/", "/token", "/api.sock"] {
            assert!(plan.contains(word), "{word} in {plan}");
        }
        let counts = || world.secrets.faults().counts();
        assert_eq!(counts().total(), 0, "nothing is sent");

        let (code, output, _) = run(&["check", "--online", "--config", &file], &[]);
        assert_eq!(code, 0, "{output}");
        assert!(output.contains("the token is revoked"), "{output}");
        assert_eq!((counts().get(Operation::Login), counts().get(Operation::Revoke)), (1, 1));
        assert_eq!(world.secrets.faults().tokens(), 0);
        assert!(!output.contains("eyJ") && !output.contains("hvs."), "{output}");
        let (code, output, _) = run(&["check", "--online", "--format", "json", "--config", &file], &[]);
        let report: Value = serde_json::from_str(&output).unwrap();
        assert_eq!((code, &report["ok"]), (0, &Value::Bool(true)));
        assert!(report["online"].as_array().unwrap().iter().all(|step| step["ok"] == true), "{report}");

        let good = std::fs::read_to_string(&file).unwrap();
        for (from, to, stderr) in [
            ("role = \"web\"", "role = \"other\"", "role"),
            ("https://management.azure.com/", "https://vault.azure.net", "audience"),
            (world.secrets.url(), "http://127.0.0.1:9", "127.0.0.1:9"),
            (world.secrets.url(), "https://no-such-host.invalid", "no-such-host.invalid"),
        ] {
            std::fs::write(&file, good.replace(from, to)).unwrap();
            let (code, output, error) = run(&["check", "--online", "--config", &file], &[]);
            assert_eq!(code, 2, "{to}: {output}{error}");
            let failed = output.lines().find(|line| line.contains("FAILED")).unwrap();
            assert!(failed.contains(stderr), "{stderr}: {failed}");
        }
        std::fs::write(&file, good.replace("role = \"web\"", "role = \"other\"")).unwrap();
        let (code, output, _) = run(&["check", "--online", "--format", "json", "--config", &file], &[]);
        let report: Value = serde_json::from_str(&output).unwrap();
        assert_eq!((code, report["online"].as_array().unwrap().iter().any(|step| step["ok"] == false)), (2, true));
        assert_eq!(report["ok"], false, "what failed online is no success: {report}");
    });
}

#[test]
fn login_prints_the_token_only_with_reveal() {
    run_in_network_namespace(|| {
        let world = World::start();
        let folder = tempfile::tempdir().unwrap();
        let file = world.config(folder.path(), "");
        let sink = folder.path().join("token");
        let login = |args: &[&str]| {
            let args: Vec<&str> = args.iter().copied().chain(["--config", &file]).collect();
            run(&args, &[])
        };
        for args in [&["login"][..], &["login", "--format", "json"], &["--log-level", "trace", "login"]] {
            let (code, output, error) = login(args);
            assert_eq!(code, 0, "{error}");
            assert!(output.contains("web") && output.contains("metadata"), "{output}");
            assert!(!format!("{output}{error}").contains("eyJ"), "{args:?}: {error}");
            let secret =
                |text: &str| text.split_whitespace().any(|word| word.starts_with("hvs.") || word.starts_with("s."));
            assert!(!secret(&output) && !secret(&error), "{args:?}: {output}{error}");
            assert_eq!(world.secrets.faults().tokens(), 0, "a token that nobody can use is revoked");
        }
        let (code, output, _) = login(&["login", "--reveal", "--format", "json"]);
        let response: Value = serde_json::from_str(&output).unwrap();
        let token = response["token"].as_str().unwrap();
        assert_eq!(code, 0);
        assert!(token.len() > 10, "{token}");
        let (_, output, error) = login(&["--log-level", "trace", "login", "--reveal"]);
        let revealed = output.lines().find_map(|line| line.strip_prefix("Token:")).unwrap().trim();
        assert!(revealed.len() > 10 && !error.contains(revealed), "it stands in the log");
        assert_eq!(world.secrets.faults().tokens(), 2, "one that is shown lives on");
        assert!(!sink.exists(), "a trial writes nothing");
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 5);

        world.secrets.faults().respond_next(Operation::Login, CannedResponse::error(403, "permission denied"));
        let (code, _, error) = login(&["login"]);
        assert_eq!(code, 2, "{error}");
        assert!(error.contains("session web: ") && error.contains("permission denied"), "{error}");
        world.secrets.faults().fail_next_login(1);
        assert_eq!(login(&["login"]).0, 75, "it may work later");
        let (code, _, error) = login(&["login", "--session", "other"]);
        assert_eq!(code, 1);
        assert!(error.contains("there are: web"), "{error}");

        let text = std::fs::read_to_string(&file).unwrap();
        let second = "[session.second]\nserver = \"main\"\n[session.second.cloud]\nrole = \"web\"\nresource = \"https://management.azure.com/\"\n";
        std::fs::write(&file, text.replace("[sink.token]\n", &format!("{second}[sink.token]\nsession = \"web\"\n")))
            .unwrap();
        let (code, _, error) = login(&["login"]);
        assert_eq!(code, 1, "{error}");
        assert!(error.contains("--session is needed") && error.contains("second, web"), "{error}");
        assert_eq!(login(&["login", "--session", "second"]).0, 0);
    });
}

#[test]
fn a_second_agent_cannot_use_the_listeners_and_sinks_of_the_first() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| {
            text + "[listener.probes]\nkind = \"health\"\naddress = \"tcp://127.0.0.1:8303\"\n"
        });
        let token = agent.sink("token");
        let text = std::fs::read_to_string(&agent.config).unwrap();
        let file = agent.path("second.toml");
        let second = |from: &str, to: &str| {
            std::fs::write(&file, text.replace(from, to)).unwrap();
            run(&["run", "--config", file.to_str().unwrap()], &[])
        };

        let (code, _, error) = second("tcp://127.0.0.1:8303", "tcp://127.0.0.1:8304");
        assert_eq!(code, 1);
        let socket =
            format!("listener local cannot listen on unix://{}: another process listens", agent.socket().display());
        assert!(error.contains(&socket) && error.contains("[KW-1501]"), "{error}");

        let (code, _, error) = second("api.sock", "other.sock");
        assert_eq!(code, 1);
        assert!(
            error.contains("listener probes cannot listen on tcp://127.0.0.1:8303: Address already in use"),
            "{error}"
        );

        // A sink that another agent writes is waited for: it may be an update that overlaps.
        std::fs::write(&file, text.replace("api.sock", "other.sock").replace("8303", "8305").replace("/state\"", "\""))
            .unwrap();
        let output = agent.path("second");
        std::fs::create_dir(&output).unwrap();
        let other = Binary::start(&["run", "--config", file.to_str().unwrap()], &[], &output);
        eventually(Duration::from_secs(30), || {
            let output = other.output();
            let reported = output.contains("another agent writes") && output.contains("code=\"KW-1405\"");
            if reported { Ok(()) } else { Err(output) }
        });
        let (status, body) = ask(&agent.path("other.sock"), "GET", "/readyz").unwrap();
        assert_eq!(status, 503);
        assert!(body.contains("another agent writes") && body.contains("/token"), "{body}");
        assert_eq!(agent.sink("token"), token, "the first one's stays");
        other.signal(Signal::TERM);
    });
}
