//! `[credential.NAME]`: a user's name and a password in a secret, for the programs that Docker and git ask for credentials.

use std::collections::BTreeMap;

use super::Credential;
use super::diagnostic::Location;
use super::reader::Reader;
use super::sink::Sessions;
use super::values::{ValueError, invalid};

/// Reads all of them. Two may not answer for the same host.
pub(super) fn read_all(tables: Vec<(String, Reader<'_>)>, sessions: &Sessions) -> Vec<Credential> {
    let mut hosts: BTreeMap<String, (Location, String)> = BTreeMap::new();
    tables.into_iter().map(|(name, reader)| read(name, reader, sessions, &mut hosts)).collect()
}

fn read(
    name: String,
    mut reader: Reader<'_>,
    sessions: &Sessions,
    used: &mut BTreeMap<String, (Location, String)>,
) -> Credential {
    let session = sessions.one_of(&mut reader).unwrap_or_default();
    if sessions.is_wrapped(&session) {
        reader.conflict("session", "the wrap_ttl of its session", "its token is for one sink");
    }
    if reader.locate("hosts").is_none() {
        reader.missing("hosts", "the hosts that it is for, such as [\"registry.example.com\"]");
    }
    let mut hosts = Vec::new();
    for text in reader.list("hosts").unwrap_or_default() {
        let Some(host) = reader.parse(&text, host) else { continue };
        if let Some((first, other)) = used.insert(host.clone(), (text.at, name.clone())) {
            let diagnostics = reader.scope.diagnostics;
            let message = format!("also a host of credential {other}, at {}", diagnostics.name(first));
            diagnostics.error(text.at, &text.key, message, "a host has one credential");
        }
        hosts.push(host);
    }
    let path = reader.required("path", "the secret, such as \"secret/data/registry\", without /v1/");
    let path = path.and_then(|text| reader.parse(&text, secret_path)).unwrap_or_default();
    let username = reader.value("username");
    let username_field = reader.value("username_field");
    if username.is_some() && username_field.is_some() {
        reader.conflict("username_field", "username", "the name is fixed, or in the secret");
    }
    let field = reader.value("password_field").unwrap_or_else(|| "password".to_owned());
    reader.finish();
    let username_field = username_field.unwrap_or_else(|| "username".to_owned());
    Credential { name, session, hosts, path, username, username_field, password_field: field }
}

/// Parses a host as clients write it, with its port unless it is the default.
fn host(text: &str) -> Result<String, ValueError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if text.bytes().all(plain) && text.bytes().any(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(text.to_ascii_lowercase());
    }
    invalid("is not a host", "write its name, and :PORT behind it where it has one, with no scheme and no path")
}

/// A secret's path, without `/v1/`.
pub(super) fn secret_path(text: &str) -> Result<String, ValueError> {
    if text.starts_with('/') || text.starts_with("v1/") {
        return invalid("does not begin with a mount", "leave /v1/ off");
    }
    Ok(text.to_owned())
}

/// Describes a credential for `keyward check`, one clause per entry.
pub(super) fn describe(credential: &Credential) -> Vec<String> {
    let name = credential
        .username
        .as_ref()
        .map_or_else(|| format!("field {}", credential.username_field), |name| format!("name {name}"));
    vec![format!(
        "gives Docker and git, for {}, the {name} and the field {} of {}, read by session {}",
        credential.hosts.join(", "),
        credential.password_field,
        credential.path,
        credential.session
    )]
}
