//! Requests that are in flight when a reload replaces their listener.

use std::thread::JoinHandle;
use std::time::Duration;

use keyward_emulators::secrets::Operation;

use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually};
use crate::harness::world::{World, run_in_network_namespace};

/// Starts a request through the proxy that the server holds, and waits until the server has it.
fn start_held(world: &World, agent: &Agent) -> JoinHandle<Result<(u16, String), String>> {
    let (faults, socket) = (world.secrets.faults(), agent.path("proxy.sock"));
    faults.hang_only(Operation::Secret);
    let before = faults.counts().get(Operation::Secret);
    let request = std::thread::spawn(move || ask(&socket, "GET", "/v1/secret/data/example"));
    eventually(Duration::from_secs(10), || match faults.counts().get(Operation::Secret) {
        now if now > before => Ok(()),
        now => Err(format!("{now} calls: {}", agent.binary.output())),
    });
    request
}

#[test]
fn a_replaced_session_revokes_its_token_after_the_requests_in_flight() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| {
            text.replace("mount = \"azure\"", "mount = \"azure\"\nrevoke_on_exit = true")
                + "[listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/proxy.sock\"\n"
        });
        let (faults, token) = (world.secrets.faults(), agent.sink("token"));
        let revocations = || faults.counts().get(Operation::Revoke);

        // One request on a listener that an earlier reload has replaced, and one on its successor.
        let first = start_held(&world, &agent);
        agent.edit(|text| text.replace("proxy.sock\"\n", "proxy.sock\"\nmode = \"0600\"\n"));
        agent.reload("ok");
        let second = start_held(&world, &agent);
        agent.edit(|text| text.replace("role = \"web\"", "role = \"another\""));
        agent.reload("ok");
        // The next session does not wait for them.
        agent.logs("token.login.failed");
        // Longer than a revocation takes.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(revocations(), 0, "{}", agent.binary.output());

        faults.set_unresponsive(false);
        for request in [first, second] {
            let (status, body) = request.join().unwrap().unwrap();
            assert_eq!(status, 200, "{body} {}", agent.binary.output());
        }
        eventually(Duration::from_secs(10), || match revocations() {
            1 => Ok(()),
            other => Err(format!("{other} revocations: {}", agent.binary.output())),
        });
        assert!(world.secrets.remaining(&token).is_none());
    });
}
