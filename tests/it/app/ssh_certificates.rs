//! Certificates of an SSH engine with the real `sshd` and `ssh`.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::harness::agent::Agent;
use crate::harness::binary::eventually;
use crate::harness::world::{World, run_in_network_namespace};

/// The host's certificate is for the key that keyward makes, and for the name that the client uses.
const CERTIFICATES: &str = "
[certificate.host]
kind = \"ssh\"
cert_type = \"host\"
role = \"host\"
valid_principals = [\"localhost\"]
folder = \"FOLDER/host\"

[certificate.user]
kind = \"ssh\"
role = \"user\"
valid_principals = [\"deploy\"]
key_type = \"ec-p256\"
folder = \"FOLDER/user\"

[template.ca]
contents = \"{{ with secret \\\"ssh/config/ca\\\" }}{{ .Data.public_key }}{{ end }}\"
destination = \"FOLDER/ca.pub\"
";

const SSHD: &str = "
Port 2222
ListenAddress 127.0.0.1
HostKey FOLDER/sshd/key
HostCertificate FOLDER/sshd/key-cert.pub
TrustedUserCAKeys FOLDER/sshd/ca.pub
AuthorizedPrincipalsFile FOLDER/sshd/principals
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
StrictModes no
UsePAM yes
LogLevel VERBOSE
";

/// User that logs in. The server of a privileged user would need the user `sshd`, and this one needs no other.
fn user() -> &'static str {
    if rustix::process::geteuid().is_root() { "nobody" } else { "" }
}

/// Starts the server as another user if this process is root, with files of its own.
fn start_sshd(agent: &Agent, ca: &str) -> Child {
    let folder = agent.path("sshd");
    std::fs::create_dir(&folder).unwrap();
    for name in ["key", "key-cert.pub"] {
        std::fs::copy(agent.path(&format!("host/{name}")), folder.join(name)).unwrap();
    }
    std::fs::write(folder.join("principals"), "deploy\n").unwrap();
    std::fs::write(folder.join("ca.pub"), ca).unwrap();
    std::fs::write(folder.join("config"), SSHD.replace("FOLDER", &agent.path("").display().to_string())).unwrap();
    let path = String::from_utf8(
        Command::new("sh").args(["-c", "PATH=$PATH:/usr/sbin command -v sshd"]).output().unwrap().stdout,
    )
    .unwrap();
    let path = path.trim();
    assert!(!path.is_empty(), "there is no sshd: tests/run --tools unpacks it");
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let mut command = match user() {
        "" => Command::new(path),
        user => {
            // Root alone can enter temporary folders of others.
            for folder in folder.ancestors().take(2) {
                std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            }
            let status = Command::new("chown").arg("-R").arg(user).arg(&folder).status().unwrap();
            assert!(status.success());
            let mut command = Command::new("setpriv");
            command.args(["--reuid", user, "--regid", "nogroup", "--clear-groups", path]);
            command
        }
    };
    command.args(["-D", "-e", "-f"]).arg(folder.join("config"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// Logs in with a certificate, and knows the host by its authority alone. Returns the log of the client.
fn log_in(agent: &Agent, key: &str, host: &str) -> String {
    let name = match user() {
        "" => String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap().trim().to_owned(),
        user => user.to_owned(),
    };
    let known_hosts = format!("UserKnownHostsFile={}", agent.path("known_hosts").display());
    let options = ["StrictHostKeyChecking=yes", &known_hosts, "IdentitiesOnly=yes", "BatchMode=yes"];
    let mut command = Command::new("ssh");
    command.args(["-v", "-F", "none", "-p", "2222", "-i"]).arg(agent.path(key));
    command.args(options.iter().flat_map(|option| ["-o", option]));
    let output = command.args([&format!("{name}@{host}"), "true"]).stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_user_logs_in_to_a_host_by_certificates_alone() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| text + CERTIFICATES);
        let ca = std::fs::read_to_string(agent.path("ca.pub")).unwrap();
        std::fs::write(agent.path("known_hosts"), format!("@cert-authority localhost {ca}")).unwrap();
        let mut sshd = start_sshd(&agent, &ca);
        let server_log = || std::fs::read_to_string(agent.path("sshd/log")).unwrap();
        eventually(Duration::from_secs(20), || {
            if server_log().contains("Server listening") { Ok(()) } else { Err(server_log()) }
        });
        let client_log = log_in(&agent, "user/key", "localhost");
        assert!(client_log.contains("Authenticated to localhost"), "{client_log}{}", server_log());
        assert!(client_log.contains("is known and matches the ED25519-CERT host certificate"), "{client_log}");
        assert!(server_log().contains("Accepted certificate ID \"vault-"), "{}", server_log());
        // The name is none of the host's certificate, so that the client does not trust it.
        std::fs::write(agent.path("known_hosts"), format!("@cert-authority * {ca}")).unwrap();
        let client_log = log_in(&agent, "user/key", "127.0.0.1");
        assert!(client_log.contains("name is not a listed principal"), "{client_log}");
        // Another authority's users are nobody.
        std::fs::write(agent.path("known_hosts"), format!("@cert-authority localhost {ca}")).unwrap();
        std::fs::write(agent.path("sshd/ca.pub"), std::fs::read(agent.path("user/key.pub")).unwrap()).unwrap();
        let client_log = log_in(&agent, "user/key", "localhost");
        assert!(client_log.contains("Permission denied"), "{client_log}{}", server_log());
        sshd.kill().unwrap();
        sshd.wait().unwrap();
    });
}
