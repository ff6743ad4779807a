//! Keys that consul-template has and Vault Agent has not.

use std::time::Duration;

use keyward_hcl::Value;

use super::input::{Block, InputValue, NO_FLAG, format_span, span};
use super::output::{Document, Outcome, Section};
use super::{MAIN, TOKEN_FILE};

/// Report of a key about TLS beside an address without it.
pub(super) const NO_TLS: &str = "has no effect without TLS";

/// Settings of each template that does not have its own.
#[derive(Debug, Default)]
pub(super) struct Defaults {
    pub(super) debounce: Option<String>,
    pub(super) left_delimiter: Option<String>,
    pub(super) right_delimiter: Option<String>,
}

impl Defaults {
    pub(super) fn apply(&self, section: &mut Section) {
        let keys = [
            ("debounce", &self.debounce),
            ("left_delimiter", &self.left_delimiter),
            ("right_delimiter", &self.right_delimiter),
        ];
        for (key, value) in keys {
            if let Some(value) = value
                && !section.has(key)
            {
                section.text(key, value);
            }
        }
    }
}

/// Reads the settings at the top of the file that apply to all templates.
pub(super) fn defaults(top: &mut Block<'_>) -> Defaults {
    let mut defaults = Defaults::default();
    delimiters(top, ["default_left_delimiter", "default_right_delimiter"], &mut defaults);
    if let Some(mut block) = top.block("default_delimiters") {
        delimiters(&mut block, ["left", "right"], &mut defaults);
        block.finish();
    }
    if let Some(input) = top.take_if("wait", |value| matches!(value, Value::Text(_))) {
        let min_wait = input.text().and_then(|text| span(text.split(':').next().unwrap_or_default()));
        defaults.debounce = debounce(&input, min_wait);
    } else if let Some(mut wait) = top.block("wait") {
        if let Some(min_wait) = wait.take("min") {
            defaults.debounce = debounce(&min_wait, min_wait.span());
        }
        wait.drop_keys(&["max"], "changes are collected for at most four times debounce");
        wait.drop_keys(&["enabled"], "debounce is always in force");
        wait.finish();
    }
    defaults
}

/// Reads delimiters by these keys of a block.
fn delimiters(block: &mut Block<'_>, [left, right]: [&str; 2], defaults: &mut Defaults) {
    for (key, delimiter) in [(left, &mut defaults.left_delimiter), (right, &mut defaults.right_delimiter)] {
        if let Some(input) = block.take(key)
            && let Some(text) = input.required_text()
        {
            *delimiter = Some(text.to_owned());
            input.record_kept("left_delimiter, right_delimiter of each template");
        }
    }
}

/// A wait before a rendering, as debounce has it; 5 min at most.
pub(super) fn debounce(input: &InputValue<'_>, min_wait: Option<Duration>) -> Option<String> {
    let Some(min_wait) = min_wait else {
        input.not_supported("not a duration");
        return None;
    };
    let wait = min_wait.min(Duration::from_mins(5));
    if wait == min_wait {
        input.record_kept("debounce");
    } else {
        input.record_changed("debounce, which is 5m at most");
    }
    Some(format_span(wait))
}

/// Keys of `vault {}` by which consul-template finds its token.
const LOGIN_KEYS: [&str; 8] = [
    "vault_agent_token_file",
    "token",
    "unwrap_token",
    "renew_token",
    "k8s_auth_role_name",
    "k8s_service_account_token_path",
    "k8s_service_account_token",
    "k8s_service_mount_path",
];

/// Drops the keys of a login from `vault {}`: Vault Agent, which `auto_auth {}` is for, ignores them.
pub(super) fn drop_login(vault: &mut Block<'_>) {
    vault.drop_keys(&LOGIN_KEYS, "ignored by Vault Agent, which logs in by auto_auth");
}

/// Reads how consul-template finds its token.
pub(super) fn login(vault: &mut Block<'_>, document: &mut Document) {
    let method = format!("session.{MAIN}.token_file");
    let file = vault.take("vault_agent_token_file");
    let file_path = file.as_ref().and_then(InputValue::required_text);
    if let (Some(file), Some(text)) = (&file, file_path) {
        document.section(&method).at(file.origin()).text("file", text);
        file.record_changed(
            "session.main.token_file; keyward also renews the token, and can log in by itself: see [session.NAME.cloud]",
        );
    }
    if let Some(token) = vault.take("token") {
        if token.text().is_none() {
            token.record_kept("empty: no effect");
        } else if file_path.is_some() {
            token.not_supported("vault_agent_token_file takes precedence");
        } else {
            document.section(&method).at(token.origin()).text("file", TOKEN_FILE);
            token.action(format!("a configuration holds no token: write it to {TOKEN_FILE}, mode 0600"));
        }
    }
    if let Some(wrapped) = vault.take("unwrap_token") {
        match wrapped.flag() {
            Some(false) => wrapped.record_kept("used as it is"),
            _ => wrapped.action("unwrap the token before it is written to its file"),
        }
    }
    if let Some(renew) = vault.take("renew_token") {
        renew.record_changed("a renewable token is always renewed");
    }
    for key in LOGIN_KEYS.iter().filter(|key| key.starts_with("k8s_")) {
        if let Some(input) = vault.take(key) {
            input.action("write [session.main.kubernetes] with the role and the file of the service account's token");
        }
    }
}

/// Reads the keys that consul-template's `vault {}` has in addition to the agent's: the times of leases, and `ssl {}`.
pub(super) fn server(vault: &mut Block<'_>, document: &mut Document, has_tls: bool) {
    let own_time =
        "values are read again every templates.interval, and a lease is replaced after two thirds of its duration";
    vault.drop_keys(&["default_lease_duration", "lease_renewal_threshold", "grace"], own_time);
    vault.drop_keys(&["enabled"], "the section enables it");
    if let Some(transport) = vault.block("transport") {
        transport.drop_all(Outcome::NotSupported, "connections are reused");
    }
    if let Some(mut ssl) = vault.block("ssl") {
        if has_tls {
            tls(&mut ssl, document.section(&format!("server.{MAIN}")));
            ssl.finish();
        } else {
            ssl.drop_all(Outcome::NotSupported, NO_TLS);
        }
    }
}

fn tls(ssl: &mut Block<'_>, section: &mut Section) {
    for (source_key, key) in [
        ("ca_cert", "ca_file"),
        ("ca_path", "ca_dir"),
        ("cert", "client_cert"),
        ("key", "client_key"),
        ("server_name", "server_name"),
    ] {
        match ssl.take(source_key) {
            Some(input) if matches!(input.value, Value::Text(text) if text.is_empty()) => {
                input.record_kept("empty: no effect");
            }
            Some(input) => {
                if let Some(text) = input.required_text() {
                    section.at(input.origin()).text(key, text);
                    input.record_kept(key);
                }
            }
            None => {}
        }
    }
    if let Some(verify) = ssl.take("verify") {
        match verify.flag() {
            Some(true) => verify.record_kept("the server is always verified"),
            Some(false) => verify.action("the server is always verified: set ca_file to its authority"),
            None => verify.not_supported(NO_FLAG),
        }
    }
    ssl.drop_keys(&["enabled"], "an https:// address uses TLS");
    ssl.drop_keys(&["ca_cert_bytes", "ca_bytes"], "set ca_file to a file");
}

/// Reads consul-template's top-level keys; last, when it is known if there is a login.
pub(super) fn read(top: &mut Block<'_>, document: &mut Document) {
    for name in ["consul", "nomad", "deduplicate"] {
        if let Some(block) = top.block(name) {
            block.drop_all(Outcome::NotSupported, "templates read only Vault or OpenBao");
        }
    }
    if let Some(block) = top.block("syslog") {
        block.drop_all(Outcome::NotSupported, "logs go to standard error, for the journal or the container runtime");
    }
    top.drop_keys(&["max_stale", "block_query_wait"], "for queries of Consul, which templates do not make");
    top.drop_keys(&["kill_signal", "reload_signal", "dump_signal"], "SIGTERM and SIGINT stop it, SIGHUP reloads it");
    let reason = "a failed template is retried, and readiness reports it";
    top.drop_keys(&["template_error_fatal", "err_on_failed_lookup"], reason);
    if let Some(once) = top.take("once") {
        once.record_changed("use the flag: `keyward run --exit-after-auth`");
    }
    let session = format!("session.{MAIN}");
    let sections = ["sink", "template", "env_template", "listener"];
    let needed = sections.iter().any(|section| document.has_below(section));
    if needed && !document.has_below(&session) {
        document.section(&format!("{session}.token_file")).text("file", TOKEN_FILE);
        let detail = format!(
            "no login method: write the token to {TOKEN_FILE}, mode 0600, or write [session.main.cloud] or \
             another method in place of [session.main.token_file]"
        );
        top.record_as("auto_auth", Outcome::Action, detail);
    }
}
