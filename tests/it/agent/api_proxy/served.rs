//! The API proxy of a running agent: from a configuration, over a reload, with many callers.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use keyward_emulators::secrets::Operation;

use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually};
use crate::harness::world::{World, run_in_network_namespace};

const LISTENER: &str = "[listener.vault]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/vault.sock\"\n";

#[test]
fn a_client_of_the_server_is_served_over_a_reload_and_a_revocation() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text + LISTENER);
        let socket = agent.path("vault.sock");
        let read = |path: &str| ask(&socket, "GET", path).unwrap();
        let (status, body) = read("/v1/secret/data/example");
        assert!(status == 200 && body.contains("hello from the emulated Vault"), "{status} {body}");
        assert_eq!(read("/v1/auth/token/lookup-self").0, 200);
        assert!(!read("/v1/auth/token/lookup-self").1.contains(&agent.sink("token")));

        // Rules change with the file; the socket stays.
        agent.edit(|text| text + "deny = [\"secret/data/example\"]\n");
        agent.reload("ok");
        assert_eq!(read("/v1/secret/data/example").0, 403);
        agent.edit(|text| text.replace("deny = [\"secret/data/example\"]\n", ""));
        agent.reload("ok");
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 1);

        world.secrets.faults().revoke_all();
        let (status, body) = read("/v1/secret/data/example");
        assert_eq!(status, 200, "{body}: {}", agent.binary.output());
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 2);
        assert!(!agent.binary.output().contains("proxy.request"), "no line for a request unless it is asked for");
        assert_eq!(agent.metric("keyward_proxy_replays_total{listener=\"vault\"}"), 1);
    });
}

/// vault#27887: 134 MB for one token.
#[test]
fn a_thousand_idle_connections_take_bounded_memory() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text + LISTENER);
        let socket = agent.path("vault.sock");
        let idle = |count: usize| (0..count).map(|_| open_kept_alive(&socket)).collect::<Vec<_>>();
        drop(idle(50));
        let before = resident(agent.binary.id());
        let open = idle(1000);
        let after = resident(agent.binary.id());
        let each = after.saturating_sub(before) / 1000;
        assert!(each < 64, "{each} KiB for each of {} connections; {before} KiB before", open.len());
        drop(open);
        eventually(Duration::from_secs(30), || match agent.metric("keyward_local_connections{listener=\"vault\"}") {
            0 => Ok(()),
            open => Err(format!("{open} are open")),
        });
    });
}

/// A connection that stays open after one request.
fn open_kept_alive(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
        .write_all(b"GET /v1/secret/data/example HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\r\n")
        .unwrap();
    let mut bytes = Vec::new();
    while !bytes.windows(8).any(|found| found == b"emulated") {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).unwrap();
        assert_ne!(count, 0, "{}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&piece[..count]);
    }
    stream
}

/// In KiB.
fn resident(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
