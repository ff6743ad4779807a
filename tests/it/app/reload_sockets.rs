//! A reload that changes a unix socket replaces its file only if the new configuration takes effect.

use std::ffi::OsString;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};

use crate::harness::agent::Agent;
use crate::harness::binary::ask;
use crate::harness::world::{World, run_in_network_namespace};

/// The configuration of an agent whose reloads may listen on other ports.
fn without_sandbox(text: String) -> String {
    text.replacen("[agent]\n", "[agent]\nsandbox = \"off\"\n", 1)
}

/// Returns the inode and the mode of a file.
fn inode_and_mode(agent: &Agent, name: &str) -> (u64, u32) {
    let metadata = std::fs::metadata(agent.path(name)).unwrap();
    (metadata.ino(), metadata.permissions().mode() & 0o777)
}

/// Names of the sockets in the agent's folder, also of temporary ones.
fn sockets(agent: &Agent) -> Vec<OsString> {
    let files = std::fs::read_dir(agent.path("")).unwrap().map(Result::unwrap);
    let mut names: Vec<_> =
        files.filter(|file| file.file_type().unwrap().is_socket()).map(|file| file.file_name()).collect();
    names.sort();
    names
}

/// Changes the mode of a socket beside a new listener whose port is taken, and again once the port is free.
fn check_refused_and_accepted_change(agent: &Agent, socket: &str, path: &str) {
    let change = |text: String| {
        text.replace("mode = \"0600\"", "mode = \"0660\"")
            + "[listener.probes]\nkind = \"health\"\naddress = \"tcp://127.0.0.1:8302\"\n"
    };
    let status = || ask(&agent.path(socket), "GET", path).unwrap().0;
    let (names, before, served) = (sockets(agent), inode_and_mode(agent, socket), status());
    assert_eq!(before.1, 0o600);
    let good = std::fs::read_to_string(&agent.config).unwrap();
    let taken = TcpListener::bind("127.0.0.1:8302").unwrap();
    agent.edit(change);
    agent.reload("failed");
    agent.logs("listener probes cannot listen");
    assert_eq!((inode_and_mode(agent, socket), sockets(agent)), (before, names.clone()));
    assert_eq!(status(), served);

    std::fs::write(&agent.config, good).unwrap();
    agent.reload("ok");
    assert_eq!((inode_and_mode(agent, socket), sockets(agent)), (before, names.clone()));
    assert_eq!(status(), served);

    drop(taken);
    agent.edit(change);
    agent.reload("ok");
    let after = inode_and_mode(agent, socket);
    assert_eq!((after.1, sockets(agent)), (0o660, names));
    assert_ne!(after.0, before.0);
    assert_eq!(status(), served);
}

#[test]
fn a_refused_reload_keeps_the_file_of_a_socket_whose_mode_it_changes() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| {
            without_sandbox(text.replace("api.sock\"\n", "api.sock\"\nmode = \"0600\"\n"))
        });
        check_refused_and_accepted_change(&agent, "api.sock", "/agent/v1/token");
    });
}

#[cfg(feature = "gateway")]
#[test]
fn a_refused_reload_keeps_the_file_of_a_gateway_socket_whose_mode_it_changes() {
    run_in_network_namespace(|| {
        let world = World::start();
        let tokens = tempfile::tempdir().unwrap();
        let file = tokens.path().join("platform.token");
        let token = world.platform.faults().mint("gateway").token;
        std::fs::write(&file, token.expose_secret()).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let gateway = format!(
            "[gateway]\nupstream = \"{}\"\nlisten = \"unix://FOLDER/gateway.sock\"\nmode = \"0600\"\n\
             token_file = {file:?}\n",
            world.platform.url().trim_end_matches('/')
        );
        let agent = Agent::ready(&world, &[], |text| without_sandbox(text) + &gateway);
        check_refused_and_accepted_change(&agent, "gateway.sock", "/api/v2/ping");
    });
}
