//! Migration: settings that the other agents have from their environment, or apply in another place, are reported.

use keyward_config::migrate::migrate;

/// Converts a configuration; returns keyward's, and the report.
fn migrate_text(text: &str) -> (String, String) {
    let migrated = migrate(text, false).unwrap();
    let report: Vec<_> = migrated.report.iter().map(ToString::to_string).collect();
    (migrated.toml, report.join("\n"))
}

#[test]
fn variables_that_a_template_and_its_command_had_are_reported_and_passed_where_they_are_known() {
    let template = |text: &str, more: &str| {
        migrate_text(&format!("template {{ {text}\ndestination = \"/etc/app/x\"\n{more} }}\n"))
    };
    let reads = "contents = \"{{ with secret (printf \\\"secret/data/%s/app\\\" (env \\\"APP_ENV\\\")) }}{{ .Data }}{{ end }}\"";
    let (toml, report) = template(reads, "command = \"/usr/local/bin/reload $APP_UNIT\"");
    assert!(toml.contains("\npass_env = [\"APP_ENV\"]\n"), "{toml}");
    for line in [
        "template.contents: changed: contents, with its variables in pass_env",
        "template.command: changed: command, with shell = true; the program gets few variables of the agent's environment, and no VAULT_ADDR, VAULT_CACERT",
    ] {
        assert!(report.contains(line), "{line}: {report}");
    }
    let (toml, report) = template("contents = \"{{ mustEnv `AZURE_CLIENT_ID` }}\"", "");
    assert!(!toml.contains("pass_env"), "{toml}");
    assert!(report.contains("template.contents: ACTION REQUIRED: no template can read AZURE_CLIENT_ID"), "{report}");
    let (toml, report) = template("contents = \"x\"", "command = [\"/usr/bin/reload\"]");
    assert!(!toml.contains("pass_env") && report.contains("template.contents: kept: contents"), "{toml}{report}");
    assert!(report.contains("template.command: changed: command; the program gets few variables"), "{report}");
    let (_, report) = template("source = \"/etc/app/x.ctmpl\"", "");
    assert!(report.contains("template.source: changed: source; if the file reads variables"), "{report}");
    let (toml, _) = migrate_text("env_template \"A\" { contents = \"{{ env `REGION` }}\" }\n");
    assert!(toml.contains("\npass_env = [\"REGION\"]\n"), "{toml}");
}

#[test]
fn a_namespace_that_requests_did_not_have_is_reported_for_each_listener() {
    let report = |vault: &str, proxy: &str| {
        let text = format!(
            "vault {{ address = \"https://v\"\n{vault} }}\napi_proxy {{ use_auto_auth_token = true\n{proxy} }}\n\
             listener \"tcp\" {{ address = \"127.0.0.1:8100\" tls_disable = true }}\n\
             listener \"unix\" {{ address = \"/run/api.sock\" }}\n\
             listener \"tcp\" {{ address = \"127.0.0.1:9102\" role = \"metrics_only\" }}\n"
        );
        migrate_text(&text).1
    };
    let line = "changed: a request without X-Vault-Namespace went to the root namespace, and goes to \"team\" here";
    let namespace = "namespace = \"team\"";
    for (proxy, setting) in [
        ("", ""),
        ("prepend_configured_namespace = false", "api_proxy.prepend_configured_namespace: kept"),
        ("prepend_configured_namespace = \"maybe\"", "api_proxy.prepend_configured_namespace: dropped: not a boolean"),
    ] {
        let report = report(namespace, proxy);
        assert_eq!(report.matches(line).count(), 2, "{proxy}: {report}");
        for listener in ["listener.tcp", "listener.unix"] {
            assert!(report.contains(&format!("{listener}: {line}")), "{report}");
        }
        assert!(report.contains(setting), "{report}");
    }
    let prepended = report(namespace, "prepend_configured_namespace = true");
    assert!(prepended.contains("api_proxy.prepend_configured_namespace: changed"), "{prepended}");
    for report in [prepended, report("", "")] {
        assert!(!report.contains("X-Vault-Namespace"), "{report}");
    }
}
