//! `keyward reload`: the running agent reads its configuration again, and the command tells what it says of it.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::harness::agent::Agent;
use crate::harness::binary::{Binary, run};
use crate::harness::not_run;
use crate::harness::world::{World, run_in_network_namespace};

#[test]
fn reload_waits_for_the_result_and_prints_the_errors_of_the_new_configuration() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text);
        let config = agent.config.display().to_string();
        let reload = || run(&["reload", "-c", &config], &[]);
        let pid = agent.binary.id();

        let (code, output, error) = reload();
        assert_eq!((code, error.as_str()), (0, ""), "{output}");
        assert_eq!(output, format!("the agent has reloaded its configuration (pid {pid})\n"));
        assert_eq!(agent.metric("keyward_config_reloads_total{outcome=\"ok\"}"), 1);

        // The running agent is found by the listener of a configuration that it does not take.
        let good = std::fs::read_to_string(&agent.config).unwrap();
        agent.edit(|text| text.replace("mode = \"0640\"", "mood = \"0640\""));
        let (code, output, error) = reload();
        assert_eq!((code, output.as_str()), (3, ""), "{error}");
        let line = "error: the new configuration is rejected, and the previous one stays in use: ";
        assert!(error.contains(line) && error.contains("sink.token.mood"), "{error}");
        assert_eq!(agent.get("/agent/v1/status")["reloads"], 2);

        // One that needs a restart says so.
        std::fs::write(&agent.config, good.replace("[agent]", "[log]\nformat = \"json\"\n[agent]")).unwrap();
        let (code, _, error) = reload();
        assert!(code == 3 && error.contains("changes of log.format need a restart"), "{code} {error}");
        std::fs::write(&agent.config, &good).unwrap();
        assert_eq!(reload().0, 0);
        assert!(agent.get("/agent/v1/status")["reload_error"].is_null());
    });
}

#[test]
fn reload_finds_the_agent_at_the_address_of_the_new_configuration() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent =
            Agent::ready(&world, &[], |text| text + "\n[listener.first]\naddress = \"unix://FOLDER/first.sock\"\n");
        // The first listener by name is asked, before and after.
        agent.edit(|text| text.replace("first.sock", "second.sock"));
        let config = agent.config.display().to_string();
        let old = agent.path("first.sock").display().to_string();
        let variables = [("KEYWARD_ADDR", old.as_str())];
        let (code, output, error) = run(&["reload", "-c", &config, "--timeout", "2s"], &variables);
        // The old listener may have answered once more while it drained.
        let is_gone = (code, output.as_str()) == (5, "") && error.contains("has not reported the result within 2s");
        assert!(is_gone || (code == 0 && output.contains("has reloaded")), "{code} {output} {error}");
        assert_eq!(run(&["reload", "-c", &config], &[]).0, 0);
    });
}

#[test]
fn no_process_gets_a_signal_that_would_end_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("dev").display().to_string();
    let dev = Binary::start(&["dev", "--dir", &dir], &[], folder.path());
    dev.logs("Ctrl-C stops it.");
    let config = format!("{dir}/keyward.toml");
    let (code, _, error) = run(&["reload", "-c", &config], &[]);
    assert!(code == 1 && error.contains("does not reload: only `keyward run` does"), "{code} {error}");
    assert_eq!(run(&["status", "-c", &config], &[]).0, 0, "it still runs");
}

#[test]
fn another_user_is_told_who_may_reload() {
    if !not_run::is_root() {
        return;
    }
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| {
            text + "\n[listener.tcp]\naddress = \"tcp://127.0.0.1:8300\"\nany_local_user = true\n"
        });
        let output = Command::new(env!("CARGO_BIN_EXE_keyward"))
            .args(["reload", "--address", "http://127.0.0.1:8300", "-c", "/nowhere.toml"])
            .env_clear()
            .uid(65534)
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(6), "{error}");
        assert!(error.contains("only root and the user of the agent may reload it"), "{error}");
        assert!(agent.get("/agent/v1/status")["reloads"].is_null());
    });
}
