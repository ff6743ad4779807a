//! Migration of other agents' configurations: each result has no error, and the report has each key.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use keyward_config::migrate::{Migrated, Outcome, migrate};
use keyward_config::{Config, Environment, Purpose, load_text};

use crate::harness::binary::{run, run_with_input};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/agents").join(name)
}

fn migrated(name: &str) -> (Migrated, Config) {
    let migrated = migrate(&std::fs::read_to_string(fixture(name)).unwrap(), false).unwrap();
    let outcome = load_text(Path::new("ours.toml"), &migrated.toml, &Environment::default(), Purpose::Check);
    assert!(outcome.errors.is_empty(), "{name}: {:?}\n{}", outcome.errors, migrated.toml);
    (migrated, outcome.config.unwrap())
}

/// Report lines about a key.
fn report_lines_for<'a>(migrated: &'a Migrated, key: &str) -> Vec<(Outcome, &'a str)> {
    let lines = migrated.report.iter().filter(|line| line.key == key);
    lines.map(|line| (line.outcome, line.detail.as_str())).collect()
}

#[track_caller]
fn says(migrated: &Migrated, key: &str, outcome: Outcome, words: &str) {
    let lines = report_lines_for(migrated, key);
    assert!(lines.iter().any(|(found, text)| *found == outcome && text.contains(words)), "{key}: {lines:?}");
}

#[test]
fn a_vm_with_a_managed_identity_is_converted() {
    let (migrated, config) = migrated("azure-vm.hcl");
    let expected = r#"[server.main]
kind = "vault"
address = "https://secrets.example.com:8200"
ca_file = "/etc/ssl/certs/company.pem"

[session.main]
mount = "azure-prod"
namespace = "team-a"

[session.main.cloud]
role = "web"
resource = "https://management.azure.com/"
client_id = "11111111-2222-3333-4444-555555555555"

[sink.file-1]
path = "/run/agent/token"
mode = "0600"

[sink.file-2]
wrap_ttl = "5m"
format = "json"
path = "/run/agent/other-token"
mode = "0600"
owner = "1000"
group = "1000"

# Every user of this machine may call, as before. key_file = "/PATH" restricts it to callers with a key.
[listener.tcp-1]
kind = "api_proxy"
address = "tcp://127.0.0.1:8100"
any_local_user = true
token = "when_missing"
require_request_header = false

[listener.tcp-1.cache]
max_age = "0s"

[listener.unix-1]
kind = "api_proxy"
address = "unix:///run/agent/api.sock"
mode = "0660"
owner = "1000"
group = "1000"
token = "when_missing"
require_request_header = true

[listener.unix-1.cache]
max_age = "0s"

[listener.tcp-2]
kind = "health"
address = "tcp://0.0.0.0:9102"

[log]
level = "debug"
format = "json"
"#;
    assert_eq!(migrated.toml, expected);
    assert_eq!((config.sessions.len(), config.sinks.len(), config.listeners.len()), (1, 2, 3));
    says(&migrated, "listener.tcp", Outcome::Changed, "any_local_user = true: every user of this machine may call");
    says(
        &migrated,
        "auto_auth.sink.file.config.mode",
        Outcome::Action,
        "640 without a leading zero is a decimal number",
    );
    says(&migrated, "listener.unix.agent_api.enable_quit", Outcome::NotSupported, "SIGTERM");
    says(&migrated, "auto_auth.method.azure.max_backoff", Outcome::Changed, "full jitter");
    says(&migrated, "cache", Outcome::Kept, "[listener.NAME.cache] of each listener");
    says(&migrated, "telemetry.statsd_address", Outcome::NotSupported, "scraped");
}

#[test]
fn a_pod_is_converted_from_json() {
    let (migrated, config) = migrated("kubernetes.json");
    says(&migrated, "auto_auth.sink.config.mode", Outcome::Kept, "mode = \"0640\"");
    says(&migrated, "auto_auth.sink.config.gid", Outcome::Kept, "the agent's own");
    says(&migrated, "listener.tcp.address", Outcome::Action, "written as tcp://127.0.0.1:8200");
    assert!(migrated.toml.contains("token = \"always\"\n"), "{}", migrated.toml);
    assert_eq!((config.sessions[0].login.mount.as_str(), config.sessions[0].login.role.as_str()), ("cluster-1", "web"));
    assert_eq!(config.sinks[0].options.owner, Some(100));
}

#[test]
fn files_that_vault_agent_removes_after_reading_are_removed() {
    let (migrated, _) = migrated("approle-wrapped.hcl");
    assert!(migrated.toml.contains("remove_secret_id_after_reading = true\n"), "{}", migrated.toml);
    assert!(migrated.toml.contains("secret_id_wrapping_path = \"auth/approle/role/batch/secret-id\"\n"));
    assert!(migrated.toml.contains("wrap_ttl = \"10m\"\n") && migrated.toml.contains("format = \"json\"\n"));
    says(&migrated, "exit_after_auth", Outcome::Changed, "keyward run --exit-after-auth");
    let encrypt =
        "[sink.file-1.encrypt]\npublic_key_file = \"/etc/agent/public.json\"\nderive_key = false\naad = \"batch\"\n";
    assert!(migrated.toml.contains(encrypt), "{}", migrated.toml);
    says(&migrated, "auto_auth.sink.dh_path", Outcome::Kept, "encrypt.public_key_file");
    says(&migrated, "auto_auth.sinks", Outcome::Action, "unknown block");
    let (migrated, _) = self::migrated("jwt-and-token.hcl");
    assert!(migrated.toml.contains("remove_after_reading = true\n"), "{}", migrated.toml);
    says(&migrated, "auto_auth.method.jwt.config.jwt_read_period", Outcome::NotSupported, "again");
    says(&migrated, "listener.unix.socket_mode", Outcome::Changed, "has no effect in Vault Agent");
    assert!(migrated.toml.contains("# mode = \"0600\"\n"), "{}", migrated.toml);
}

#[test]
fn a_token_file_login_is_converted() {
    let (migrated, _) = migrated("token-file.hcl");
    assert!(migrated.toml.contains("[session.main.token_file]\nfile = \"/etc/agent/token\"\n"), "{}", migrated.toml);
    says(&migrated, "listener.tcp.tls_cert_file", Outcome::Changed, "tls_cert; user keyward must be able to read");
    says(&migrated, "disable_keep_alives", Outcome::NotSupported, "reused");
}

#[test]
fn the_aad_of_an_encrypted_sink_may_come_from_a_variable_and_is_dropped_without_encryption() {
    let text = |keys: &str| {
        format!(
            "vault {{ address = \"https://s.example\" }}\nauto_auth {{ sink \"file\" {{ {keys}\nconfig = {{ path = \"/t\" }} }} }}\n"
        )
    };
    let keys = "dh_type = \"curve25519\"\ndh_path = \"/k\"\nderive_key = true\naad = \"x\"\naad_env_var = \"AAD\"";
    let migrated = migrate(&text(keys), false).unwrap();
    let encrypt = "[sink.file-1.encrypt]\npublic_key_file = \"/k\"\nderive_key = true\naad = \"${env:AAD}\"\n";
    assert!(migrated.toml.contains(encrypt), "{}", migrated.toml);
    says(&migrated, "auto_auth.sink.file.aad", Outcome::NotSupported, "aad_env_var takes precedence");
    says(&migrated, "auto_auth.sink.file.aad_env_var", Outcome::Changed, "${env:NAME}");
    let migrated = migrate(&text("aad = \"x\""), false).unwrap();
    says(&migrated, "auto_auth.sink.file.aad", Outcome::NotSupported, "has no effect without dh_type and dh_path");
    assert!(migrated.toml.contains("\n[sink.file-1]\npath = \"/t\"\n"), "{}", migrated.toml);
    for (keys, key) in
        [("dh_path = \"/k\"", "dh_path"), ("dh_type = \"p256\"", "dh_type"), ("wrap_ttl = \"soon\"", "wrap_ttl")]
    {
        let migrated = migrate(&text(keys), false).unwrap();
        says(&migrated, &format!("auto_auth.sink.file.{key}"), Outcome::Action, "the sink is written commented out");
        assert!(migrated.toml.contains("\n# [sink.file-1]\n# path = \"/t\"\n"), "{}", migrated.toml);
    }
}

#[test]
fn the_methods_of_other_clouds_keep_their_meaning_and_no_secret_is_written() {
    let of = |method: &str, config: &str| {
        let text = format!(
            "vault {{ address = \"https://v\" }}\nauto_auth {{\n method \"{method}\" {{ config = {{ {config} }} }}\n}}\n"
        );
        let migrated = migrate(&text, false).unwrap();
        assert!(!migrated.toml.contains("canary"), "{}", migrated.toml);
        let outcome = load_text(Path::new("ours.toml"), &migrated.toml, &Environment::default(), Purpose::Check);
        let errors: Vec<_> = outcome.errors.iter().map(ToString::to_string).collect();
        (migrated, errors)
    };
    let (aws, errors) = of(
        "aws",
        "type = \"iam\" role = \"web\" region = \"eu-west-1\" header_value = \"vault.example\" access_key = \"AKID\" \
         secret_key = \"canary\" nonce = \"n\"",
    );
    assert!(errors.is_empty(), "{errors:?}");
    let section = "[session.main.aws]\nrole = \"web\"\nserver_id = \"vault.example\"\nregion = \"eu-west-1\"\n";
    assert!(aws.toml.contains(section), "{}", aws.toml);
    says(&aws, "auto_auth.method.aws.config.secret_key", Outcome::Action, "AWS_SECRET_ACCESS_KEY");
    says(&aws, "auto_auth.method.aws.config.nonce", Outcome::NotSupported, "only for the type ec2");

    let (machine, _) = of("aws", "type = \"ec2\" role = \"web\" region = \"us-east-1\"");
    assert!(machine.toml.contains("[session.main.aws]\nrole = \"web\"\n"), "{}", machine.toml);
    says(&machine, "auto_auth.method.aws.config.type", Outcome::Action, "only iam is supported");
    says(&machine, "auto_auth.method.aws.config.region", Outcome::Kept, "the global endpoint");

    let (gcp, errors) = of("gcp", "type = \"iam\" role = \"web\" credentials = \"/etc/key.json\" jwt_exp = 15");
    assert!(errors.is_empty(), "{errors:?}");
    let section = "[session.main.gcp]\ntype = \"iam\"\nrole = \"web\"\ncredentials_file = \"/etc/key.json\"\n";
    assert!(gcp.toml.contains(section), "{}", gcp.toml);
    says(&gcp, "auto_auth.method.gcp.config.credentials", Outcome::Changed, "without a call");

    let (instance, errors) = of("gcp", "type = \"gce\" role = \"web\" service_account = \"default\" project = \"p\"");
    assert!(errors.is_empty(), "{errors:?}");
    let section = "[session.main.gcp]\ntype = \"gce\"\nrole = \"web\"\nservice_account = \"default\"\n";
    assert!(instance.toml.contains(section), "{}", instance.toml);
}

#[test]
fn an_unsupported_method_is_reported_with_its_keys() {
    let text =
        "vault { address = \"http://10.0.0.1:8200\" }\nauto_auth { method \"oci\" { config = { role = \"x\" } } }\n";
    let migrated = migrate(text, true).unwrap();
    says(&migrated, "auto_auth.method.oci", Outcome::Action, "\"oci\" is not supported");
    says(&migrated, "auto_auth.method.oci.config", Outcome::NotSupported, "dropped with its method");
    let outcome = load_text(Path::new("ours.toml"), &migrated.toml, &Environment::default(), Purpose::Check);
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

fn keyward(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_keyward")).arg("migrate").args(arguments).env_clear().output().unwrap()
}

#[test]
fn migrate_writes_the_configuration_to_standard_output_and_the_report_to_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("keyward.toml").display().to_string();
    let theirs = fixture("kubernetes.json").display().to_string();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();

    let output = keyward(&[&theirs]);
    assert_eq!(output.status.code(), Some(10), "an action is open: {}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("[server.main]\nkind = \"vault\"\n"));
    let report = text(&output.stderr);
    let at = |line: &str| report.find(line).unwrap_or_else(|| panic!("{line}: {report}"));
    let action = at("ACTION REQUIRED:\n  ");
    let persist = at("kubernetes.json:14:14: cache.persist: set seal_key_file on the session");
    let address = at("kubernetes.json:12:26: listener.tcp.address: ");
    let changed = at("\nchanged:\n  ");
    let kept_at = at("\nkept:\n  ");
    assert!(action < address && address < persist && persist < changed && changed < kept_at, "{report}");
    assert!(at("kubernetes.json:3:13: vault: [server.main]") > kept_at, "{report}");
    assert!(report.contains("\n2 actions required, "), "{report}");

    let written = keyward(&[&theirs, "--out", &out, "--openbao", "--accept"]);
    assert_eq!((written.status.code(), written.stdout.len()), (Some(0), 0));
    let ours = std::fs::read_to_string(&out).unwrap();
    assert_eq!(ours, text(&output.stdout).replace("kind = \"vault\"", "kind = \"openbao\""));
    let checked = Command::new(env!("CARGO_BIN_EXE_keyward")).args(["check", "--config", &out]).output().unwrap();
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));
    let again = keyward(&[&theirs, "--out", &out]);
    assert_eq!(again.status.code(), Some(9), "{}", text(&again.stderr));

    let bad = folder.path().join("bad.hcl");
    std::fs::write(&bad, "vault {\n  address = https://x\n}\n").unwrap();
    let refused = keyward(&[bad.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused.stderr).contains("bad.hcl: line 2, column"), "{}", text(&refused.stderr));
    let login = "auto_auth { method \"jwt\" { config = { role = \"r\" path = \"/j\" } } }";
    std::fs::write(&bad, format!("vault {{ address = \"ftp://10.0.0.1\" }}\n{login}\n")).unwrap();
    assert_eq!(keyward(&[bad.to_str().unwrap()]).status.code(), Some(3), "the result has an error");
    assert_eq!(keyward(&["/nowhere/at/all"]).status.code(), Some(1));
}

#[test]
fn templates_and_their_child_process_are_converted() {
    let (migrated, config) = migrated("templates.hcl");
    let text = &migrated.toml;
    assert!(text.contains("[templates]\ninterval = \"10m\"\n"), "{text}");
    assert!(text.contains("contents = '''\n{{ with secret \"secret/data/web\" -}}\npassword = "), "{text}");
    assert!(text.contains("command = [\"systemctl reload app\"]\nshell = true\n"), "{text}");
    assert!(text.contains("command = [\"/usr/bin/app\", \"reload\"]\ncommand_timeout = \"5s\"\n"), "{text}");
    assert!(
        text.contains("[env_template.DATABASE_PASSWORD]\n") && text.contains("on_change = \"restart\"\n"),
        "{text}"
    );
    says(&migrated, "template.backup", Outcome::Kept, "backup");
    assert!(text.contains("backup = true\ncommand = [\"/usr/bin/app\", \"reload\"]\n"), "{text}");
    says(&migrated, "template.error_on_missing_key", Outcome::Kept, "is an error");
    says(&migrated, "template_config.exit_on_retry_failure", Outcome::NotSupported, "readiness");
    says(&migrated, "exec", Outcome::Changed, "pass_env = [");
    assert_eq!(config.sessions[0].name, "main");
}

/// A configuration with a session, and these lines; ours has no mistake.
fn moved(more: &str) -> Migrated {
    let text = format!(
        "vault {{ address = \"https://s.example\" }}\nauto_auth {{ method \"jwt\" {{ config = {{ role = \"r\" path = \"/j\" }} }} }}\n{more}"
    );
    let migrated = migrate(&text, false).unwrap();
    let outcome = load_text(Path::new("ours.toml"), &migrated.toml, &Environment::default(), Purpose::Check);
    assert!(outcome.errors.is_empty(), "{more}: {:?}\n{}", outcome.errors, migrated.toml);
    migrated
}

#[test]
fn a_listener_without_an_address_gets_the_default_one_and_empty_socket_keys_are_ignored() {
    let proxy = "api_proxy { use_auto_auth_token = true }\n";
    let migrated = moved(&format!("{proxy}listener \"tcp\" {{ tls_disable = true }}\n"));
    assert!(migrated.toml.contains("address = \"tcp://127.0.0.1:8200\"\nany_local_user = true\n"), "{}", migrated.toml);
    let migrated = moved(&format!(
        "{proxy}listener \"unix\" {{ address = \"/s\" socket_mode = \"\" socket_user = \"\" socket_group = \"\" }}\n"
    ));
    // Only its owner may connect to such a socket there.
    assert!(migrated.toml.contains("\nmode = \"0600\"\n") && !migrated.toml.contains("owner ="), "{}", migrated.toml);
    says(&migrated, "listener.unix.socket_mode", Outcome::Kept, "no effect");
}

#[test]
fn an_invalid_boolean_is_reported_and_the_safe_value_is_written() {
    let migrated = moved("listener \"tcp\" { address = \"127.0.0.1:81\" require_request_header = \"yes\" }\n");
    assert!(migrated.toml.contains("# require_request_header = true\n"), "{}", migrated.toml);
    says(&migrated, "listener.tcp.require_request_header", Outcome::NotSupported, "not a boolean");
    let migrated = moved("api_proxy { use_auto_auth_token = \"sometimes\" }\ncache { cache_static_secrets = \"x\" }\n");
    says(&migrated, "api_proxy.use_auto_auth_token", Outcome::NotSupported, "not a boolean");
    says(&migrated, "cache.cache_static_secrets", Outcome::NotSupported, "not a boolean");
    says(&moved("log_format = \"xml\"\n"), "log_format", Outcome::NotSupported, "\"standard\" or \"json\"");
}

#[test]
fn durations_out_of_range_are_moved_to_the_nearest_bound() {
    let migrated = moved("template_config { static_secret_render_interval = \"5s\" }\n");
    assert!(migrated.toml.contains("interval = \"10s\"\n"), "{}", migrated.toml);
    says(&migrated, "template_config.static_secret_render_interval", Outcome::Changed, "10s to 24h");
    let migrated = moved("template_config { static_secret_render_interval = 0 }\n");
    assert!(!migrated.toml.contains("interval"), "Vault Agent has its default then: {}", migrated.toml);
    let template = |more: &str| moved(&format!("template {{ contents = \"x\" destination = \"/d\" {more} }}\n"));
    for zero in ["0", "\"0000\""] {
        let migrated = template(&format!("perms = {zero}"));
        assert!(!migrated.toml.contains("mode = "), "Vault Agent has its default then: {}", migrated.toml);
        says(&migrated, "template.perms", Outcome::Changed, "zero is no mode: mode 0640");
    }
    assert!(template("wait { min = \"10m\" }").toml.contains("debounce = \"5m\"\n"));
    let migrated = template("wait = \"3s:9s\" user = 0 group = \"\"");
    assert!(
        migrated.toml.contains("debounce = \"3s\"\n") && migrated.toml.contains("owner = \"0\"\n"),
        "{}",
        migrated.toml
    );
    let sink = "auto_auth { method \"jwt\" { wrap_ttl = 0 config = { role = \"r\" path = \"/j\" } }\n\
                sink \"file\" { wrap_ttl = \"0s\" config = { path = \"/t\" } } }\n";
    let migrated = moved(sink);
    assert!(!migrated.toml.contains("wrap_ttl") && !migrated.toml.contains("format"), "{}", migrated.toml);
}

#[test]
fn repeated_settings_and_settings_of_dropped_parts_are_reported_by_key() {
    let migrated = moved(
        "env_template \"A\" { contents = \"first\" perms = \"0644\" }\nenv_template \"A\" { contents = \"second\" }\n\
         exec { command = [\"app\"] }\ncache { persist \"kubernetes\" { path = \"/a\" }\npersist \"kubernetes\" { path = \"/b\" } }\n",
    );
    assert!(migrated.toml.contains("contents = \"first\"\n"), "{}", migrated.toml);
    says(&migrated, "env_template.A", Outcome::NotSupported, "the first one is written");
    says(&migrated, "env_template.A.perms", Outcome::NotSupported, "only for files");
    says(&migrated, "cache.persist", Outcome::NotSupported, "the last one counts");
    says(&migrated, "cache.persist.kubernetes.path", Outcome::NotSupported, "dropped with its block");
    let namespaces = "vault { namespace = \"one\" }\nauto_auth { method \"oci\" { namespace = \"two\" config = { role = \"x\" } } }\n";
    let migrated = migrate(namespaces, false).unwrap();
    assert!(migrated.toml.contains("namespace = \"one\"\n"), "{}", migrated.toml);
    says(&migrated, "auto_auth.method.oci.namespace", Outcome::NotSupported, "vault.namespace takes precedence");
    says(&migrated, "auto_auth.method.oci.config.role", Outcome::NotSupported, "dropped with its");
    let odd = migrate("env_template \"A B\" { contents = \"x\" }\n", false).unwrap();
    let outcome = load_text(Path::new("ours.toml"), &odd.toml, &Environment::default(), Purpose::Check);
    let errors: Vec<_> = outcome.errors.iter().map(ToString::to_string).collect();
    assert!(errors.iter().any(|line| line.contains("\"A B\" is not a variable name")), "{errors:?}");
}

#[test]
fn a_listener_that_would_serve_the_token_to_more_callers_is_commented_out() {
    let (migrated, config) = migrated("jwt-and-token.hcl");
    assert!(config.listeners.is_empty(), "{}", migrated.toml);
    let commented = "# Callers send their own token to Vault Agent. keyward uses the session's token if they send none.\n\
                     # [listener.unix-1]\n# kind = \"api_proxy\"\n# address = \"unix:///run/ci/agent.sock\"\n# mode = \"0600\"\n";
    assert!(migrated.toml.contains(commented), "{}", migrated.toml);
    says(&migrated, "listener.unix", Outcome::Action, "is written commented out");
    let proxied = |listener: &str| {
        moved(&format!("api_proxy {{ use_auto_auth_token = true }}\ncache {{}}\nlistener \"tcp\" {{ {listener} }}\n"))
    };
    let certificates = "tls_cert_file = \"/c\" tls_key_file = \"/k\" tls_require_and_verify_client_cert = true";
    let migrated = proxied(certificates);
    assert!(migrated.toml.contains("\n# [listener.tcp-1.cache]\n# max_age"), "{}", migrated.toml);
    says(&migrated, "listener.tcp.tls_require_and_verify_client_cert", Outcome::Action, "key_file");
    // Without TLS, client certificates are not checked there either.
    let migrated = proxied(&format!("{certificates} tls_disable = true"));
    assert!(migrated.toml.contains("\n[listener.tcp-1]\n"), "{}", migrated.toml);
    let migrated = moved("listener \"tcp\" { address = \"127.0.0.1:81\" role = \"metrics_only\" }\n");
    assert!(migrated.toml.contains("[listener.tcp-1]\nkind = \"health\"\n"), "it serves no token");
}

#[test]
fn a_repeated_command_or_source_is_written_once() {
    let migrated = moved(
        "template { contents = \"x\" destination = \"/d\" command = \"systemctl reload app\" command_timeout = \"1m\"\n\
         exec { command = [\"/usr/bin/app\", \"reload\"] } }\n",
    );
    let exec = "command = [\"/usr/bin/app\", \"reload\"]\ncommand_timeout = \"1m\"\n";
    assert!(migrated.toml.contains(exec) && !migrated.toml.contains("shell"), "{}", migrated.toml);
    says(&migrated, "template.command", Outcome::NotSupported, "exec takes precedence");
    let migrated = migrate("template { source = \"/s\" contents = \"x\" destination = \"/d\" }\n", false).unwrap();
    assert!(!migrated.toml.contains("contents"), "{}", migrated.toml);
    says(&migrated, "template.contents", Outcome::NotSupported, "source takes precedence");
}

#[test]
fn migrate_reads_standard_input_and_folders_and_names_the_file_of_each_line() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "10-main.hcl",
        "vault {\n  address = \"https://s.example\"\n}\nauto_auth {\n  method \"jwt\" { config = { role = \"r\" path = \"/j\" remove_jwt_after_reading = false } }\n}\n",
    );
    write("20-more.json", "{\n \"template\": [{ \"contents\": \"x\", \"destination\": \"/d\", \"odd\": 1 }]\n}\n");
    write("notes.txt", "not read");
    write(".#10-main.hcl", "not read = {");
    std::fs::create_dir(folder.path().join("old.hcl")).unwrap();
    let path = folder.path().display().to_string();
    let (code, output, error) = run(&["migrate", &path], &[]);
    assert_eq!(code, 0, "{error}");
    assert!(output.contains("[session.main.jwt]\n") && output.contains("[template.file-1]\n"), "{output}");
    assert!(error.contains("/10-main.hcl:2:3: vault.address: address\n"), "{error}");
    let odd = error.lines().find(|line| line.contains("template.odd")).unwrap();
    assert!(odd.contains("/20-more.json:2:"), "{odd}");
    for name in ["notes.txt", ".#10-main.hcl", "old.hcl"] {
        assert!(error.contains(&format!("skipped {path}/{name}: Vault Agent reads only")), "{error}");
    }

    let (code, from_input, error) = run_with_input(&["migrate", "-"], &[], "vault {}\nlog_level = \"loud\"\n");
    assert_eq!(code, 3, "there is no session: {error}");
    assert!(from_input.starts_with("[server.main]\n"), "{from_input}");
    assert!(error.contains("(standard input):2:1: log_level: not a log level\n"), "{error}");
    write("30-broken.hcl", "vault {\n  address = https://x\n}\n");
    let (code, _, error) = run(&["migrate", &path], &[]);
    assert!(code == 3 && error.contains("/30-broken.hcl: line 2, column"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let (code, _, error) = run(&["migrate", &empty.path().display().to_string()], &[]);
    assert!(code == 1 && error.contains("holds no configuration file"), "{error}");
}

#[test]
fn a_consul_template_configuration_is_converted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("consul-template.hcl");
    std::fs::copy(fixture("consul-template.hcl"), &file).unwrap();
    let out = folder.path().join("keyward.toml").display().to_string();
    let (code, _, report) = run(&["migrate", &file.display().to_string(), "--out", &out], &[]);
    assert_eq!(code, 10, "{report}");
    let ours = std::fs::read_to_string(&out).unwrap();
    for expected in [
        "ca_file = \"/etc/ssl/company.pem\"\n",
        "[session.main.token_file]\nfile = \"/etc/keyward/server.token\"\n",
        "debounce = \"5s\"\n",
        "left_delimiter = \"<<\"\n",
        "backup = true\n",
        "stop_signal = \"SIGTERM\"\nstop_timeout = \"20s\"\non_change = \"signal\"\nchange_signal = \"SIGHUP\"\n",
        "[env_template.MODE]\ncontents = \"fast\"\n",
    ] {
        assert!(ours.contains(expected), "{expected}: {ours}");
    }
    let action = report.find("vault.token: a configuration holds no token").unwrap();
    assert!(action < report.find("\nchanged:\n").unwrap(), "{report}");
    assert!(report.contains(": consul: templates read only Vault or OpenBao\n"), "{report}");
    assert!(!report.contains("canary") && !ours.contains("canary"), "{report}{ours}");
}

#[test]
fn a_token_beside_auto_auth_is_dropped_as_vault_agent_ignores_it() {
    let login = "auto_auth { method \"jwt\" { config = { role = \"r\" path = \"/j\" } } }\n";
    let token = "vault {\n  address = \"https://s.example\"\n  token = \"hvs.canary\"\n  unwrap_token = true\n  \
                 vault_agent_token_file = \"/t\"\n  k8s_auth_role_name = \"r\"\n}\n";
    for text in [format!("{login}{token}"), format!("{token}{login}")] {
        let migrated = migrate(&text, false).unwrap();
        let outcome = load_text(Path::new("ours.toml"), &migrated.toml, &Environment::default(), Purpose::Check);
        assert!(outcome.errors.is_empty(), "{:?}\n{}", outcome.errors, migrated.toml);
        assert!(migrated.toml.contains("[session.main.jwt]\n"), "{}", migrated.toml);
        assert!(!migrated.toml.contains("token_file") && !migrated.toml.contains("canary"), "{}", migrated.toml);
        for key in ["token", "unwrap_token", "vault_agent_token_file", "k8s_auth_role_name"] {
            let words = "ignored by Vault Agent, which logs in by auto_auth";
            says(&migrated, &format!("vault.{key}"), Outcome::NotSupported, words);
        }
    }
}

#[test]
fn an_unsupported_method_is_replaced_by_a_token_file_that_check_accepts() {
    for method in ["oci", "alicloud", "token_file"] {
        let text = format!(
            "vault {{ address = \"https://v\" }}\nauto_auth {{\n  method \"{method}\" {{\n    mount_path = \"auth/{method}\"\n    config = {{ role = \"r\" \
             token_file_path = \"/t\" }}\n  }}\n  sink \"file\" {{ config = {{ path = \"/tmp/token\" }} }}\n}}\n"
        );
        let migrated = migrate(&text, false).unwrap();
        let outcome = load_text(Path::new("ours.toml"), &migrated.toml, &Environment::default(), Purpose::Check);
        assert!(outcome.errors.is_empty(), "{method}: {:?}\n{}", outcome.errors, migrated.toml);
        assert!(migrated.toml.contains(&format!("[session.main]\n# mount = \"{method}\"\n")), "{}", migrated.toml);
        assert!(migrated.toml.contains("[session.main.token_file]\n"), "{}", migrated.toml);
        let key = format!("auto_auth.method.{method}");
        says(&migrated, &format!("{key}.mount_path"), Outcome::Changed, "written commented out");
        let (code, _, report) = run_with_input(&["migrate", "-"], &[], &text);
        if method == "token_file" {
            assert_eq!(code, 0, "{report}");
        } else {
            says(&migrated, &key, Outcome::Action, "write a token to /etc/keyward/server.token");
            assert_eq!(code, 10, "{report}");
        }
    }
}

#[test]
fn sinks_are_disabled_if_the_token_of_a_replaced_method_was_wrapped() {
    let text = "auto_auth {\n  method \"oci\" { wrap_ttl = \"5m\" }\n  sink \"file\" { config = { path = \"/tmp/token\" } }\n}\n";
    let migrated = migrate(text, false).unwrap();
    let outcome = load_text(Path::new("ours.toml"), &migrated.toml, &Environment::default(), Purpose::Check);
    assert!(outcome.errors.is_empty(), "{:?}\n{}", outcome.errors, migrated.toml);
    assert!(migrated.toml.contains("# wrap_ttl = \"5m\"\n"), "{}", migrated.toml);
    assert!(migrated.toml.contains("# [sink.file-1]\n# path = \"/tmp/token\"\n"), "{}", migrated.toml);
    says(&migrated, "auto_auth.sink.file", Outcome::Action, "would not be wrapped");
}
