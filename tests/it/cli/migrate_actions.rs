//! `keyward migrate`: each setting that needs a person is an action at the line of the other agent's file that it comes from.

use crate::harness::binary::run;

/// Exit code, keyward's configuration, the report, and the drop-in with its polkit rule.
struct Migration {
    code: i32,
    toml: String,
    report: String,
    unit: String,
}

/// Converts a file `agent.hcl`.
fn migrate(text: &str) -> Migration {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.hcl");
    std::fs::write(&file, text).unwrap();
    let made = folder.path().join("made");
    let [file, made_text] = [&file, &made].map(|path| path.to_str().unwrap());
    let (code, toml, report) = run(&["migrate", file, "--systemd-drop-in", made_text], &[]);
    let read = |name: &str| std::fs::read_to_string(made.join(name)).unwrap_or_default();
    let unit = read("50-rights.conf") + &read("50-keyward.rules");
    Migration { code, toml, report: report.replace(&format!("{}/", folder.path().display()), ""), unit }
}

impl Migration {
    /// Asserts a line in the part of the report with the required actions.
    #[track_caller]
    fn assert_action(&self, start: &str, rest: &[&str]) {
        let (actions, _) = self.report.split_once("\nkept:").unwrap_or((&self.report, ""));
        let actions = actions.split("\nchanged:").next().unwrap().split("\ndropped:").next().unwrap();
        let line = actions.lines().find(|line| line.trim_start().starts_with(start));
        let line = line.unwrap_or_else(|| panic!("{start}: {}", self.report));
        for words in rest {
            assert!(line.contains(words), "{words}: {line}");
        }
    }
}

/// A login in four lines, so that the next line is the fifth.
const LOGIN: &str = "vault { address = \"https://vault.example.com:8200\" }\nauto_auth {\n  method \"kubernetes\" { config = { role = \"web\" } }\n}\n";

fn check(toml: &str) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keyward.toml");
    std::fs::write(&file, toml).unwrap();
    let (code, output, error) = run(&["check", "-c", file.to_str().unwrap()], &[]);
    (code, output + &error)
}

#[test]
fn an_error_that_stops_the_start_is_an_action_at_the_line_that_it_comes_from() {
    let vault = "vault { address = \"https://vault.example.com:8200\" }\n";
    let sink = format!(
        "{vault}auto_auth {{\n  method \"kubernetes\" {{ config = {{ role = \"web\" }} }}\n  sink \"file\" {{\n    config = {{ path = \"./token\" }}\n  }}\n}}\n"
    );
    let listener = "listener \"tcp\" {\n  address = \"127.0.0.1:8100\"\n  tls_disable = true\n}\n";
    let proxy = "api_proxy { use_auto_auth_token = true }\n";
    for (text, start, rest) in [
        (
            sink,
            "agent.hcl:5:16: auto_auth.sink.file.config.path: keyward does not start: ",
            &["sink.file-1.path: \"./token\" is not an absolute path", "[KW-1006]"][..],
        ),
        (
            format!(
                "{LOGIN}template {{\n  destination = \"/run/app/a\"\n  contents = \"{{{{ key \\\"app/name\\\" }}}}\"\n}}\n"
            ),
            "agent.hcl:7:3: template.contents: keyward does not start: ",
            &["template.file-1.contents: ", "key"],
        ),
        (
            format!("{LOGIN}template {{\n  contents = \"x\"\n}}\n"),
            "agent.hcl:5:1: template: keyward does not start: ",
            &["template.file-1.destination: missing"],
        ),
        (
            format!("{LOGIN}{listener}{proxy}{listener}"),
            "agent.hcl:11:3: listener.tcp.address: keyward does not start: ",
            &["also the address of listener tcp-1"],
        ),
        (
            format!("{LOGIN}env_template \"1A\" {{\n  contents = \"x\"\n}}\n"),
            "agent.hcl:5:14: env_template.1A: keyward does not start: ",
            &["is not a variable name"],
        ),
    ] {
        let migration = migrate(&text);
        assert_eq!(migration.code, 3, "{text}{}", migration.report);
        migration.assert_action(start, rest);
        assert!(!migration.report.contains("\n0 actions required"), "{}", migration.report);
        assert!(migration.report.contains("has errors: keyward does not start"), "{}", migration.report);
    }
}

#[test]
fn a_configuration_without_an_address_or_a_login_has_its_errors_at_its_first_line() {
    let migration = migrate("vault {\n  address = \"vault.example.com\"\n}\n");
    migration.assert_action("agent.hcl:2:3: vault.address: keyward does not start: ", &["is not an address"]);
    migration.assert_action("agent.hcl:1:1: ", &["no session: there is nothing to do"]);
}

#[test]
fn plain_http_to_another_machine_is_carried_over_with_an_action() {
    let migration =
        migrate(&LOGIN.replace("https://vault.example.com:8200\"", "http://vault:8200\"\n  ca_cert = \"/ca.pem\""));
    assert_eq!(migration.code, 10, "{}", migration.report);
    let written = "address = \"http://vault:8200\"\nallow_http = true\n\n";
    assert!(migration.toml.contains(written), "{}", migration.toml);
    migration.assert_action("agent.hcl:1:9: vault.address: allow_http = true is written", &["unencrypted"]);
    assert!(migration.report.contains("vault.ca_cert: has no effect without TLS"), "{}", migration.report);
    let (code, output) = check(&migration.toml);
    assert_eq!(code, 0, "{output}");
    assert!(
        output.contains("server.main.address: logins, tokens and secrets cross the network unencrypted"),
        "{output}"
    );
    for address in ["http://127.0.0.1:8200", "http://localhost:8200", "https://vault:8200"] {
        let migration = migrate(&LOGIN.replace("https://vault.example.com:8200", address));
        assert!(!migration.toml.contains("allow_http"), "{}", migration.toml);
        assert_eq!(migration.code, 0, "{}", migration.report);
    }
}

fn with_template(command: &str) -> Migration {
    migrate(&format!("{LOGIN}template {{\n  contents = \"x\"\n  destination = \"/run/app/a\"\n  {command}\n}}\n"))
}

#[test]
fn a_shell_command_that_reloads_a_service_is_an_action_and_its_polkit_rule_is_written() {
    let line = "sh -c 'nginx -t && systemctl reload nginx'";
    for command in [
        format!("command = \"{line}\""),
        format!("command = [\"{line}\"]"),
        format!("exec {{ command = \"{line}\" }}"),
        "exec = { command = [\"sh\", \"-c\", \"nginx -t && systemctl reload nginx\"] }".to_owned(),
        "command = \"nginx -t && systemctl reload nginx\"".to_owned(),
    ] {
        let migration = with_template(&command);
        assert_eq!(migration.code, 10, "{command}: {}", migration.report);
        let key = if command.starts_with("exec") { "template.exec.command" } else { "template.command" };
        migration.assert_action("agent.hcl:8:", &[key, "systemctl needs the polkit rule", "as user keyward"]);
        let granted = "[\"nginx.service\", \"reload\"]";
        assert!(migration.unit.contains(granted), "{command}: {granted}: {}", migration.unit);
    }
}

#[test]
fn a_command_that_raises_its_rights_is_an_action_and_other_programs_are_none() {
    let migration = with_template("command = [\"sudo\", \"nginx\", \"-s\", \"reload\"]");
    migration.assert_action("agent.hcl:8:3: template.command: ", &["sudo cannot raise rights in the packaged unit"]);
    for command in ["command = [\"/usr/local/bin/reload\"]", "command = \"nginx -t && nginx -s reload\""] {
        let migration = with_template(command);
        assert_eq!(migration.code, 0, "{}", migration.report);
    }
    // A variable of the command has no place in keyward's configuration.
    let migration =
        with_template("exec {\n    command = [\"/usr/local/bin/reload\"]\n    env { custom = [\"A=B\"] }\n  }");
    migration.assert_action("agent.hcl:10:5: template.exec.env: ", &["pass_env"]);
}

#[test]
fn a_file_that_is_removed_after_reading_is_an_action_unless_it_is_kept() {
    let login = |kind: &str, keys: &str| {
        migrate(&format!(
            "vault {{ address = \"https://v\" }}\nauto_auth {{\n  method \"{kind}\" {{\n    config = {{\n      {keys}\n    }}\n  }}\n}}\n"
        ))
    };
    let files = "role_id_file_path = \"/etc/app/role\"\n      secret_id_file_path = \"/etc/app/secret\"";
    let removal = "remove_secret_id_file_after_reading";
    for (keys, start) in [
        (files.to_owned(), format!("agent.hcl:4:5: auto_auth.method.approle.config.{removal}: true by default there")),
        (
            format!("{files}\n      {removal} = true"),
            format!("agent.hcl:7:7: auto_auth.method.approle.config.{removal}: "),
        ),
    ] {
        let migration = login("approle", &keys);
        assert_eq!(migration.code, 10, "{}", migration.report);
        migration.assert_action(&start, &["put a new one there before keyward starts"]);
        assert!(migration.toml.contains("remove_secret_id_after_reading = true\n"), "{}", migration.toml);
    }
    let migration = login("approle", &format!("{files}\n      {removal} = false"));
    assert_eq!(migration.code, 0, "{}", migration.report);
    let migration = login("jwt", "role = \"web\"\n      path = \"/run/app/jwt\"");
    migration
        .assert_action("agent.hcl:4:5: auto_auth.method.jwt.config.remove_jwt_after_reading: ", &["put a new one"]);
    // Without a secret id's file nothing is removed.
    let migration = login("approle", "role_id_file_path = \"/etc/app/role\"");
    assert_eq!(migration.code, 0, "{}", migration.report);
}

#[test]
fn blocks_that_are_unknown_or_not_supported_are_actions() {
    let migration = migrate(&format!(
        "{LOGIN}identity \"spiffe\" {{\n  socket = \"/run/spire\"\n}}\ntemplate_config {{\n  pool {{ size = 1 }}\n  other = 2\n}}\n\
         listener \"http3\" {{ address = \"127.0.0.1:1\" }}\n"
    ));
    assert_eq!(migration.code, 10, "{}", migration.report);
    migration.assert_action("agent.hcl:5:1: identity: unknown block: not written", &[]);
    migration.assert_action("agent.hcl:9:3: template_config.pool: unknown block: not written", &[]);
    migration.assert_action("agent.hcl:12:10: listener.http3: \"http3\" is not supported", &[]);
    assert!(migration.report.contains("template_config.other: unknown key"), "{}", migration.report);
}

#[test]
fn a_listener_for_other_machines_or_with_tls_that_keyward_lacks_is_an_action() {
    let listener = |keys: &str| {
        migrate(&format!("{LOGIN}api_proxy {{ use_auto_auth_token = true }}\nlistener \"tcp\" {{\n  {keys}\n}}\n"))
    };
    let certificate = "tls_cert_file = \"/a.pem\"\n  tls_key_file = \"/a.key\"";
    let migration = listener(&format!("address = \"127.0.0.1:8100\"\n  {certificate}"));
    assert_eq!(migration.code, 0, "{}", migration.report);
    assert!(migration.toml.contains("\ntls_cert = \"/a.pem\"\ntls_key = \"/a.key\"\n"), "{}", migration.toml);
    let text = format!(
        "{LOGIN}listener \"tcp\" {{\n  role = \"metrics_only\"\n  address = \"0.0.0.0:9102\"\n  {certificate}\n}}\n"
    );
    migrate(&text).assert_action("agent.hcl:5:10: listener.tcp: only an API proxy on TCP has TLS", &["http://"]);
    let migration = listener("address = \"0.0.0.0:8100\"\n  tls_disable = true");
    assert_eq!(migration.code, 10, "{}", migration.report);
    migration
        .assert_action("agent.hcl:7:3: listener.tcp.address: 0.0.0.0 is open to other machines", &["127.0.0.1:8100"]);
    let migration = listener(&format!(
        "address = \"0.0.0.0:8100\"\n  {certificate}\n  tls_client_ca_file = \"/ca.pem\"\n  tls_require_and_verify_client_cert = true"
    ));
    migration.assert_action("agent.hcl:7:3: listener.tcp.address: ", &[]);
    assert!(migration.toml.contains("\nclient_ca_file = \"/ca.pem\"\n"), "{}", migration.toml);
    let migration =
        listener(&format!("address = \"127.0.0.1:8100\"\n  {certificate}\n  tls_client_ca_file = \"/ca.pem\""));
    let what = "client certificates are verified by the authorities of a file alone";
    migration.assert_action(&format!("agent.hcl:10:3: listener.tcp.tls_client_ca_file: {what}"), &["client_ca_file"]);
    assert!(migration.toml.contains("\n# [listener.tcp-1]\n"), "{}", migration.toml);
    let migration = listener("address = \"127.0.0.1:8100\"\n  tls_disable = true");
    assert_eq!(migration.code, 0, "{}", migration.report);
}

#[test]
fn the_path_of_a_secret_without_data_is_written_as_it_is() {
    let migration = migrate(&format!(
        "{LOGIN}template {{\n  contents = \"{{{{ with secret \\\"secret/app\\\" }}}}{{{{ .Data.data.password }}}}{{{{ end }}}}\"\n  destination = \"/run/app/a\"\n}}\n"
    ));
    assert_eq!(migration.code, 0, "{}", migration.report);
    assert!(migration.toml.contains("secret \\\"secret/app\\\""), "{}", migration.toml);
    assert_eq!(check(&migration.toml).0, 0);
}

#[test]
fn a_template_that_is_not_here_and_one_that_is_no_file_are_actions() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("app.ctmpl");
    let template =
        format!("{LOGIN}template {{\n  source = \"{}\"\n  destination = \"/run/app/a\"\n}}\n", source.display());
    let migration = migrate(&template);
    assert_eq!(migration.code, 10, "{}", migration.report);
    migration.assert_action("agent.hcl:6:3: template.source: ", &["run `keyward check` where the template is"]);
    // One that is here is compiled.
    std::fs::write(&source, "{{ service \"web\" }}").unwrap();
    let migration = migrate(&template);
    assert_eq!(migration.code, 3, "{}", migration.report);
    migration.assert_action("agent.hcl:6:3: template.source: keyward does not start: ", &["service is not available"]);
    std::fs::write(&source, "text").unwrap();
    assert_eq!(migrate(&template).code, 0);
    let migration = migrate(&format!("{LOGIN}template {{\n  contents = \"x\"\n  destination = \"/dev/null\"\n}}\n"));
    migration.assert_action("agent.hcl:7:3: template.destination: keyward writes regular files only", &[]);
}

#[test]
fn an_address_that_may_come_from_a_variable_is_an_action() {
    let migration = migrate(LOGIN.split_once('\n').unwrap().1);
    assert_eq!(migration.code, 10, "{}", migration.report);
    migration.assert_action(
        "agent.hcl:1:1: vault: no address: the default, https://127.0.0.1:8200, is written",
        &["VAULT_ADDR"],
    );
    let migration = migrate(&LOGIN.replace("address = \"https://vault.example.com:8200\"", "namespace = \"team\""));
    migration.assert_action("agent.hcl:1:1: vault.address: no address", &[]);
}
