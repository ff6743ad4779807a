//! `keyward template try` and `keyward exec`, with the real agent behind them.

use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation, Role};
use serde_json::json;

use crate::harness::agent::Agent;
use crate::harness::binary::{eventually, run};
use crate::harness::world::{World, run_in_network_namespace};

/// An agent with an API proxy, and a secret to read.
fn start(world: &World) -> Agent {
    let token = world.secrets.token(&Role::default());
    let url = format!("{}/v1/secret/data/app", world.secrets.url());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let request = reqwest::Client::new().post(url).header("x-vault-token", token.expose_secret());
        let body = json!({ "data": { "password": "canary-5ecret" } });
        assert!(request.json(&body).send().await.unwrap().status().is_success());
    });
    let agent = Agent::ready(world, &[], add_proxy);
    wait_for_proxy(&agent);
    agent
}

/// Adds the API proxy, and the variable that is read through it.
fn add_proxy(text: String) -> String {
    text + "[listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/proxy.sock\"\n\
            [env_template.PASSWORD]\n\
            contents = '{{ with secret \"secret/data/app\" }}{{ .Data.data.password }}{{ end }}'\n"
}

fn wait_for_proxy(agent: &Agent) {
    eventually(Duration::from_secs(20), || {
        if agent.path("proxy.sock").exists() { Ok(()) } else { Err(agent.binary.output()) }
    });
}

#[test]
fn template_try_renders_through_the_running_agent_or_with_its_own_login() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = start(&world);
        let logins = || world.secrets.faults().counts().get(Operation::Login);
        assert_eq!(logins(), 1);
        let (file, config) = (agent.path("app.tmpl"), agent.config.display().to_string());
        let file_name = file.display().to_string();
        let try_it = |template: &str, more: &[&str]| {
            std::fs::write(&file, template).unwrap();
            run(&[&["template", "try", &file_name, "--config", &config], more].concat(), &[("LANG", "C")])
        };
        let good = "{{ with secret \"secret/data/app\" }}{{ .Data.data.password }} {{ env \"LANG\" }}{{ end }}\n";
        assert_eq!(try_it(good, &[]), (0, "canary-5ecret C\n".to_owned(), String::new()));
        assert_eq!(logins(), 1, "it is read through the agent");

        let (code, output, errors) =
            try_it("ok\n{{ with secret \"secret/data/app\" }}{{ .Data.data.pasword }}{{ end }}", &[]);
        assert_eq!((code, output.as_str()), (1, ""));
        assert!(errors.contains("app.tmpl:2:39: there is no \"pasword\" here"), "{errors}");
        let (code, _, errors) = try_it("{{ secret \"secret/data/nowhere\" }}", &[]);
        assert!(code == 1 && errors.contains("the secret secret/data/nowhere does not exist: HTTP 404"), "{errors}");
        let (code, _, errors) = try_it("{{ key \"a\" }}", &[]);
        assert!(code == 1 && errors.contains("app.tmpl:1:4: key is not available: it reads Consul"), "{errors}");
        assert!(!errors.contains("canary"), "{errors}");

        let (status, _) = agent.binary.stop();
        assert!(status.success());
        std::fs::write(&file, good).unwrap();
        let (code, output, errors) = run(&["template", "try", &file_name, "--config", &config], &[]);
        assert_eq!((code, output.as_str()), (7, ""), "{errors}");
        let (code, output, errors) =
            run(&["template", "try", &file_name, "--config", &config, "--login"], &[("LANG", "C")]);
        assert_eq!((code, output.as_str()), (0, "canary-5ecret C\n"), "{errors}");
        assert_eq!(logins(), 2);
        assert!(world.secrets.faults().counts().get(Operation::Revoke) >= 1, "its token is revoked");
    });
}

#[test]
fn exec_runs_a_program_with_rendered_variables_and_returns_its_exit_code() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = start(&world);
        let config = agent.config.display().to_string();
        let variables = [("PATH", "/usr/bin:/bin"), ("APP_MODE", "blue"), ("OTHER", "x"), ("AZURE_CLIENT_SECRET", "x")];
        let exec = |more: &[&str], command: &[&str]| {
            run(&[&["exec", "--config", &config], more, &["--"], command].concat(), &variables)
        };
        let (code, output, errors) = exec(&["--pass-env", "APP_*"], &["/usr/bin/env"]);
        assert_eq!(code, 0, "{errors}");
        let mut lines: Vec<_> = output.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["APP_MODE=blue", "PASSWORD=canary-5ecret", "PATH=/usr/bin:/bin"]);
        let (code, _, errors) = exec(&[], &["sh", "-c", "test \"$PASSWORD\" = canary-5ecret && exit 42"]);
        assert_eq!(code, 42, "{errors}");
        let (code, output, _) = exec(&[], &["sh", "-c", "ls /proc/self/fd | wc -l"]);
        // The three, and that of the listing itself.
        assert_eq!((code, output.trim()), (0, "4"));
        let (code, _, errors) = exec(&[], &["/nowhere/at/all"]);
        assert!(code == 127 && errors.contains("/nowhere/at/all"), "{errors}");
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 1);
    });
}

#[test]
fn exec_names_the_agents_proxy_if_its_session_has_no_token() {
    run_in_network_namespace(|| {
        let world = World::start();
        world.secrets.faults().respond_always(Operation::Login, Some(CannedResponse::error(503, "Vault is sealed")));
        let agent = Agent::start(&world, &[], add_proxy);
        agent.logs("token.login.failed");
        wait_for_proxy(&agent);
        let config = agent.config.display().to_string();
        let (code, output, errors) = run(&["exec", "--config", &config, "--", "/usr/bin/env"], &[]);
        assert_eq!((code, output.as_str()), (75, ""), "{errors}");
        let expected = "PASSWORD: the agent's API proxy does not respond as expected: HTTP 503";
        assert!(errors.contains(expected), "{errors}");
    });
}

#[test]
fn exec_starts_no_program_with_a_variable_whose_template_cannot_be_read() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = start(&world);
        let config = agent.path("other.toml");
        let more = "[env_template.OTHER]\nsource = \"/nowhere/at/all.tmpl\"\n";
        std::fs::write(&config, std::fs::read_to_string(&agent.config).unwrap() + more).unwrap();
        let (code, output, errors) = run(&["exec", "--config", config.to_str().unwrap(), "--", "/usr/bin/env"], &[]);
        assert_eq!((code, output.as_str()), (3, ""), "{errors}");
        assert!(errors.contains("env_template.OTHER.source: ") && errors.contains("/nowhere/at/all.tmpl"), "{errors}");
    });
}

#[test]
fn a_command_that_needs_a_session_says_that_the_configuration_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keyward.toml");
    let data_dir = folder.path().join("acl");
    let text = format!("[acl]\nlisten = \"tcp://127.0.0.1:8500\"\ndata_dir = \"{}\"\n", data_dir.display());
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    for args in [&["login"][..], &["login", "-s", "web"], &["template", "try", file, "--login"]] {
        let (code, output, errors) = run(&[args, &["--config", file]].concat(), &[]);
        assert_eq!((code, output.as_str()), (1, ""), "{args:?}: {errors}");
        assert!(errors.contains("the configuration has no [session.NAME]"), "{args:?}: {errors}");
    }
}
