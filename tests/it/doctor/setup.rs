//! Files that `init` and `migrate` write for a machine pass `check` and `doctor`. Without the drop-in or the rule, `doctor` objects.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::site::{execute, mount_run, problems, world};
use crate::harness::binary::run;
use crate::harness::world::{World, run_in_network_namespace};

const CONFIG: &str = "/etc/keyward/keyward.toml";
const DROP_IN: &str = "/etc/systemd/system/keyward.service.d/50-rights.conf";
const RULE: &str = "/etc/polkit-1/rules.d/50-keyward.rules";

/// A machine with the packaged unit, folders and user: `/etc`, `/home`, `/run`, `/usr/bin` and `/var/lib` are its own.
struct MachineKind {
    world: World,
    /// Id of user and group `keyward`.
    service: u32,
}

impl MachineKind {
    fn start() -> Self {
        let world = world(|_, _| ());
        mount_run();
        execute("mount -t tmpfs -o mode=0755 tmpfs /home");
        for folder in ["/etc", "/usr/bin", "/var/lib"] {
            let upper = format!("/run/upper{}", folder.replace('/', "-"));
            execute(&format!("mkdir -p {upper}/upper {upper}/work"));
            let options = format!("lowerdir={folder},upperdir={upper}/upper,workdir={upper}/work");
            execute(&format!("mount -t overlay -o {options} overlay {folder}"));
        }
        // A user namespace of somebody who is not root has one user.
        let ids = std::fs::read_to_string("/proc/self/uid_map").unwrap();
        let service = if ids.split_whitespace().nth(2) == Some("1") { 0 } else { 64_990 };
        for file in ["/etc/passwd", "/etc/group"] {
            let mut text = std::fs::read_to_string(file).unwrap();
            for name in ["keyward", "app", "ci"] {
                let id = if service == 0 { 0 } else { service + u32::from(name != "keyward") };
                let shell = if file == "/etc/passwd" { format!("{id}::/:/usr/sbin/nologin") } else { String::new() };
                writeln!(text, "{name}:x:{id}:{shell}").unwrap();
            }
            std::fs::write(file, text).unwrap();
        }
        // Bound, so that the service needs no right on the folders of the build.
        std::fs::write("/usr/bin/keyward", "").unwrap();
        execute(&format!("mount --bind {} /usr/bin/keyward", env!("CARGO_BIN_EXE_keyward")));
        make_packaged_folders();
        Self { world, service }
    }

    /// Makes a folder of the service.
    fn folder(&self, path: &str) {
        std::fs::create_dir_all(path).unwrap();
        chown(path, Some(self.service), Some(self.service)).unwrap();
    }

    /// Makes a file that only the service reads.
    fn secret(&self, path: &str, text: &str) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        chown(path, Some(self.service), Some(self.service)).unwrap();
    }

    /// Runs `keyward init`, and the printed commands that make folders.
    fn init(&self, flags: &str) {
        let flags = flags.replace("SERVER", self.world.secrets.url());
        let args: Vec<&str> = ["init"].into_iter().chain(flags.split_whitespace()).chain(["--force"]).collect();
        let (code, output, error) = run(&args, &[]);
        assert_eq!(code, 0, "{flags}: {output}{error}");
        for line in output.lines().filter_map(|line| line.strip_prefix("sudo install -d ")) {
            execute(&format!("install -d {line}"));
        }
        // Not every machine has setfacl: here the folder is given to the service.
        for line in output.lines().filter_map(|line| line.strip_prefix("sudo setfacl -m u:keyward:rwx ")) {
            self.folder(line.split(" #").next().unwrap_or_default().trim());
        }
    }

    fn doctor(&self) -> (i32, Value) {
        let (code, output, error) = run(&["doctor", "-o", "json"], &[]);
        assert!(error.is_empty(), "{error}");
        (code, serde_json::from_str(&output).unwrap_or_else(|_| panic!("{output}")))
    }

    /// Runs keyward as the service's user; returns its exit code, and all that it prints.
    fn run_as_service(&self, args: &str) -> (Option<i32>, String) {
        let id = self.service;
        let output = Command::new("setpriv")
            .args([format!("--reuid={id}"), format!("--regid={id}"), "--clear-groups".to_owned()])
            .arg("/usr/bin/keyward")
            .args(args.split(' '))
            .output()
            .expect("setpriv, of util-linux");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    #[track_caller]
    fn assert_good(&self, name: &str) {
        let (code, output, error) = run(&["check"], &[]);
        assert_eq!((code, error.as_str()), (0, ""), "{name}: {output}");
        assert!(!output.contains("(warning)"), "{name}: {output}");
        let (code, report) = self.doctor();
        assert_eq!((code, problems(&report)), (0, Vec::new()), "{name}: {report:#}");
        assert!(report.to_string().contains("user keyward"), "{name}: {report:#}");
    }

    /// Asserts that without this file `doctor` has findings with exactly these codes. Puts the file back.
    #[track_caller]
    fn assert_needed(&self, file: &str, codes: &[&str]) {
        let away = format!("{file}.away");
        std::fs::rename(file, &away).unwrap();
        let (code, report) = self.doctor();
        let found = problems(&report);
        std::fs::rename(&away, file).unwrap();
        let found_codes: BTreeSet<&str> = found.iter().map(|(code, _)| code.as_str()).collect();
        assert_eq!((code, found_codes), (1, codes.iter().copied().collect()), "without {file}: {found:#?}");
    }
}

/// Makes the folders of the package, by its file for tmpfiles.d.
fn make_packaged_folders() {
    let lines =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/systemd/tmpfiles.conf")).unwrap();
    for line in lines.lines().filter(|line| !line.starts_with('#')) {
        let [kind, path, mode, user, group] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!(kind, "d", "{line}");
        execute(&format!("install -d -m {mode} -o {user} -g {group} {path}"));
    }
}

#[test]
fn files_of_init_pass_check_and_doctor_which_objects_without_the_drop_in_or_the_rule() {
    run_in_network_namespace(|| {
        let machine = MachineKind::start();
        machine.init("azure-vm --server SERVER --role web --api-proxy --tcp-port 8300");
        assert!(!Path::new(DROP_IN).exists() && !Path::new(RULE).exists());
        machine.assert_good("azure-vm");
        // As printed, as docs/configuration.md has it before a reload, and as the unit does.
        for command in ["check --online", "check --host --quiet", "check --quiet"] {
            let (code, text) = machine.run_as_service(command);
            assert_eq!(code, Some(0), "{command}: {text}");
        }

        machine.folder("/etc/app");
        let template = r#"{{ with secret "secret/data/web/app" }}{{ .Data.data.password }}{{ end }}"#;
        std::fs::write("/etc/app/a.tmpl", template).unwrap();
        machine.init(
            "azure-vm --server SERVER --role web --group app --template /etc/app/a.tmpl --destination /etc/app/a.conf \
             --reload nginx.service",
        );
        machine.assert_good("azure-vm with a template");
        let (code, text) = machine.run_as_service("check --online");
        assert_eq!(code, Some(0), "{text}");
        machine.assert_needed(DROP_IN, &["KW-1906"]);
        machine.assert_needed(RULE, &["KW-1904"]);
        std::fs::remove_file(RULE).unwrap();

        let token = machine.world.platform.faults().mint("setup").token;
        machine.secret("/etc/keyward/platform.token", token.expose_secret());
        let upstream = machine.world.platform.url().trim_end_matches('/');
        machine.init(&format!("terraform --upstream {upstream} --user ci"));
        machine.assert_good("terraform");
        machine.assert_needed(DROP_IN, &["KW-1906"]);

        machine.init("acl --listen tcp://127.0.0.1:443 --data-dir /run/acl --separate-key");
        machine.assert_good("acl");
        machine.assert_needed(DROP_IN, &["KW-1906"]);
    });
}

#[test]
fn a_pods_configuration_has_no_finding_but_the_tenant_that_is_not_azures() {
    run_in_network_namespace(|| {
        let machine = MachineKind::start();
        let flags = "aks --server SERVER --role web --client-id 11111111-1111-1111-1111-111111111111 --tenant 33333333-3333-3333-3333-333333333333 --out /run";
        machine.init(flags);
        let manifest = std::fs::read_to_string("/run/keyward.yaml").unwrap();
        let (_, config) = manifest.split_once("  keyward.toml: |\n").unwrap();
        let lines = config.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
        let config: String = lines.flat_map(|line| [line.trim_start(), "\n"]).collect();
        std::fs::create_dir_all("/etc/keyward").unwrap();
        std::fs::write(CONFIG, config).unwrap();
        std::fs::remove_file("/run/systemd/system/keyward.service").unwrap();
        let proof = "/run/identity-token";
        machine.secret(proof, "header.payload.signature");
        let variables = [
            ("AZURE_CLIENT_ID", "11111111-1111-1111-1111-111111111111"),
            ("AZURE_TENANT_ID", "33333333-3333-3333-3333-333333333333"),
            ("AZURE_FEDERATED_TOKEN_FILE", proof),
            ("AZURE_AUTHORITY_HOST", "https://127.0.0.1:9/"),
        ];
        let (code, output, error) = run(&["check"], &variables);
        assert_eq!((code, error.as_str(), output.contains("(warning)")), (0, "", false), "{output}");
        let (code, output, _) = run(&["doctor", "-o", "json"], &variables);
        let report: Value = serde_json::from_str(&output).unwrap();
        let found = problems(&report);
        assert!(found.len() == 1 && found[0].1.contains("\"step\":\"identity\""), "{found:#?}");
        assert_eq!(code, 2, "{report:#}");
    });
}

#[test]
fn files_of_migrate_pass_check_and_doctor_which_objects_without_the_rule() {
    run_in_network_namespace(|| {
        let machine = MachineKind::start();
        let theirs = format!(
            r#"vault {{ address = "{server}" }}
auto_auth {{
  method "azure" {{ config = {{ role = "web" resource = "https://management.azure.com/" }} }}
  sink "file" {{ config = {{ path = "/run/app/token" mode = 0640 }} }}
}}
template {{
  contents = "{{{{ with secret \"secret/data/web/app\" }}}}{{{{ .Data.data.password }}}}{{{{ end }}}}"
  destination = "/run/app/app.conf"
  command = "systemctl reload app"
}}
"#,
            server = machine.world.secrets.url(),
        );
        std::fs::write("/run/agent.hcl", theirs).unwrap();
        std::fs::create_dir_all("/etc/keyward").unwrap();
        let (code, output, error) =
            run(&["migrate", "/run/agent.hcl", "--out", CONFIG, "--systemd-drop-in", "/run/made", "--accept"], &[]);
        assert_eq!(code, 0, "{output}{error}");
        // As the report says.
        machine.folder("/run/app");
        execute(&format!("chgrp keyward {CONFIG}"));
        std::fs::set_permissions(CONFIG, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(!Path::new("/run/made/50-rights.conf").exists());
        execute(&format!("install -D -m 644 /run/made/50-keyward.rules {RULE}"));
        machine.assert_good("migrate");
        machine.assert_needed(RULE, &["KW-1904"]);
    });
}
