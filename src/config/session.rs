//! `[session.NAME]`: one chain of identity, login and token.

use std::path::Path;
use std::time::Duration;

use keyward_agent::identity::IdentityMethod;
use keyward_agent::login;
use keyward_agent::server_client::{ServerClientOptions, ServerKind};
use keyward_agent::token_lifecycle;
use keyward_telemetry::error_code::ErrorCode;

use super::agent::STATE_DIR;
use super::method;
use super::reader::Reader;
use super::tree::quote;
use super::values::{self, ValueError, did_you_mean, invalid};
use super::{Certificate, Session};

/// The least length of a key that seals a token into a file, in bytes: a 128-bit key in hex.
const SEAL_KEY: usize = 32;

/// Reads one session; `None` if its server does not exist, which is reported. It may log in with one of these certificates.
pub(super) fn read(
    name: String,
    mut reader: Reader<'_>,
    (servers, certificates): (&[ServerClientOptions], &[&Certificate]),
    state_dir: Option<&Path>,
) -> Option<Session> {
    let mut upstream = server(&mut reader, servers);
    let is_consul = upstream.as_ref().is_some_and(|server| server.kind == ServerKind::Consul);
    let method = method::read(&mut reader, upstream.as_ref(), certificates);
    let method_kind = method.auth_method();
    if let (Some(upstream), Some(certificate)) = (&mut upstream, method.certificate) {
        upstream.client.tls.identity = Some(certificate);
    }
    let mount = if is_consul { auth_method(&mut reader) } else { mount_of(&mut reader, method.mount) };
    let namespace = reader.parse_text("namespace", namespace);
    let day = Duration::from_hours(24);
    let wrap_ttl = reader.duration_if_given("wrap_ttl", Duration::from_secs(1)..=32 * day);
    let seal_given = reader.locate("seal_key_file").is_some();
    // Each login at such a server leaves a token that may never end.
    let revoke_on_exit = reader.flag("revoke_on_exit", is_consul && !seal_given && wrap_ttl.is_none());
    let check_interval = check_interval(&mut reader);
    let splay = reader.duration("login_jitter", Duration::ZERO, Duration::ZERO..=Duration::from_hours(1));
    let seal = reader.secret("seal_key_file", SEAL_KEY);
    if seal_given && state_dir.is_none() {
        let at = reader.locate("seal_key_file").unwrap_or(reader.at);
        let key = reader.key("seal_key_file");
        let message = "needs a state folder for the sealed token";
        reader.scope.diagnostics.missing_on_host(
            at,
            &key,
            message,
            format!("create {STATE_DIR}, or set agent.state_dir to another folder"),
        );
    }
    let conflicts = [
        (seal_given && revoke_on_exit, "seal_key_file", "revoke_on_exit", "a revoked token cannot be resumed"),
        (seal_given && wrap_ttl.is_some(), "seal_key_file", "wrap_ttl", "a wrapped token is passed on, not stored"),
        (revoke_on_exit && wrap_ttl.is_some(), "revoke_on_exit", "wrap_ttl", "the agent does not own a wrapped token"),
        (is_consul && wrap_ttl.is_some(), "wrap_ttl", "a server of the kind consul", "its login does not wrap tokens"),
    ];
    for (_, key, other, reason) in conflicts.into_iter().filter(|(is_conflict, ..)| *is_conflict) {
        reader.conflict(key, other, reason);
    }
    if matches!(method.method, IdentityMethod::TokenFile(_)) {
        for key in ["revoke_on_exit", "wrap_ttl", "seal_key_file"] {
            if reader.locate(key).is_some() {
                reader.conflict(key, "token_file", "token_file sessions do not own their token");
            }
        }
    }
    let state = state_dir.map(|folder| token_lifecycle::SessionStateOptions {
        file: folder.join(format!("{name}.state")),
        seal_key: seal,
    });
    reader.finish();
    Some(Session {
        upstream: upstream?,
        login: login::LoginOptions { role: method.role, mount, namespace, wrap_ttl, auth_method: method_kind },
        identity: method.method,
        lifecycle: token_lifecycle::TokenLifecycleOptions {
            name: name.clone(),
            check_interval,
            login_jitter: splay,
            revoke_on_exit,
            state,
        },
        name,
    })
}

fn server(reader: &mut Reader<'_>, servers: &[ServerClientOptions]) -> Option<ServerClientOptions> {
    let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
    if reader.locate("server").is_none() {
        match servers {
            [only] => return Some(only.clone()),
            [] => {
                reader.missing("server", "define one with [server.NAME]; a single one need not be named");
            }
            _ => reader.missing("server", &format!("name one of {}", names.join(", "))),
        }
    }
    let text = reader.text("server")?;
    let server = servers.iter().find(|server| server.name == text.value);
    if server.is_none() && !text.unknown {
        let advice = did_you_mean(&text.value, &names).unwrap_or_else(|| match names.as_slice() {
            [] => "define it with [server.NAME]".to_owned(),
            names => format!("there are: {}", names.join(", ")),
        });
        reader.scope.diagnostics.missing(
            text.at,
            &text.key,
            (ErrorCode::UnknownName, format!("there is no server {}", quote(&text.value))),
            advice,
        );
    }
    server.cloned()
}

/// The mount of the method; `default` is the server's default.
fn mount_of(reader: &mut Reader<'_>, default: Option<&'static str>) -> String {
    if let Some(at) = reader.locate("auth_method") {
        let message = "only allowed for a server of the kind consul";
        reader.error(at, "auth_method", message, "write mount, or leave it out");
    }
    if let Some(default) = default {
        return reader.parse_text("mount", mount).unwrap_or_else(|| default.to_owned());
    }
    if reader.locate("mount").is_some() {
        reader.conflict("mount", "token_file", "there is no login");
    }
    String::new()
}

/// The name of the auth method, at a server that has them by name.
fn auth_method(reader: &mut Reader<'_>) -> String {
    if reader.locate("mount").is_some() {
        reader.conflict("mount", "a server of the kind consul", "its auth methods have names: write auth_method");
    }
    let meaning = "the name of the auth method to log in by, on the server";
    let name = reader.required("auth_method", meaning).map(|text| text.value).unwrap_or_default();
    if name.contains(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c))) {
        let at = reader.locate("auth_method").unwrap_or(reader.at);
        let advice = "a name has letters, digits, - and _";
        reader.error(at, "auth_method", "not the name of a method", advice);
    }
    name
}

/// A mount without slashes around it; a leading `auth/` is removed, as other agents write it.
fn mount(text: &str) -> Result<String, ValueError> {
    let path = text.trim_matches('/');
    let path = path.strip_prefix("auth/").unwrap_or(path);
    if path.ends_with("/login") || path == "login" {
        return invalid("ends with login", "write only the mount, such as \"azure\"");
    }
    path_of(path, "is not a mount path", "write only the mount, such as \"azure\" for auth/azure")
}

fn namespace(text: &str) -> Result<String, ValueError> {
    path_of(text.trim_matches('/'), "is not a namespace", "write its path, such as \"team-a\" or \"team-a/web\"")
}

fn path_of(path: &str, message: &str, advice: &str) -> Result<String, ValueError> {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(|byte| byte.is_ascii_graphic());
    if path.split('/').all(plain) && !path.contains(['?', '#', '%', '\\', '"']) {
        Ok(path.to_owned())
    } else {
        invalid(message, advice)
    }
}

fn check_interval(reader: &mut Reader<'_>) -> Option<Duration> {
    let range = Duration::from_secs(10)..=Duration::from_hours(24);
    let default = Some(Duration::from_mins(5));
    let parse = |text: &str| match text {
        "off" => Ok(None),
        text => values::duration(text, &range).map(Some),
    };
    // The error about an integer says that its unit is missing.
    if reader.is_integer("check_interval") {
        reader.duration_if_given("check_interval", range).or(default)
    } else {
        reader.parse_text("check_interval", parse).unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_taken_in_the_forms_that_people_write() {
        let check = |text: &str, expected: Option<&str>| assert_eq!(mount(text).ok().as_deref(), expected, "{text}");
        check("azure", Some("azure"));
        check("auth/azure", Some("azure"));
        check("/auth/azure/", Some("azure"));
        check("team/azure-prod", Some("team/azure-prod"));
        check("auth/azure/login", None);
        check("auth/", Some("auth"));
        check("/", None);
        check("a//b", None);
        check("a/../b", None);
        check("a b", None);
        check("a?b", None);
    }
}
