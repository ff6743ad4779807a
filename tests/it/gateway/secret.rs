//! The whole chain: the machine's identity, a session, a secret engine that leases platform tokens, the gateway.

use std::collections::BTreeSet;
use std::time::Duration;

use keyward_emulators::platform::PresentedToken;

use crate::harness::agent::Agent;
use crate::harness::binary::{eventually, run};
use crate::harness::world::{World, run_in_network_namespace};

const GATEWAY: &str = r#"
[gateway]
upstream = "PLATFORM"
listen = "tcp://127.0.0.1:8800"
local_token_file = "FOLDER/local.token"

[gateway.secret]
path = "terraform/creds/deploy"
grace = "1s"
"#;

#[test]
fn a_leased_platform_token_is_replaced_before_it_ends_and_no_call_fails() {
    run_in_network_namespace(|| {
        let world = World::start();
        let gateway = GATEWAY.replace("PLATFORM", world.platform.url());
        let agent = Agent::ready(&world, &[], |config| config + &gateway);
        let local = std::fs::read_to_string(agent.path("local.token")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let call = || {
            let request = client.get("http://127.0.0.1:8800/api/v2/account/details").bearer_auth(local.trim());
            runtime.block_on(async {
                let response = request.send().await.unwrap();
                (response.status().as_u16(), response.text().await.unwrap())
            })
        };
        // The platform is detected before the first call.
        let config = agent.config.display().to_string();
        let known = format!("platform {}: HCP Terraform, API 2.6", world.platform.url().trim_end_matches('/'));
        eventually(Duration::from_secs(30), || {
            let (code, stdout, stderr) = run(&["status", "--config", &config], &[]);
            let is_known = code == 0 && stdout.lines().any(|line| line == known);
            is_known.then_some(()).ok_or_else(|| format!("{stdout}{stderr}"))
        });
        world.platform.faults().forget_calls();
        let (mut calls, mut used_tokens) = (0, Vec::new());
        eventually(Duration::from_mins(1), || {
            let (status, body) = call();
            assert_eq!(status, 200, "{body} {}", agent.binary.output());
            calls += 1;
            used_tokens = tokens(&world, "/api/v2/account/details");
            if used_tokens.len() >= 3 {
                Ok(())
            } else {
                Err(format!("{calls} calls with {} tokens", used_tokens.len()))
            }
        });
        assert!(calls > 20, "{calls} calls with {} tokens: each is there for a while", used_tokens.len());
        assert!(world.secrets.faults().leases() <= 2, "what was replaced was given back");

        // Ended at the platform before its time: one call finds out, and none fails.
        let current = used_tokens.last().unwrap();
        for token in &used_tokens {
            world.platform.faults().revoke(token);
        }
        let (status, body) = call();
        assert_eq!(status, 200, "{body} {}", agent.binary.output());
        assert!(tokens(&world, "/api/v2/account/details").last() != Some(current));

        // No file of the agent's, and no line of its log, has a token of the platform.
        let output = agent.binary.output();
        assert!(!output.contains(".atlasv1."), "{output}");
        let found = std::process::Command::new("grep").args(["-rl", "atlasv1"]).arg(agent.path("")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout), "");
        eventually(Duration::from_secs(30), || {
            let metric = agent.metric("keyward_secret_calls_total{secret=\"gateway\",call=\"read\",outcome=\"ok\"}");
            if metric >= 3 { Ok(()) } else { Err(format!("{metric} reads")) }
        });
    });
}

/// The tokens that a path was called with, the last one last.
fn tokens(world: &World, path: &str) -> Vec<String> {
    let (mut known, mut order) = (BTreeSet::new(), Vec::new());
    for call in world.platform.faults().calls() {
        if let (true, PresentedToken::Known(token)) = (call.route == path, &call.token)
            && known.insert(token.clone())
        {
            order.push(token.clone());
        }
    }
    order
}
