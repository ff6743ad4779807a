//! Outputs of a running agent that other processes delete or change.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::json;

use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually};
use crate::harness::world::{World, run_in_network_namespace};

const LIMIT: Duration = Duration::from_secs(30);

fn holds(agent: &Agent, name: &str, expected: &str) {
    eventually(LIMIT, || match std::fs::read_to_string(agent.path(name)) {
        Ok(text) if text == expected => Ok(()),
        other => Err(format!("{name}: {other:?}: {}", agent.binary.output())),
    });
}

fn changes(agent: &Agent, output: &str, outcome: &str) -> u64 {
    agent.metric(&format!("keyward_output_changes_total{{output=\"{output}\",outcome=\"{outcome}\"}}"))
}

#[test]
fn a_deleted_or_replaced_output_is_restored_or_left_by_its_setting() {
    run_in_network_namespace(|| {
        let world = World::start();
        world.put("app", &json!({ "password": "one" }));
        let more = "[sink.kept]\npath = \"FOLDER/kept\"\non_missing = \"leave\"\n\
            [template.conf]\ncontents = '{{ with secret \"secret/data/app\" }}{{ .Data.data.password }}{{ end }}'\n\
            destination = \"FOLDER/conf\"\ncommand = [\"echo ran >> FOLDER/runs\"]\nshell = true\nbackup = true\n\
            [template.once]\ncontents = \"x\"\ndestination = \"FOLDER/once\"\non_missing = \"leave\"\n";
        let agent = Agent::ready(&world, &[("PATH", "/usr/bin:/bin")], |text| text + more);
        let token = agent.sink("token");
        holds(&agent, "conf", "one");

        // A restoration is logged once, and untouched files are not written.
        std::fs::remove_file(agent.path("token")).unwrap();
        agent.logs("sink.restored");
        holds(&agent, "token", &token);
        std::fs::write(agent.path("conf"), "of somebody else").unwrap();
        agent.logs("template.restored");
        holds(&agent, "conf", "one");
        holds(&agent, "runs", "ran\nran\n");
        std::fs::set_permissions(agent.path("token"), std::fs::Permissions::from_mode(0o666)).unwrap();
        eventually(LIMIT, || match changes(&agent, "sink/token", "restored") {
            2 => Ok(()),
            times => Err(format!("{times}: {}", agent.binary.output())),
        });
        let mode = std::fs::metadata(agent.path("token")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o640);

        std::fs::remove_file(agent.path("kept")).unwrap();
        agent.logs("sink.left_changed");
        std::fs::rename(agent.path("once"), agent.path("elsewhere")).unwrap();
        agent.logs("template.left_changed");
        assert!(!agent.path("kept").exists() && !agent.path("once").exists());
        let counted = [("sink/kept", "left"), ("template/once", "left"), ("template/conf", "restored")];
        assert_eq!(counted.map(|(output, outcome)| changes(&agent, output, outcome)), [1, 1, 1]);
        assert_eq!(changes(&agent, "sink/token", "restored"), 2, "{}", agent.binary.output());

        // New content is written all the same.
        agent.edit(|text| text.replace("contents = \"x\"", "contents = \"y\""));
        agent.reload("ok");
        holds(&agent, "once", "y");

        // With `backup` the content before is kept beside it.
        holds(&agent, "conf.bak", "of somebody else");
        agent.edit(|text| text.replace(".Data.data.password }}", ".Data.data.password }}, again"));
        agent.reload("ok");
        holds(&agent, "conf", "one, again");
        holds(&agent, "conf.bak", "one");
    });
}

#[test]
fn the_remedy_of_a_failed_write_leads_to_the_next_try_and_ends_none() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| {
            let folder = &text[text.find("unix://").unwrap() + 7..text.find("/api.sock").unwrap()];
            std::fs::create_dir(format!("{folder}/own")).unwrap();
            text + "[sink.own]\npath = \"FOLDER/own/token\"\n"
        });
        let first = agent.sink("own/token");
        let set_mode = |mode| {
            std::fs::set_permissions(agent.path("own"), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode(0o777);
        world.secrets.faults().revoke_all();
        assert_eq!(ask(&agent.socket(), "POST", "/agent/v1/check").unwrap().0, 200);
        // Until the session publishes nothing more, which is a try of its own.
        eventually(LIMIT, || match agent.metric("keyward_sink_failures_total{sink=\"own\"}") {
            5.. => Ok(()),
            failures => Err(format!("{failures}: {}", agent.binary.output())),
        });
        // Each is an event on the folder.
        for mode in [0o776, 0o775, 0o755] {
            set_mode(mode);
        }
        eventually(LIMIT, || match std::fs::read_to_string(agent.path("own/token")) {
            Ok(text) if text == agent.sink("token") && text != first => Ok(()),
            other => Err(format!("{other:?}: {}", agent.binary.output())),
        });
    });
}
