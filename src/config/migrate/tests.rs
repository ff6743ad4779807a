use proptest::prelude::*;

use super::*;
use crate::{Environment, Purpose, load_text};

/// Converts a configuration; returns keyward's, and the report.
fn migrate_text(text: &str) -> (String, String) {
    let migrated = migrate(text, false).unwrap();
    let report: Vec<_> = migrated.report.iter().map(ToString::to_string).collect();
    (migrated.toml, report.join("\n"))
}

fn report_text(text: &str) -> String {
    migrate_text(text).1
}

#[test]
fn each_key_is_reported_with_its_position_and_outcome() {
    let report = report_text(
        "pid_file = \"/p\"\nvault {\n  address = \"https://v\"\n  adress = \"x\"\n}\nlog_level = \"err\"\n",
    );
    let expected = [
        "1:1: pid_file: dropped: the service manager tracks the process",
        "2:1: vault: kept: [server.main]; variables such as VAULT_ADDR are ignored",
        "3:3: vault.address: kept: address",
        "4:3: vault.adress: dropped: unknown key",
        "6:1: log_level: kept: log.level",
    ];
    assert_eq!(report, expected.join("\n"));
}

#[test]
fn a_key_is_one_line_of_the_report_whatever_it_holds() {
    let report = report_text(
        "{\"a\\n9:9: vault: kept\": 1, \"b\\u001b[31m\": {\"c\\r\": 2}, \"vault\": {\"address\": \"https://v\"}}",
    );
    assert!(!report.replace('\n', "").contains(char::is_control) && report.lines().count() == 4, "{report:?}");
    assert!(report.starts_with("1:2: a\\n9:9: vault: kept: dropped"), "{report:?}");
}

/// Converts an API proxy with a TCP listener.
fn migrate_proxy(blocks: &str) -> (String, String) {
    let text = format!("{blocks}\nlistener \"tcp\" {{ address = \"127.0.0.1:8100\" tls_disable = true }}\n");
    (migrate(&text, false).unwrap().toml, report_text(&text))
}

#[test]
fn callers_get_no_token_from_a_cache_beside_an_api_proxy() {
    let with_token = "cache { use_auto_auth_token = true }";
    let commented = "# [listener.tcp-1]\n";
    for proxy in ["api_proxy {}", "api_proxy { use_auto_auth_token = false }"] {
        for blocks in [format!("{with_token}\n{proxy}"), format!("{proxy}\n{with_token}")] {
            let (toml, report) = migrate_proxy(&blocks);
            assert!(toml.contains(commented), "{blocks}: {toml}");
            assert!(
                report.contains("cache.use_auto_auth_token: dropped: has no effect beside api_proxy {}"),
                "{report}"
            );
        }
    }
    // Vault Proxy has the key in api_proxy {} alone.
    let (toml, report) = migrate_proxy("cache { use_auto_auth_token = true cache_static_secrets = false }");
    assert!(toml.contains(commented) && report.contains("cache.use_auto_auth_token: dropped: Vault Proxy"), "{report}");
    // Without the block, the cache's key counts.
    let (toml, report) = migrate_proxy(with_token);
    assert!(toml.contains("\n[listener.tcp-1]\n") && toml.contains("token = \"when_missing\"\n"), "{toml}");
    assert!(report.contains("cache.use_auto_auth_token: kept"), "{report}");
}

#[test]
fn a_cache_without_leases_caches_none() {
    let off = "disable_caching_dynamic_secrets = true";
    for (keys, expected) in [
        (off.to_owned(), None),
        (format!("cache_static_secrets = false\n{off}"), None),
        (format!("cache_static_secrets = true\n{off}"), Some("max_age = \"1m\"\nleases = []")),
        ("disable_caching_dynamic_secrets = false".to_owned(), Some("max_age = \"0s\"")),
    ] {
        let (toml, report) =
            migrate_proxy(&format!("api_proxy {{ use_auto_auth_token = true }}\ncache {{\n{keys}\npersist {{}}\n}}"));
        let section = toml.split_once("[listener.tcp-1.cache]\n").map(|(_, text)| text.split_once("\n\n").unwrap().0);
        assert_eq!(section, expected, "{keys}");
        assert!(report.contains("cache.disable_caching_dynamic_secrets: kept"), "{report}");
        let persist = if expected.is_some() { "cache.persist: ACTION REQUIRED" } else { "cache.persist: dropped" };
        assert!(report.contains(persist), "{report}");
    }
}

#[test]
fn a_program_that_consul_template_restarts_for_a_file_needs_an_action() {
    let action = "exec: ACTION REQUIRED: consul-template restarts or signals the program when any template changes";
    let file = "template { contents = \"x\" destination = \"/run/app/a\" }\n";
    let exec = "exec { command = [\"/usr/bin/app\"] }\n";
    let report = report_text(&format!("{file}{exec}"));
    assert!(report.contains(action), "{report}");
    // Vault Agent restarts it for variables, as `[process]` does.
    let variable = "env_template \"A\" { contents = \"x\" }\n";
    let vault = "auto_auth { method \"jwt\" { config = { role = \"r\" path = \"/j\" } } }\n";
    for text in [exec.to_owned(), format!("{variable}{exec}"), format!("{vault}{variable}{exec}"), file.to_owned()] {
        assert!(!report_text(&text).contains(action), "{text}");
    }
}

#[test]
fn a_variable_that_seems_to_hold_a_secret_needs_an_action() {
    let exec = |custom: &str| report_text(&format!("exec {{ command = \"a\"\nenv {{ custom = [{custom}] }} }}\n"));
    let report = exec("\"MODE=fast\", \"DB_PASSWORD=x\", \"API_KEY=y\"");
    assert!(
        report.contains("exec.env.custom: ACTION REQUIRED: ") && report.contains("DB_PASSWORD, API_KEY"),
        "{report}"
    );
    assert!(!exec("\"MODE=fast\", \"KEYBOARD=us\"").contains("exec.env.custom: ACTION"));
}

#[test]
fn a_reference_of_keyward_in_another_agents_text_stays_text() {
    let text = "vault { address = \"https://v\" ca_cert = \"/${env:A}/ca.pem\" }\n\
                template { contents = \"${x}\" destination = \"/d\" command = [\"sh\", \"-c\", \"echo ${HOME} $${A}\"] }\n\
                exec { command = [\"a\"]\nenv { custom = [\"A=${env:B}\"] } }\n";
    let toml = migrate(text, false).unwrap().toml;
    for line in [
        "ca_file = \"/$${env:A}/ca.pem\"",
        "contents = \"${x}\"",
        "command = [\"sh\", \"-c\", \"echo $${HOME} $$${A}\"]",
        "contents = \"${env:B}\"",
    ] {
        assert!(toml.lines().any(|written| written == line), "{line}: {toml}");
    }
    let outcome = load_text("keyward.toml".as_ref(), &toml, &Environment::default(), Purpose::Check);
    assert!(outcome.references.is_empty(), "{:?}", outcome.references);
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

#[test]
fn sinks_are_disabled_if_the_time_of_the_wrapping_cannot_be_read() {
    let text = "auto_auth { method \"jwt\" { wrap_ttl = \"soon\" config = { role = \"r\" path = \"/j\" } }\n\
                sink \"file\" { config = { path = \"/t\" } } }\n";
    let toml = migrate(text, false).unwrap().toml;
    let report = report_text(text);
    assert!(toml.contains("\n# [sink.file-1]\n# path = \"/t\"\n"), "{toml}");
    assert!(report.contains("auto_auth.method.jwt.wrap_ttl: ACTION REQUIRED: not a duration"), "{report}");
}

#[test]
fn durations_are_read_as_go_writes_them() {
    let check = |text: &str, expected: Option<u64>| {
        assert_eq!(input::span(text).map(|span| span.as_millis()), expected.map(u128::from), "{text}");
    };
    check("90", Some(90_000));
    check("1h30m", Some(5_400_000));
    check("1.5s", Some(1_500));
    check("250ms", Some(250));
    check("5 m", None);
    check("m", None);
    check("", None);
    check("-5s", None);
    check("9e99h", None);
    check("99999999999999999999h", None);
    check("5µs", Some(0));
    check("5é", None);
}

/// Names of keys that stand in such files, and a few that do not.
const KEYS: &[&str] = &[
    "vault",
    "address",
    "retry",
    "num_retries",
    "auto_auth",
    "method",
    "azure",
    "jwt",
    "approle",
    "config",
    "type",
    "sink",
    "file",
    "path",
    "mode",
    "wrap_ttl",
    "listener",
    "tcp",
    "unix",
    "socket_mode",
    "require_request_header",
    "api_proxy",
    "use_auto_auth_token",
    "cache",
    "persist",
    "template",
    "contents",
    "source",
    "destination",
    "perms",
    "wait",
    "min",
    "exec",
    "command",
    "env_template",
    "NAME",
    "template_config",
    "telemetry",
    "log_level",
    "exit_after_auth",
    "other",
];

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("true".to_owned()),
        Just("0640".to_owned()),
        Just("-1".to_owned()),
        Just("\"\"".to_owned()),
        Just("\"5m\"".to_owned()),
        Just("\"/a b\\n'''\\\"\"".to_owned()),
        Just("\"0.0.0.0:8100\"".to_owned()),
        "[1-9][0-9]{0,18}",
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|values| format!("[{}]", values.join(", "))),
            prop::collection::vec((prop::sample::select(KEYS), inner), 0..6).prop_map(|items| {
                let items: Vec<_> = items.iter().map(|(key, value)| format!("{key} = {value}")).collect();
                format!("{{ {} }}", items.join(" "))
            }),
        ]
    })
}

/// True if a value consists of empty blocks and lists.
fn says_nothing(value: &str) -> bool {
    let words: Vec<&str> = value.split([' ', ',', '{', '}', '[', ']']).filter(|word| !word.is_empty()).collect();
    words.chunks(2).all(|pair| pair.get(1) == Some(&"="))
}

proptest! {
    #[test]
    fn no_text_breaks_it(text in "(?s).{0,300}") {
        let _ = migrate(&text, true);
    }

    #[test]
    fn every_input_becomes_toml_and_every_key_is_reported(
        items in prop::collection::vec((prop::sample::select(KEYS), value()), 0..8),
    ) {
        let lines: Vec<_> = items.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        let text = lines.join("\n");
        let migrated = migrate(&text, false).unwrap();
        prop_assert!(migrated.toml.parse::<toml::Table>().is_ok(), "{}", migrated.toml);
        for (key, _) in &items {
            let known = migrated.report.iter().any(|line| line.key == *key || line.key.starts_with(&format!("{key}.")));
            let empty = items.iter().all(|(other, value)| other != key || says_nothing(value));
            prop_assert!(known || empty, "{key} is not reported:\n{text}\n{:?}", migrated.report);
        }
    }
}

#[test]
fn the_file_of_a_token_comes_before_a_token_and_default_delimiters_are_kept() {
    let text = "vault { token = \"hvs.canary\" vault_agent_token_file = \"/run/token\" }\n\
                    default_delimiters { left = \"<<\" right = \">>\" }\ntemplate { contents = \"x\" destination = \"/d\" }\n";
    let (toml, report) = migrate_text(text);
    assert!(toml.contains("[session.main.token_file]\nfile = \"/run/token\"\n"), "{toml}");
    assert!(report.contains("vault.token: dropped: vault_agent_token_file takes precedence"), "{report}");
    assert!(toml.contains("left_delimiter = \"<<\"\nright_delimiter = \">>\"\n"), "{toml}");
}

#[test]
fn a_program_gets_no_variable_that_consul_template_keeps_from_it() {
    let exec = |env: &str| migrate_text(&format!("exec {{ command = [\"a\"]\nenv {{ {env} }} }}\n"));
    let allowed = "allowlist = [\"HTTP_*\"] whitelist = [\"LANG\"]";
    let (toml, _) = exec(allowed);
    assert!(toml.contains("\npass_env = [\"HTTP_*\", \"LANG\"]\n"), "{toml}");
    for (more, expected) in [
        ("pristine = true", "exec.env.allowlist: dropped: has no effect beside pristine"),
        ("denylist = [\"HTTP_TOKEN\"]", "exec.env.allowlist: ACTION REQUIRED: not written"),
        ("blacklist = [\"HTTP_TOKEN\"]", "exec.env.whitelist: ACTION REQUIRED: not written"),
    ] {
        let (toml, report) = exec(&format!("{allowed} {more}"));
        assert!(!toml.contains("\npass_env") && report.contains(expected), "{more}: {toml}{report}");
    }
}

#[test]
fn a_program_that_is_declared_disabled_is_written_commented_out() {
    let exec = |enabled: &str| {
        migrate_text(&format!("exec {{ command = [\"a\"]\n{enabled}\nenv {{ custom = [\"MODE=fast\"] }} }}\n"))
    };
    let (toml, report) = exec("enabled = false");
    assert!(toml.contains("\n# [process]\n# command = [\"a\"]\n"), "{toml}");
    assert!(toml.contains("\n# [env_template.MODE]\n"), "{toml}");
    let action = "exec.enabled: ACTION REQUIRED: consul-template runs the program in spite of it";
    assert!(report.contains(action), "{report}");
    for (enabled, line) in [
        ("enabled = true", "exec.enabled: kept"),
        ("enabled = \"no\"", "exec.enabled: dropped: not a boolean"),
        ("", ""),
    ] {
        let (toml, report) = exec(enabled);
        assert!(toml.contains("\n[process]\n") && report.contains(line), "{enabled}: {toml}{report}");
    }
}

#[test]
fn a_program_of_consul_template_is_stopped_with_the_signal_that_it_had_there() {
    let stop_signal = |keys: &str| {
        let toml = migrate_text(&format!("{keys}\n")).0;
        toml.lines().find_map(|line| line.strip_prefix("stop_signal = ")).map(str::to_owned)
    };
    assert_eq!(stop_signal("exec { command = [\"a\"] }").as_deref(), Some("\"SIGINT\""));
    assert_eq!(stop_signal("exec { command = [\"a\"] kill_signal = \"SIGQUIT\" }").as_deref(), Some("\"SIGQUIT\""));
    // Vault Agent's default is ours.
    let vault = "auto_auth { method \"jwt\" { config = { role = \"r\" path = \"/j\" } } }";
    assert_eq!(stop_signal(&format!("{vault}\nexec {{ command = [\"a\"] }}")), None);
}

#[test]
fn the_authority_of_a_certificate_login_replaces_none_of_the_server() {
    let login = |vault: &str| {
        migrate_text(&format!(
            "vault {{ address = \"https://v\"\n{vault} }}\nauto_auth {{ method \"cert\" {{ config = {{ ca_cert = \"/login.pem\" \
             client_cert = \"/c\" client_key = \"/k\" reload_period = \"1m\" }} }} }}\n"
        ))
    };
    let key = "auto_auth.method.cert.config";
    for (vault, file, outcome) in [
        ("", "ca_file = \"/login.pem\"", "changed: ca_file of [server.main]: for each connection"),
        ("ca_cert = \"/login.pem\"", "ca_file = \"/login.pem\"", "kept: ca_file of [server.main]"),
        ("ca_cert = \"/vault.pem\"", "ca_file = \"/vault.pem\"", "ACTION REQUIRED: not written"),
        ("ca_path = \"/certs\"", "ca_dir = \"/certs\"", "ACTION REQUIRED: not written"),
    ] {
        let (toml, report) = login(vault);
        let written: Vec<_> = toml.lines().filter(|line| line.starts_with("ca_")).collect();
        assert_eq!(written, [file], "{vault}");
        assert!(report.contains(&format!("{key}.ca_cert: {outcome}")), "{vault}: {report}");
        for name in ["client_cert", "client_key"] {
            let line = format!("{key}.{name}: changed: {name} of [session.main.cert]: for each connection");
            assert!(report.contains(&line), "{report}");
        }
        assert!(report.contains(&format!("{key}.reload_period: changed")), "{report}");
    }
}

#[test]
fn an_address_that_came_from_the_environment_is_reported() {
    let line = "no address: the default, https://127.0.0.1:8200, is written";
    assert!(report_text("log_level = \"info\"\n").contains(&format!("1:1: vault: ACTION REQUIRED: {line}")));
    assert!(report_text("vault {}\n").contains(&format!("1:1: vault.address: ACTION REQUIRED: {line}")));
    assert!(!report_text("vault { address = \"https://v\" }\n").contains(line));
}

#[test]
fn metrics_that_needed_a_client_certificate_or_a_header_are_not_opened_in_silence() {
    let listener = |keys: &str| migrate_text(&format!("listener \"tcp\" {{ role = \"metrics_only\"\n{keys} }}\n"));
    let (toml, report) = listener("address = \"0.0.0.0:9102\" tls_client_ca_file = \"/ca\"");
    assert!(toml.contains("# [listener.tcp-1]\n# kind = \"health\"\n"), "{toml}");
    assert!(report.contains("tls_client_ca_file: ACTION REQUIRED: client certificates are not supported"), "{report}");
    let (toml, report) = listener("address = \"127.0.0.1:9102\" require_request_header = true");
    assert!(toml.contains("\n[listener.tcp-1]\n"), "{toml}");
    for line in ["require_request_header: dropped: /metrics", "listener.tcp: changed: plain HTTP: clients use http://"]
    {
        assert!(report.contains(line), "{line}: {report}");
    }
}

#[test]
fn labels_and_force_are_read_in_any_case() {
    let text = "auto_auth { method \"JWT\" { config = { role = \"r\" path = \"/j\" } } }\n\
                api_proxy { use_auto_auth_token = \"Force\" }\nlistener \"TCP\" { address = \"127.0.0.1:81\" }\n";
    let (toml, report) = migrate_text(text);
    assert!(toml.contains("[session.main.jwt]\n") && toml.contains("token = \"always\"\n"), "{toml}{report}");
}

#[test]
fn a_command_of_several_words_or_lines_is_given_to_a_shell() {
    let command = |line: &str| {
        let text = format!("template {{ contents = \"x\" destination = \"/d\" command = \"{line}\" }}\n");
        migrate_text(&text).0.contains("shell = true")
    };
    assert!(command("systemctl reload app") && command("date\\nid") && !command("/usr/bin/reload"));
}

#[test]
fn an_empty_path_of_a_secret_id_is_none_as_for_vault_agent() {
    let text = "auto_auth { method \"approle\" { config = { role_id_file_path = \"/r\" secret_id_file_path = \"\" \
                secret_id_response_wrapping_path = \"auth/approle/role/a/secret-id\" } } }\n";
    let (toml, report) = migrate_text(text);
    assert!(toml.ends_with("[session.main.approle]\nrole_id_file = \"/r\"\n"), "{toml}");
    assert!(report.contains("secret_id_response_wrapping_path: dropped: has no effect without"), "{report}");
}
