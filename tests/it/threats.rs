//! Threats of docs/security.md that no other test shows: callers of this machine before the real agent.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio::net::TcpSocket;

use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually};
use crate::harness::not_run::{is_root, not_run};
use crate::harness::world::{World, run_in_network_namespace};

const LOCAL: &str = "127.0.0.1:8300";
const PROXY: &str = "127.0.0.1:8200";

/// Listeners on loopback that ask for as little as the configuration allows.
const OPEN_LISTENERS: &str = "[listener.open]\naddress = \"tcp://127.0.0.1:8300\"\nany_local_user = true\n\
    [listener.vault]\nkind = \"api_proxy\"\naddress = \"tcp://127.0.0.1:8200\"\nany_local_user = true\n\
    [listener.vault.cache]\nmax_age = \"1h\"\n";

/// Sends a request by hand; returns all of the response.
fn send(address: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    write!(stream, "{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

fn status(response: &str) -> u16 {
    response.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{response:?}"))
}

/// Pages may send these without asking first: no header of their own, and bodies of three types. A page under 0.0.0.0
/// reaches loopback too.
#[test]
fn t03_requests_that_a_web_page_sends_without_a_preflight_change_nothing() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text + OPEN_LISTENERS);
        let (token, calls) = (agent.sink("token"), world.secrets.faults().counts().total());
        let forms = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a"];
        for (address, host) in [(LOCAL, LOCAL), (PROXY, PROXY), (LOCAL, "0.0.0.0:8300"), (PROXY, "0.0.0.0:8200")] {
            for path in [
                "/agent/v1/token",
                "/agent/v1/check",
                "/agent/v1/retry",
                "/agent/v1/cache-clear",
                "/proxy/v1/cache-clear",
                "/agent/v1/quit",
                "/v1/secret/data/a",
                "/v1/sys/seal",
                "/v1/auth/token/revoke-self",
            ] {
                let mut responses = vec![send(address, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n"), "")];
                for form in forms {
                    let head = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {form}\r\n");
                    responses.push(send(address, &head, "{\"type\": \"all\"}"));
                    responses.push(send(address, &format!("{head}Origin: http://{host}\r\n"), "{}"));
                }
                for response in responses {
                    assert!(matches!(status(&response), 403 | 412 | 421), "{host} {path}: {response}");
                    assert!(!response.contains(&token) && !response.contains("access-control-"), "{response}");
                }
            }
        }
        assert_eq!(world.secrets.faults().counts().total(), calls, "the server was asked");
        assert_eq!(agent.get("/agent/v1/token")["token"], token.as_str(), "the agent lives, with the same token");
        let good = format!("GET /agent/v1/token HTTP/1.1\r\nHost: {LOCAL}\r\nX-Vault-Request: true\r\n");
        assert_eq!(status(&send(LOCAL, &good, "")), 200, "the listener does serve");
    });
}

/// Connects to a socket, becomes a user with these groups before or after it, and asks for the token; returns the response.
fn ask_as(socket: &Path, change: &str, groups: &str, before: bool) -> String {
    const SCRIPT: &str = r#"
        use POSIX; use IO::Socket::UNIX;
        my ($path, $uid, $groups, $before) = @ARGV;
        sub change { $) = $groups; POSIX::setgid((split / /, $groups)[0]); POSIX::setuid($uid); die if $< != $uid; }
        change() if $before;
        my $s = IO::Socket::UNIX->new(Peer => $path) or die "cannot connect: $!";
        change() unless $before;
        print $s "GET /agent/v1/token HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nConnection: close\r\n\r\n";
        print while <$s>;"#;
    let output = Command::new("perl")
        .args(["-e", SCRIPT])
        .arg(socket)
        .args([change, groups, if before { "1" } else { "" }])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn t05_other_users_are_refused_on_a_socket_that_all_may_open() {
    if !is_root() {
        return;
    }
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| {
            text.replace("/api.sock\"\n", "/api.sock\"\nmode = \"0666\"\ngroup = \"4242\"\n")
        });
        let (socket, token) = (agent.socket(), agent.sink("token"));
        std::fs::set_permissions(socket.parent().unwrap(), std::fs::Permissions::from_mode(0o711)).unwrap();
        for (user, groups, before, expected) in [
            ("0", "0 0", true, 200),
            ("65534", "65534 65534", true, 403),
            ("2000", "2000 2000", true, 403),
            ("2000", "2000 2000 4242", true, 200),
            ("2000", "4242 4242", true, 200),
            // The kernel reports the user that connected, not the one that holds the socket now.
            ("2000", "2000 2000", false, 200),
        ] {
            let response = ask_as(&socket, user, groups, before);
            assert_eq!(status(&response), expected, "user {user}, groups {groups}, before {before}: {response}");
            assert_eq!(response.contains(&token), expected == 200, "{response}");
        }
        agent.logs("uid=2000");
        let refused = agent.metric("keyward_local_refused_total{listener=\"local\",reason=\"peer\"}");
        assert_eq!(refused, 2, "{}", agent.binary.output());
    });
}

/// A neighbour on the network reaches loopback if the kernel is configured to route there (CVE-2020-8558).
#[test]
fn t07_a_caller_from_another_address_gets_no_byte_of_a_listener_on_loopback() {
    run_in_network_namespace(|| {
        let added = Command::new("ip").args(["addr", "add", "192.0.2.1/32", "dev", "lo"]).status().unwrap();
        assert!(added.success());
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| {
            text + OPEN_LISTENERS + "[listener.probes]\nkind = \"health\"\naddress = \"tcp://127.0.0.1:8400\"\n"
        });
        let fetch = |from: &str, to: &str| {
            let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
            let stream = world.block_on(async move {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind(from).unwrap();
                socket.connect(to).await.unwrap().into_std().unwrap()
            });
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
            let head =
                format!("GET /livez HTTP/1.1\r\nHost: {to}\r\nX-Vault-Request: true\r\nConnection: close\r\n\r\n");
            // A connection that was closed already may be reset.
            let (mut stream, mut response) = (stream, Vec::new());
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.read_to_end(&mut response);
            String::from_utf8(response).unwrap()
        };
        for address in [LOCAL, PROXY, "127.0.0.1:8400"] {
            assert_eq!(fetch("192.0.2.1:0", address), "", "{address}");
            assert!(fetch("127.0.0.1:0", address).starts_with("HTTP/1.1 "), "{address}");
        }
        let refused =
            |name: &str| agent.metric(&format!("keyward_local_refused_total{{listener=\"{name}\",reason=\"peer\"}}"));
        assert_eq!(["open", "vault", "probes"].map(refused), [1, 1, 1]);
    });
}

/// The user of a process may read its memory and trace it, unless the process forbids it: programs of one user are not one.
#[test]
fn t24_no_core_is_written_and_the_agents_own_user_may_not_read_its_memory() {
    run_in_network_namespace(|| {
        let other = |program: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", program]);
            command
        };
        let program = env!("CARGO_BIN_EXE_keyward");
        if !other(program).arg("--version").output().is_ok_and(|output| output.status.success()) {
            return not_run(
                "it takes another user's place, which needs root, setpriv and a program that all may start",
            );
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let config = folder.path().join("keyward.toml");
        let text = "[server.main]\nkind = \"vault\"\naddress = \"http://127.0.0.1:9\"\n\
             [session.main.cloud]\nrole = \"web\"\nresource = \"https://management.azure.com/\"\n\
             [listener.probes]\nkind = \"health\"\naddress = \"tcp://127.0.0.1:8400\"\n";
        std::fs::write(&config, text).unwrap();
        std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o644)).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut agent = other(program).args(["run", "--config"]).arg(&config).env_clear().stderr(log).spawn().unwrap();
        let process = format!("/proc/{}", agent.id());
        eventually(Duration::from_secs(30), || match TcpStream::connect("127.0.0.1:8400") {
            Ok(_) => Ok(()),
            Err(_) => Err(std::fs::read_to_string(folder.path().join("log")).unwrap()),
        });
        let limits = std::fs::read_to_string(format!("{process}/limits")).unwrap();
        let uid = std::fs::read_to_string(format!("{process}/status")).unwrap();
        let reads =
            ["mem", "environ", "maps"].map(|file| other("cat").arg(format!("{process}/{file}")).output().unwrap());
        agent.kill().unwrap();
        agent.wait().unwrap();
        assert!(uid.contains("Uid:\t65534\t65534"), "{uid}");
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
        for read in reads {
            let error = String::from_utf8(read.stderr).unwrap();
            assert!(read.stdout.is_empty() && error.contains("Permission denied"), "{error}");
        }
    });
}

/// No caller and no configuration names a library (as CVE-2023-38408 did): only the program and system libraries are mapped.
#[test]
fn t35_the_agent_maps_no_library_but_those_of_the_system() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text + OPEN_LISTENERS);
        for path in ["/agent/v1/token", "/metrics", "/agent/v1/status"] {
            assert_eq!(ask(&agent.socket(), "GET", path).unwrap().0, 200);
        }
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", agent.binary.id())).unwrap();
        let files: Vec<&str> = maps.lines().filter_map(|line| line.split_once(" /").map(|(_, file)| file)).collect();
        assert!(files.iter().any(|file| file.ends_with("/keyward")), "{maps}");
        let known =
            ["libc.so", "libm.so", "libgcc_s.so", "ld-linux", "libnss_", "libresolv.so", "libpthread.so", "libdl.so"];
        for file in files.into_iter().filter(|file| file.contains(".so")) {
            let name = file.rsplit('/').next().unwrap();
            assert!(known.iter().any(|known| name.starts_with(known)), "{file} is mapped");
        }
    });
}
