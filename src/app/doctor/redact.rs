//! Removes secrets from the files of a bundle: known values, strings that look like tokens, texts of servers, and all settings
//! but those that are listed as shown.

mod unit;

use std::sync::LazyLock;

use keyward_machine::secret_string::SecretString;
use regex_lite::{Captures, Regex};
use toml::{Table, Value};
use url::Url;

pub(crate) use unit::redact_unit;

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

    /// Replaces the known values, strings with the form of a token, users in URLs, and what servers have answered.
    pub(crate) fn apply(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            // A value may be in JSON, where some letters are escaped.
            let escaped = serde_json::to_string(secret.expose_secret()).unwrap_or_default();
            text = text.replace(secret.expose_secret(), REDACTED);
            text = text.replace(escaped.trim_matches('"'), REDACTED);
        }
        let text = TOKENS.replace_all(&text, REDACTED);
        let text = USERS.replace_all(&text, "://[redacted]@");
        ANSWERS.replace_all(&text, redact_answer).into_owned()
    }
}

/// Shows of a server's text only a beginning that servers are known to answer with: the rest may repeat what was sent.
fn redact_answer(answer: &Captures<'_>) -> String {
    let (head, text) = (&answer[1], &answer[2]);
    let known = KNOWN_ANSWERS.iter().find(|known| text.starts_with(**known));
    match known {
        Some(known) if known.len() == text.len() => answer[0].to_owned(),
        Some(known) => format!("{head}{known} {REDACTED}"),
        None => format!("{head}{REDACTED}"),
    }
}

/// Texts of Vault and OpenBao that hold nothing of the caller's.
const KNOWN_ANSWERS: [&str; 12] = [
    "permission denied",
    "1 error occurred: * permission denied",
    "2 errors occurred: * permission denied * invalid token",
    "invalid token",
    "Vault is sealed",
    "namespace not found",
    "lease not found",
    "lease is not renewable",
    "invalid role or secret ID",
    "service account name not authorized",
    "nothing is there",
    "error validating token",
];

/// `HTTP 400: TEXT` up to the end of the line or string.
#[expect(clippy::expect_used, reason = "a constant that parses")]
static ANSWERS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(HTTP [0-9]{3}[^"\n]{0,64}?: )((?:[^"\\\n]|\\.)+)"#).expect("a constant that parses")
});

/// A user and a password before the host of a URL, also one that is quoted in an error.
#[expect(clippy::expect_used, reason = "a constant that parses")]
static USERS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"://[^/\s"'@]+@"#).expect("a constant that parses"));

/// Tokens of Vault and OpenBao, of HCP Terraform and Terraform Enterprise, and signed identity tokens.
#[expect(clippy::expect_used, reason = "a constant that parses")]
static TOKENS: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"\b(hv[sbr]\.[A-Za-z0-9_-]{10,}|[sb]\.[A-Za-z0-9_-]{20,}|eyJ[A-Za-z0-9_=-]{6,}(\.[A-Za-z0-9_=-]*)*|[A-Za-z0-9]{8,}\.atlasv1\.[A-Za-z0-9_-]{8,})";
    Regex::new(pattern).expect("a constant that parses")
});

/// Replaces what looks like a token in a text, and the user of a URL.
pub fn redact_text(text: &str) -> String {
    Redactor::default().apply(text)
}

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
            } else if !SHOWN.contains(&key) || (is_path_key(key) && !is_path(text)) {
                REDACTED.clone_into(text);
            }
        }
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {}
    }
}

/// True for keys that name a file or folder. A secret that was written in its place is not shown.
fn is_path_key(key: &str) -> bool {
    let is_file = |end: &str| key.ends_with(end);
    ["_file", "_dir", "_cert", "_key"].into_iter().any(is_file) || PATHS.contains(&key)
}

const PATHS: [&str; 3] = ["destination", "file", "path"];

/// True for an absolute path without letters of base64 that paths seldom have, and for a reference.
fn is_path(text: &str) -> bool {
    text.starts_with("${") || (text.starts_with('/') && !text.contains(['+', '=']))
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

#[cfg(test)]
mod tests;
