//! Tokens, leases and state that outlives a restart.

use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation};
use rustix::process::Signal;

use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually, wait_until_token_saved};
use crate::harness::world::{World, run_in_network_namespace};

const LIMIT: Duration = Duration::from_mins(1);

/// openbao#3747, vault#20645, vault#22575: a refused renewal is repeated hundreds of times a second.
#[test]
fn refused_renewals_cost_one_attempt_and_one_login_each() {
    run_in_network_namespace(|| {
        let world = World::with(
            |_| (),
            |_, secrets| secrets.roles.values_mut().for_each(|role| role.ttl = Duration::from_secs(12)),
        );
        world.secrets.faults().refuse_renewals(true);
        let agent = Agent::ready(&world, &[], |text| text);
        let request_count = |operation| world.secrets.faults().counts().get(operation);
        let (first, mut calls) = (agent.sink("token"), 0);
        // Tokens have a TTL of twelve seconds: they are replaced, and each check finds one.
        eventually(LIMIT, || {
            let (status, body) = ask(&agent.socket(), "GET", "/agent/v1/token").unwrap();
            assert_eq!(status, 200, "{body}: {}", agent.binary.output());
            calls += 1;
            match request_count(Operation::Login) {
                logins if logins >= 2 => Ok(()),
                logins => Err(format!("{logins} logins")),
            }
        });
        let (logins, renewals, looks) =
            (request_count(Operation::Login), request_count(Operation::Renew), request_count(Operation::Lookup));
        assert!(renewals <= logins, "{renewals} renewals for {logins} logins");
        assert!(looks <= 2 * logins, "{looks} looks for {logins} logins");
        eventually(LIMIT, || match agent.sink("token") {
            second if second != first => Ok(()),
            _ => Err(format!("after {calls} calls: {}", agent.binary.output())),
        });
    });
}

/// vault#28305, vault#16148: after a restart during an outage there is no token, though the old one is alive.
#[test]
fn an_agent_that_starts_during_an_outage_serves_its_saved_token() {
    run_in_network_namespace(|| {
        let world = World::start();
        let mut agent = Agent::ready(&world, &[], |text| {
            text.replace("mount = \"azure\"", "mount = \"azure\"\nseal_key_file = \"FOLDER/seal.key\"")
        });
        let token = agent.sink("token");
        wait_until_token_saved(&agent.path("state/web.state"));
        agent.binary.signal(Signal::KILL);
        agent.binary.wait(LIMIT);
        world.block_on(world.secrets.faults().go_away());
        agent.restart(&[]);
        eventually(LIMIT, || match ask(&agent.socket(), "GET", "/agent/v1/token") {
            Ok((200, body)) if body.contains(&token) => Ok(()),
            other => Err(format!("{other:?}: {}", agent.binary.output())),
        });
        // It is ready once the sinks have the token too.
        eventually(LIMIT, || match ask(&agent.socket(), "GET", "/readyz") {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}: {}", agent.binary.output())),
        });
        world.block_on(world.secrets.faults().come_back());
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 1);
    });
}

/// vault-k8s#620, vault#29444, vault#11089: readiness cannot be probed, and any caller can stop the agent.
#[test]
fn t36_probes_report_progress_and_no_request_can_stop_the_agent() {
    run_in_network_namespace(|| {
        let world = World::start();
        world.secrets.faults().respond_always(Operation::Login, Some(CannedResponse::error(503, "Vault is sealed")));
        let agent = Agent::start(&world, &[], |text| {
            text + "[listener.vault]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/vault.sock\"\n\
                    [listener.probes]\nkind = \"health\"\naddress = \"unix://FOLDER/probes.sock\"\n"
        });
        let probes = agent.path("probes.sock");
        let probe = |path: &str, expected: u16| {
            eventually(LIMIT, || match ask(&probes, "GET", path) {
                Ok((status, _)) if status == expected => Ok(()),
                other => Err(format!("{path}: {other:?}: {}", agent.binary.output())),
            });
        };
        probe("/livez", 200);
        probe("/startupz", 503);
        probe("/readyz", 503);
        world.secrets.faults().respond_always(Operation::Login, None);
        probe("/startupz", 200);
        probe("/readyz", 200);
        for socket in ["api.sock", "vault.sock", "probes.sock"] {
            for path in ["/agent/v1/quit", "/proxy/v1/quit", "/quit"] {
                let (status, body) = ask(&agent.path(socket), "POST", path).unwrap();
                assert!((400..500).contains(&status), "{socket} {path}: {status} {body}");
            }
        }
        probe("/livez", 200);
        probe("/readyz", 200);
    });
}
