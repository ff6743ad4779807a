//! Removes secrets from the files of a bundle: known values, strings that look like tokens, and settings that may hold one.

use std::sync::LazyLock;

use keyward_config::systemd::split_unit_words;
use keyward_machine::secret_string::SecretString;
use regex_lite::Regex;
use toml::{Table, Value};
use url::Url;

/// Replacement for redacted text.
const REDACTED: &str = "[redacted]";

/// Minimum length of a redacted value: shorter ones would match ordinary words.
const MIN_REDACTED_LENGTH: usize = 8;

/// Replaces secrets in strings.
#[derive(Debug, Default)]
pub(crate) struct Redactor {
    secrets: Vec<SecretString>,
}

impl Redactor {
    /// Adds a value that is never shown, with white space around it or without.
    pub(crate) fn add(&mut self, secret: &str) {
        let trimmed = secret.trim();
        if trimmed.len() >= MIN_REDACTED_LENGTH {
            self.secrets.push(trimmed.into());
        }
    }

    /// Replaces the known values, and strings with the form of a token.
    pub(crate) fn apply(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            // A value may be in JSON, where some letters are escaped.
            let escaped = serde_json::to_string(secret.expose_secret()).unwrap_or_default();
            text = text.replace(secret.expose_secret(), REDACTED);
            text = text.replace(escaped.trim_matches('"'), REDACTED);
        }
        TOKENS.replace_all(&text, REDACTED).into_owned()
    }
}

/// Tokens of Vault and OpenBao, of HCP Terraform and Terraform Enterprise, and signed identity tokens.
#[expect(clippy::expect_used, reason = "a constant that parses")]
static TOKENS: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"\b(hv[sbr]\.[A-Za-z0-9_-]{10,}|[sb]\.[A-Za-z0-9_-]{20,}|eyJ[A-Za-z0-9_=-]{6,}(\.[A-Za-z0-9_=-]*)*|[A-Za-z0-9]{8,}\.atlasv1\.[A-Za-z0-9_-]{8,})";
    Regex::new(pattern).expect("a constant that parses")
});

/// Rewrites a configuration: comments are dropped, and of strings only those of keys that hold no secret are shown.
pub(crate) fn redact_toml(text: &str) -> String {
    match text.parse::<Table>() {
        Ok(mut table) => {
            table.iter_mut().for_each(|(key, value)| redact_value(key, value));
            toml::to_string_pretty(&table).unwrap_or_default()
        }
        // The error quotes the line, which may hold anything.
        Err(_) => "# not shown: it is not valid TOML\n".to_owned(),
    }
}

fn redact_value(key: &str, value: &mut Value) {
    match value {
        Value::Table(table) => table.iter_mut().for_each(|(key, value)| redact_value(key, value)),
        Value::Array(values) => values.iter_mut().for_each(|value| redact_value(key, value)),
        Value::String(text) => {
            if ADDRESSES.contains(&key) {
                *text = without_user(text);
            } else if !SHOWN.contains(&key) {
                REDACTED.clone_into(text);
            }
        }
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {}
    }
}

/// Keys whose text is an address: a name and a password before the host, and a query, are dropped.
const ADDRESSES: &[&str] = &[
    "address",
    "addresses",
    "discovery_url",
    "endpoints",
    "issuer",
    "jwks_url",
    "listen",
    "proxy",
    "resource",
    "scope",
    "upstream",
];

/// Keys whose text is shown. Others may hold a secret, such as the text of a template or the arguments of a command.
const SHOWN: &[&str] = &[
    "auth_method",
    "bound_issuer",
    "ca_dir",
    "ca_file",
    "check_interval",
    "client_cert",
    "client_key",
    "command_timeout",
    "connect_timeout",
    "data_dir",
    "datacenter",
    "debounce",
    "default_policy",
    "deprecated",
    "destination",
    "drop_in",
    "encoding",
    "file",
    "format",
    "grace",
    "group",
    "host",
    "hosts",
    "key_file",
    "kind",
    "level",
    "local_token_file",
    "local_token_max_age",
    "login_jitter",
    "login_timeout",
    "mode",
    "mount",
    "name",
    "namespace",
    "on_change",
    "on_expiry",
    "on_missing",
    "owner",
    "parent_token_file",
    "password_file",
    "path",
    "policies",
    "poll_interval",
    "prefix",
    "public_key_file",
    "ready",
    "request_timeout",
    "response_timeout",
    "restart",
    "rewrite_interval",
    "role",
    "role_id_file",
    "seal_key_file",
    "secret_id_file",
    "server",
    "server_name",
    "session",
    "sessions",
    "source",
    "state_dir",
    "stop_grace",
    "stop_timeout",
    "tls_cert",
    "tls_key",
    "token_file",
    "ttl",
    "write_folders",
];

fn without_user(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else {
        return if text.contains(['@', '?']) { REDACTED.to_owned() } else { text.to_owned() };
    };
    let changed = !url.username().is_empty() || url.password().is_some() || url.query().is_some();
    if !changed {
        return text.to_owned();
    }
    url.set_query(None);
    if url.set_username("").is_err() || url.set_password(None).is_err() {
        return REDACTED.to_owned();
    }
    url.to_string()
}

/// Rewrites a unit file: of variables and credentials only the names are shown, of commands that are not keyward's only the
/// program.
pub(crate) fn redact_unit(text: &str) -> String {
    let mut output = String::with_capacity(text.len());
    // Comments may be next to a secret that was commented out.
    for line in super::unit_parser::logical_lines(text) {
        let line = line.trim();
        match line.split_once('=') {
            Some((key, value)) => {
                let value = redact_setting(key.trim(), value.trim());
                output.extend([key.trim(), "=", &value, "\n"]);
            }
            None => output.extend([line, "\n"]),
        }
    }
    output
}

fn redact_setting(key: &str, value: &str) -> String {
    match key {
        "Environment" => {
            let names = split_unit_words(value);
            let names = names.iter().map(|word| word.split_once('=').map_or(word.as_str(), |(name, _)| name));
            names.map(|name| format!("{name}={REDACTED}")).collect::<Vec<_>>().join(" ")
        }
        "SetCredential" | "SetCredentialEncrypted" => {
            format!("{}:{REDACTED}", value.split_once(':').map_or("", |(name, _)| name))
        }
        key if key.starts_with("Exec") && key.len() > "Exec".len() && key != "ExecPaths" => {
            let words = split_unit_words(value);
            let program = words.first().map_or("", String::as_str);
            let is_known = program.ends_with("/keyward") || program.ends_with("/kill");
            if is_known || words.len() < 2 { value.to_owned() } else { format!("{program} {REDACTED}") }
        }
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests;
