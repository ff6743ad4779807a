//! `keyward retry`, and the request behind it: one more login of a running agent at once.

use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation};
use serde_json::Value;

use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually, run};
use crate::harness::world::{World, run_in_network_namespace};

#[test]
fn retry_logs_in_at_once_and_reports_the_outcome() {
    run_in_network_namespace(|| {
        let world = World::start();
        let refused = CannedResponse::error(400, "invalid role name \"web\"");
        world.secrets.faults().respond_always(Operation::Login, Some(refused));
        let agent = Agent::start(&world, &[], |text| text);
        agent.logs("token.login.failed");
        let config = agent.config.display().to_string();
        let retry = |words: &[&str]| run(&[&["retry"], words, &["--config", &config]].concat(), &[]);
        let logins = || world.secrets.faults().counts().get(Operation::Login);

        let before = logins();
        let (code, _, stderr) = retry(&[]);
        assert!(code == 4 && stderr.contains("invalid role name"), "{code} {stderr}");
        assert_eq!(logins(), before + 1);
        let (code, _, stderr) = retry(&["other"]);
        assert!(code == 1 && stderr.contains("404"), "{code} {stderr}");

        world.secrets.faults().respond_always(Operation::Login, None);
        let (code, output, stderr) = retry(&["web"]);
        assert_eq!((code, output.trim()), (0, "there is a token"), "{stderr}");
        agent.sink("token");
        let (status, body) = ask(&agent.socket(), "POST", "/agent/v1/retry?session=web").unwrap();
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["serving"]), (200, &Value::Bool(true)), "{body}");
        assert_eq!(logins(), before + 2, "a session in good order makes no login");
        assert_eq!(ask(&agent.socket(), "GET", "/agent/v1/retry").unwrap().0, 405);
    });
}

#[test]
fn retry_with_force_replaces_a_good_token_and_keeps_it_if_that_fails() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text);
        let config = agent.config.display().to_string();
        let retry = || run(&["retry", "--force", "--config", &config], &[]);
        let token = || agent.get("/agent/v1/token")["token"].as_str().unwrap().to_owned();
        let first = token();
        let (code, output, error) = retry();
        assert_eq!((code, output.as_str()), (0, "there is a new token\n"), "{error}");
        let second = token();
        assert_ne!(first, second);
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 2);

        let refused = CannedResponse::error(400, "invalid role name \"web\"");
        world.secrets.faults().respond_always(Operation::Login, Some(refused));
        let (code, output, error) = retry();
        assert_eq!((code, output.as_str()), (4, ""), "{error}");
        assert!(error.contains("invalid role name") && error.contains("the previous token stays in use"), "{error}");
        assert_eq!(token(), second);
        let status = run(&["status", "-c", &config], &[]).1;
        assert!(status.contains("AT RISK") && status.contains("invalid role name"), "{status}");
        let (status, body) = ask(&agent.socket(), "POST", "/agent/v1/retry?force=1").unwrap();
        assert!(status == 400 && body.contains("force is neither true nor false"), "{body}");
    });
}

#[test]
fn a_waiting_caller_gets_a_token_soon_after_an_outage() {
    run_in_network_namespace(|| {
        let world = World::start();
        world.secrets.faults().respond_always(Operation::Login, Some(CannedResponse::error(503, "Vault is sealed")));
        let agent = Agent::start(&world, &[], |text| text);
        agent.logs("token.login.failed");
        // Until its own backoff is longer than what a caller waits.
        let failed = "keyward_logins_total{session=\"web\",outcome=\"failed\",reason=\"unavailable\"}";
        eventually(Duration::from_mins(2), || match agent.metric(failed) {
            count if count >= 6 => Ok(()),
            count => Err(format!("{count} failures: {}", agent.binary.output())),
        });
        let config = agent.config.display().to_string();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| run(&["token", "--wait", "45s", "--config", &config], &[]));
            world.secrets.faults().respond_always(Operation::Login, None);
            let (code, token, stderr) = waiting.join().unwrap();
            assert_eq!(code, 0, "{stderr}");
            assert_eq!(token.trim(), agent.sink("token"));
        });
    });
}
