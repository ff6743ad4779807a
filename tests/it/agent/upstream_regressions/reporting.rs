//! Metrics, status and errors: they report failures and the next step, and never a secret.

use std::time::{Duration, SystemTime};

use keyward_emulators::secrets::Operation;
use serde_json::json;

use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually, run};
use crate::harness::world::{World, run_in_network_namespace};

const LIMIT: Duration = Duration::from_mins(1);

/// vault#24670, vault#8649: no metric reports a broken template, sink or renewal.
#[test]
fn metrics_distinguish_broken_sessions_from_healthy_ones() {
    run_in_network_namespace(|| {
        let world = World::with(
            |_| (),
            |_, secrets| secrets.roles.values_mut().for_each(|role| role.ttl = Duration::from_secs(6)),
        );
        world.put("app", &json!({ "password": "one" }));
        world.secrets.faults().refuse_renewals(true);
        let agent = Agent::start(&world, &[], |text| {
            let read =
                |path: &str| format!("'{{{{ with secret \"{path}\" }}}}{{{{ .Data.data.password }}}}{{{{ end }}}}'");
            let good =
                format!("[template.good]\ncontents = {}\ndestination = \"FOLDER/good\"\n", read("secret/data/app"));
            let bad =
                format!("[template.bad]\ncontents = {}\ndestination = \"FOLDER/bad\"\n", read("secret/data/gone"));
            text + &good + &bad + "[sink.bad]\npath = \"FOLDER/state\"\n"
        });
        let tells = |name: &str, expected: &dyn Fn(u64) -> bool| {
            eventually(LIMIT, || match agent.metric(name) {
                value if expected(value) => Ok(()),
                value => Err(format!("{name} {value}: {}", agent.binary.output())),
            });
        };
        eventually(LIMIT, || ask(&agent.socket(), "GET", "/livez"));
        tells("keyward_template_state{template=\"bad\"}", &|state| state != 0);
        tells("keyward_template_renders_total{template=\"good\",outcome=\"ok\"}", &|count| count >= 1);
        tells("keyward_template_state{template=\"good\"}", &|state| state == 0);
        tells("keyward_sink_state{sink=\"bad\"}", &|state| state == 2);
        tells("keyward_sink_failures_total{sink=\"bad\"}", &|count| count >= 1);
        tells("keyward_sink_state{sink=\"token\"}", &|state| state == 0);
        tells("keyward_renewals_total{session=\"web\",outcome=\"failed\",reason=\"refused\"}", &|count| count >= 1);
        tells("keyward_token_expiry_timestamp_seconds{session=\"web\"}", &|end| end > 1_000_000_000);
        let (_, ready) = ask(&agent.socket(), "GET", "/readyz").unwrap();
        let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
        for (component, expected) in [("template/good", true), ("template/bad", false), ("sink/bad", false)] {
            assert_eq!(ready["components"][component]["ready"], expected, "{component}: {ready}");
        }
        assert!(ready["components"]["template/bad"]["reason"].to_string().contains("secret/data/gone"), "{ready}");
    });
}

/// vault#3455, vault#12399, vault#15707, vault#20813: configurations are not checked, a variable makes the agent call
/// itself, and the time of the next renewal is unknown.
#[test]
fn configuration_errors_fail_the_start_and_status_names_the_next_step() {
    run_in_network_namespace(|| {
        let world = World::with(
            |_| (),
            |_, secrets| secrets.roles.values_mut().for_each(|role| role.ttl = Duration::from_secs(9)),
        );
        let proxy =
            "[listener.vault]\nkind = \"api_proxy\"\naddress = \"tcp://127.0.0.1:8300\"\nany_local_user = true\n";
        let variables = [("VAULT_ADDR", "http://127.0.0.1:8300"), ("VAULT_TOKEN", "none"), ("BAO_ADDR", "http://x")];
        let agent = Agent::ready(&world, &variables, |text| text + proxy);

        let session = agent.get("/agent/v1/status")["sessions"]["web"].clone();
        assert_eq!(session["next_step"], "renew", "{session}");
        let at = humantime::parse_rfc3339(session["next_step_at"].as_str().unwrap()).unwrap();
        eventually(LIMIT, || match world.secrets.faults().counts().get(Operation::Renew) {
            0 => Err(agent.binary.output()),
            _ => Ok(()),
        });
        // Reported in whole seconds.
        assert!(SystemTime::now() + Duration::from_secs(1) >= at, "{session}");

        let config = agent.config.display().to_string();
        agent.edit(|text| text.replace("[sink.token]", "exit_after_retry_failure = true\n[sink.token]"));
        agent.edit(|text| text.replace(world.secrets.url(), "http://127.0.0.1:8300"));
        let (code, stdout, _) = run(&["check", "--config", &config], &[]);
        assert_eq!(code, 3, "{stdout}");
        assert!(stdout.contains("exit_after_retry_failure: an unknown key"), "{stdout}");
        agent.edit(|text| text.replace("exit_after_retry_failure = true\n", ""));
        let (code, stdout, _) = run(&["check", "--config", &config], &[]);
        assert_eq!(code, 3, "{stdout}");
        assert!(stdout.contains("the listener would forward to itself"), "{stdout}");
    });
}

/// GHSA-444v-8vxr-p36h: a failed template printed its output so far to standard output.
#[test]
fn a_template_that_fails_halfway_prints_no_secret() {
    run_in_network_namespace(|| {
        let world = World::start();
        world.put("app", &json!({ "password": "canary-5ecret", "port": "canary-not-a-number" }));
        let contents =
            "'{{ with secret \"secret/data/app\" }}{{ .Data.data.password }}{{ .Data.data.port | parseInt }}{{ end }}'";
        let agent = Agent::start(&world, &[("PATH", "/usr/bin:/bin")], |text| {
            format!(
                "{text}[env_template.PORT]\ncontents = {contents}\n[process]\ncommand = [\"/bin/sleep\", \"600\"]\n\
                 [template.file]\ncontents = {contents}\ndestination = \"FOLDER/file\"\n[log]\nlevel = \"trace\"\n"
            )
        });
        let failed = |name: &str| {
            eventually(LIMIT, || match ask(&agent.socket(), "GET", "/readyz") {
                Ok((503, body)) if reason(&body, name).contains("line 1") => Ok(body),
                other => Err(format!("{name}: {other:?}")),
            })
        };
        let readiness = [failed("template/file"), failed("env_template/PORT")].concat();
        let (_, metrics) = ask(&agent.socket(), "GET", "/metrics").unwrap();
        assert!(!agent.path("file").exists());
        let (_, output) = agent.binary.stop();
        assert!(output.contains("TRACE"));
        for (what, text) in [("readiness", readiness), ("the metrics", metrics), ("the log", output)] {
            assert!(!text.contains("canary"), "{what} shows a secret: {text}");
        }
    });
}

fn reason(ready: &str, component: &str) -> String {
    let ready: serde_json::Value = serde_json::from_str(ready).unwrap();
    ready["components"][component]["reason"].to_string()
}
