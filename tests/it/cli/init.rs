//! `keyward init`: what it writes passes `check`, and the unit with its drop-in is valid.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use keyward_emulators::cloud::{CloudIdentities, CloudProvider, GcpNames};

use crate::harness::binary::{eventually, run};
use crate::harness::systemd::assert_drop_in_is_valid;
use crate::harness::world::{World, run_in_network_namespace};

const CONFIG: &str = "etc/keyward/keyward.toml";
const DROP_IN: &str = "etc/systemd/system/keyward.service.d/50-rights.conf";
const RULE: &str = "etc/polkit-1/rules.d/50-keyward.rules";

/// A folder in place of the machine's root.
pub(super) struct MachineKind(tempfile::TempDir);

impl MachineKind {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(super) fn init(&self, flags: &str) -> (i32, String, String) {
        let root = self.0.path().to_str().unwrap();
        let args: Vec<&str> = ["init"].into_iter().chain(flags.split_whitespace()).chain(["--root", root]).collect();
        run(&args, &[])
    }

    /// Files below the root, by their paths from there.
    pub(super) fn files(&self) -> Vec<String> {
        let (mut files, mut folders) = (Vec::new(), vec![self.0.path().to_owned()]);
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path.strip_prefix(self.0.path()).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        files.sort();
        files
    }
}

/// Asserts that `keyward check` has no complaint.
#[track_caller]
pub(super) fn assert_checked(config: &Path) {
    let (code, output, error) = run(&["check", "-c", config.to_str().unwrap()], &[]);
    assert_eq!((code, error.as_str()), (0, ""), "{output}");
    for word in ["(error)", "(warning)"] {
        assert!(!output.contains(word), "{output}\n{}", std::fs::read_to_string(config).unwrap());
    }
}

#[test]
fn on_a_vm_of_azure_the_names_in_the_commands_are_those_of_the_machine() {
    run_in_network_namespace(|| {
        let world = World::start();
        let args: Vec<&str> = ["init"].into_iter().chain(VM.split(' ')).chain(["--dry-run"]).collect();
        let (code, output, error) = run(&args, &[]);
        assert_eq!(code, 0, "{error}");
        assert!(error.contains("those of this machine, by its metadata service"), "{error}");
        let identities = world.cloud.identities();
        for name in [identities.subscription.as_str(), CloudIdentities::RESOURCE_GROUP] {
            assert!(output.contains(name), "{name}: {output}");
        }
        for placeholder in ["RESOURCE_GROUP", "SUBSCRIPTION", "--name VM"] {
            assert!(!output.contains(placeholder), "{placeholder}: {output}");
        }
        // Flags take precedence, and files for another machine have none of this one's names.
        let (_, output, error) =
            run(&[&args[..], &["--subscription", "s", "--resource-group", "g", "--vm", "v"]].concat(), &[]);
        assert!(output.contains("--resource-group g --name v") && error.is_empty(), "{output}{error}");
        let machine = MachineKind::new();
        let (_, output, error) = machine.init(VM);
        assert!(output.contains("RESOURCE_GROUP") && error.is_empty(), "{output}{error}");
        // Elsewhere nothing answers at that address.
        world.cloud.faults().refuse(true);
        let output = eventually(Duration::from_secs(20), || match run(&args, &[]) {
            (0, output, error) if error.is_empty() => Ok(output),
            other => Err(format!("{other:?}")),
        });
        assert!(output.contains("RESOURCE_GROUP"), "{output}");
    });
}

#[test]
fn on_a_vm_of_aws_the_names_in_the_commands_are_those_of_the_machine() {
    let names = [
        "bound_iam_principal_arn=arn:aws:iam::111122223333:role/keyward-vm",
        "iam_server_id_header_value=vault.example.com",
        "server_id = \"vault.example.com\"",
    ];
    run_in_network_namespace(|| assert_names_of_the_machine(CloudProvider::Aws, AWS, &names));
}

#[test]
fn on_a_vm_of_google_cloud_the_names_in_the_commands_are_those_of_the_machine() {
    let account = format!("bound_service_accounts={}", GcpNames::ACCOUNT);
    let project = format!("bound_projects={}", GcpNames::PROJECT);
    let names = [&account, &project, "audience = \"https://vault.example.com/vault/web\""];
    run_in_network_namespace(|| assert_names_of_the_machine(CloudProvider::Gcp, GCP, &names));
}

fn assert_names_of_the_machine(provider: CloudProvider, flags: &str, names: &[&str]) {
    let _world = World::with(|cloud| cloud.provider = provider, |_, _| ());
    let args: Vec<&str> = ["init"].into_iter().chain(flags.split(' ')).chain(["--dry-run"]).collect();
    let (code, output, error) = run(&args, &[]);
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("those of this machine, by its metadata"), "{error}");
    for name in names {
        assert!(output.contains(name), "{name}: {output}");
    }
}

const AWS: &str = "aws-vm --server https://vault.example.com:8200 --role web";
const GCP: &str = "gcp-vm --server https://vault.example.com:8200 --role web";

pub(super) const VM: &str = "azure-vm --server https://vault.example.com:8200 --role web";

#[test]
fn what_is_written_for_each_use_passes_the_check_and_the_unit_with_its_drop_in_is_valid() {
    let terraform = "terraform --upstream https://tfe.example.com";
    let acl = "acl --tenant 77777777-7777-7777-7777-777777777777 --role web --subscription 88888888-8888-8888-8888-888888888888 --resource-group web";
    let cases = [
        (VM.to_owned(), false, false),
        (
            format!("{VM} --group app --api-proxy --tcp-port 8300 --client-id 55555555-5555-5555-5555-555555555555"),
            true,
            false,
        ),
        (format!("{VM} --server-kind openbao --server-namespace team --mount azure-prod --no-seal-key"), false, false),
        (format!("{VM} --server-kind keyward --resource api://acl --token-file /srv/app/token"), false, false),
        (format!("{VM} --template /etc/app/a.tmpl --destination /etc/app/a.conf --reload nginx.service"), false, true),
        (format!("{VM} --template /etc/keyward/a.tmpl --destination /run/keyward/my.app.conf"), false, false),
        (AWS.to_owned(), false, false),
        (format!("{AWS} --server-kind keyward --server-id acl --region eu-west-1 --api-proxy"), false, false),
        (GCP.to_owned(), false, false),
        (format!("{GCP} --server-kind openbao --audience https://a/vault/web --tcp-port 8300"), false, false),
        ("terraform".to_owned(), false, false),
        (format!("{terraform} --token-file /run/ci/platform.token --port 8801"), false, false),
        (
            format!(
                "{terraform} --secret-path terraform/creds/ci --server https://bao.example.com --server-kind openbao --role ci"
            ),
            false,
            false,
        ),
        (format!("{terraform} --team-id team-1 --organization example --user ci"), true, false),
        ("acl".to_owned(), false, false),
        (format!("{acl} --separate-key --datacenter dc2"), false, false),
        (
            format!(
                "{acl} --listen tcp://0.0.0.0:443 --tls-cert-file /etc/keyward/a.pem --tls-key-file /etc/keyward/a.key --data-dir /srv/acl"
            ),
            true,
            false,
        ),
    ];
    for (flags, has_drop_in, has_rule) in cases {
        let machine = MachineKind::new();
        let (code, output, error) = machine.init(&flags);
        assert_eq!(code, 0, "{flags}: {output}{error}");
        assert_checked(&machine.path(CONFIG));
        assert_eq!(machine.path(DROP_IN).exists(), has_drop_in, "{flags}");
        assert_eq!(machine.path(RULE).exists(), has_rule, "{flags}");
        if has_drop_in {
            assert_drop_in_is_valid(&machine.read(DROP_IN));
        }
        assert!(output.contains("sudo systemctl enable --now keyward"), "{flags}: {output}");
    }
}

#[test]
fn a_flag_that_looks_like_a_reference_is_written_as_text() {
    let machine = MachineKind::new();
    let (code, output, error) = machine.init("azure-vm --server https://vault.example.com:8200 --role ${env:HOME}");
    assert_eq!(code, 0, "{output}{error}");
    let config = machine.read(CONFIG);
    assert!(config.contains("role = \"$${env:HOME}\"\n"), "{config}");
    assert_checked(&machine.path(CONFIG));
}

#[test]
fn a_group_and_a_reload_are_granted_to_the_unit() {
    let machine = MachineKind::new();
    let flags = format!("{VM} --group app --template /etc/app/a.tmpl --destination /etc/app/a.conf --reload nginx");
    let (code, output, _) = machine.init(&flags);
    assert_eq!(code, 0);
    assert!(output.contains("\nsudo groupadd --force app "), "{output}");
    let drop_in = machine.read(DROP_IN);
    assert!(drop_in.lines().any(|line| line == "SupplementaryGroups=app"), "{drop_in}");
    assert!(machine.read(RULE).contains("[\"nginx.service\", \"reload\"]"));
}

#[test]
fn keys_are_secret_and_are_kept_and_other_files_are_replaced_by_force_alone() {
    let machine = MachineKind::new();
    let flags = format!("{VM} --tcp-port 8300");
    let (code, output, _) = machine.init(&flags);
    assert_eq!(code, 0);
    let keys = ["etc/keyward/seal.key", "etc/keyward/listener.key"];
    let read = || keys.map(|key| machine.read(key));
    let before = read();
    for (key, text) in keys.iter().zip(&before) {
        let mode = std::fs::metadata(machine.path(key)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{key}");
        assert!(text.trim().len() == 64 && text.trim().bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(!output.contains(text.trim()));
    }
    assert_ne!(before[0], before[1]);
    let folder = std::fs::metadata(machine.path("etc/keyward")).unwrap().permissions().mode() & 0o777;
    assert_eq!(folder, 0o750);

    std::fs::write(machine.path(CONFIG), "# mine\n").unwrap();
    let (code, output, error) = machine.init(&flags);
    assert_eq!((code, output.as_str()), (9, ""), "{error}");
    assert!(error.contains("keyward.toml exists already") && error.contains("--force"), "{error}");
    assert_eq!(machine.read(CONFIG), "# mine\n");

    let (code, output, _) = machine.init(&format!("{flags} --force"));
    assert_eq!(code, 0);
    assert!(output.contains("seal.key, which exists already"), "{output}");
    assert_checked(&machine.path(CONFIG));
    assert!(read() == before);
}

#[test]
fn a_drop_in_of_an_earlier_run_that_is_not_needed_any_more_is_told() {
    let machine = MachineKind::new();
    assert_eq!(machine.init(&format!("{VM} --group app")).0, 0);
    let (code, _, error) = machine.init(&format!("{VM} --force"));
    assert_eq!(code, 0);
    assert!(error.contains("50-rights.conf grants what this configuration does not need: remove it"), "{error}");
    assert!(machine.path(DROP_IN).exists());
}

#[test]
fn a_trial_run_prints_everything_but_keys_and_writes_nothing() {
    let machine = MachineKind::new();
    let (code, output, _) = machine.init(&format!("{VM} --group app --dry-run"));
    assert_eq!(code, 0);
    for text in [
        "# /etc/keyward/keyward.toml, mode 0640",
        "[sink.token]",
        "(64 random characters)",
        "SupplementaryGroups=app",
        "vault auth enable",
    ] {
        assert!(output.contains(text), "{text}: {output}");
    }
    assert_eq!(machine.files(), Vec::<String>::new());
}

#[test]
fn without_a_terminal_a_missing_value_is_an_error_that_names_its_flag() {
    let machine = MachineKind::new();
    for (flags, missing) in [
        ("azure-vm", vec!["--server", "--role"]),
        ("azure-vm --role web", vec!["--server"]),
        ("aks --server https://a.example --role web", vec!["--client-id", "--tenant"]),
        ("terraform --secret-path terraform/creds/ci --role ci", vec!["--server"]),
        ("acl --tenant 77777777-7777-7777-7777-777777777777 --role web", vec!["--subscription", "--resource-group"]),
    ] {
        let (code, output, error) = machine.init(flags);
        assert_eq!((code, output.as_str()), (1, ""), "{flags}");
        let named: Vec<&str> =
            error.lines().filter_map(|line| line.strip_prefix("error: ")?.split(' ').next()).collect();
        assert_eq!(named, missing, "{error}");
    }
    assert_eq!(machine.files(), Vec::<String>::new());
}

#[test]
fn values_that_the_configuration_rejects_are_told_and_nothing_is_written() {
    let machine = MachineKind::new();
    for (flags, stderr) in [
        ("azure-vm --server vault.example.com --role web", "server.main.address"),
        ("acl --listen tcp://0.0.0.0:8500", "acl.listen"),
        ("terraform --upstream http://tfe.example.com", "gateway.upstream"),
    ] {
        let (code, _, error) = machine.init(flags);
        assert_eq!(code, 3, "{flags}: {error}");
        assert!(error.contains(stderr), "{flags}: {error}");
    }
    assert_eq!(machine.files(), Vec::<String>::new());
}

#[test]
fn the_online_check_of_a_gateway_is_announced_as_a_login_only_if_there_is_one() {
    for (flags, has_login) in
        [("", false), (" --server https://vault.example.com --role web --secret-path terraform/creds/ci", true)]
    {
        let (code, output, error) =
            MachineKind::new().init(&format!("terraform --upstream https://tfe.example.com{flags}"));
        assert_eq!(code, 0, "{error}");
        let line = output.lines().find(|line| line.contains("check --online")).unwrap();
        assert_eq!(line.contains("a login that is revoked at once"), has_login, "{line}");
    }
}

/// Runs a command on a terminal of its own, with these lines typed; returns what the terminal shows.
pub(super) fn on_a_terminal(command: &str, typed: &str) -> (bool, String) {
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--echo", "never", "--command", command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("script: {error}; install Debian's bsdutils"));
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).replace('\r', ""))
}

#[test]
fn on_a_terminal_it_asks_for_what_no_flag_gives() {
    let machine = MachineKind::new();
    let command =
        format!("{} init azure-vm --role web --root {}", env!("CARGO_BIN_EXE_keyward"), machine.0.path().display());
    let (ok, output) = on_a_terminal(&command, "nonsense\nhttps://vault.example.com:8200\n\n\napp\n");
    assert!(ok, "{output}");
    for text in [
        "address of Vault or OpenBao",
        "(--server): ",
        "(--resource) [https://management.azure.com/]: ",
        "(--group) [none]: ",
    ] {
        assert!(output.contains(text), "{text}: {output}");
    }
    assert!(!output.contains("(--role)"), "{output}");
    assert_checked(&machine.path(CONFIG));
    let config = machine.read(CONFIG);
    assert!(config.contains("group = \"app\"") && config.contains("https://vault.example.com:8200"), "{config}");
}

pub(super) fn run_line(line: &str) -> (i32, String, String) {
    run(&line.split_whitespace().collect::<Vec<_>>(), &[])
}

#[test]
fn ids_that_are_no_guids_are_errors() {
    for (flags, flag) in [
        (format!("init {VM} --client-id 1234"), "--client-id"),
        ("init acl --tenant contoso --role web".to_owned(), "--tenant"),
    ] {
        let (code, _, error) = run_line(&format!("{flags} --dry-run"));
        assert_eq!(code, 1, "{flags}: {error}");
        assert!(error.contains("invalid value") && error.contains(flag), "{flags}: {error}");
    }
}

#[test]
fn a_method_of_the_acl_server_needs_its_restart() {
    let (code, output, error) = run_line(&format!("init {VM} --server-kind keyward --dry-run"));
    assert_eq!(code, 0, "{error}");
    assert!(
        output.contains("# into the ACL server's configuration, then: sudo systemctl restart keyward\n"),
        "{output}"
    );
}
