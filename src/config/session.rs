//! `[session.NAME]`: one chain of identity, login and token.

use std::path::Path;
use std::time::Duration;

use super::Session;
use super::agent::STATE_DIR;
use super::cloud;
use super::leaf::{self, Wrong, did_you_mean, wrong};
use super::reader::Reader;
use super::tree::quoted;
use crate::agent::identity::{Endpoints, From, LoginFields, ManagedIdentity, Options as Identity, Variables};
use crate::agent::lifecycle;
use crate::agent::login;
use crate::agent::upstream::Options as Server;

/// The mount that a secrets server's cloud-identity method has unless its operator chose another.
pub(super) const MOUNT: &str = "azure";

/// The least length of a key that seals a token into a file, in bytes: a 128-bit key in hex.
const SEAL_KEY: usize = 32;

/// Reads one session; `None` where it names no server that exists, which is then said.
pub(super) fn read(
    name: String,
    mut reader: Reader<'_>,
    servers: &[Server],
    state_dir: Option<&Path>,
) -> Option<Session> {
    let upstream = server(&mut reader, servers);
    let mount = reader.parsed("mount", mount).unwrap_or_else(|| MOUNT.to_owned());
    let namespace = reader.parsed("namespace", namespace);
    let day = Duration::from_hours(24);
    let wrap_ttl = reader.duration_if_given("wrap_ttl", Duration::from_secs(1)..=32 * day);
    let revoke_on_exit = reader.flag("revoke_on_exit", false);
    let check_interval = check_interval(&mut reader);
    let splay = reader.duration("first_login_splay", Duration::ZERO, Duration::ZERO..=Duration::from_hours(1));
    let seal_given = reader.place_of("seal_key_file").is_some();
    let seal = reader.secret("seal_key_file", SEAL_KEY);
    if seal_given && state_dir.is_none() {
        let (at, key) = (reader.place_of("seal_key_file").unwrap_or(reader.at), reader.key("seal_key_file"));
        let found = "given, and there is no folder to keep the sealed token in";
        reader.scope.remarks.lacking(at, &key, found, format!("make {STATE_DIR}, or name another as agent.state_dir"));
    }
    if seal_given && revoke_on_exit {
        reader.conflict("seal_key_file", "revoke_on_exit", "a revoked token cannot be resumed");
    }
    if seal_given && wrap_ttl.is_some() {
        reader.conflict("seal_key_file", "wrap_ttl", "a wrapped token is handed on, not kept");
    }
    if revoke_on_exit && wrap_ttl.is_some() {
        reader.conflict("revoke_on_exit", "wrap_ttl", "a wrapped token is not ours to revoke");
    }
    let (role, identity) = if let Some(method) = reader.table("cloud") {
        cloud::read(method)
    } else {
        if reader.place_of("cloud").is_none() {
            let advice = format!("a session has one method: write [{}] with role and resource", reader.key("cloud"));
            reader.missing("cloud", &advice);
        }
        (String::new(), nobody())
    };
    let state = state_dir.map(|folder| lifecycle::State { file: folder.join(format!("{name}.state")), seal });
    reader.finish();
    Some(Session {
        upstream: upstream?,
        login: login::Options { role, mount, namespace, wrap_ttl },
        identity,
        lifecycle: lifecycle::Options {
            name: name.clone(),
            check_interval,
            first_login_splay: splay,
            revoke_on_exit,
            state,
        },
        name,
    })
}

fn server(reader: &mut Reader<'_>, servers: &[Server]) -> Option<Server> {
    let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
    if reader.place_of("server").is_none() {
        match servers {
            [only] => return Some(only.clone()),
            [] => {
                reader
                    .missing("server", "define one with [server.NAME]; where there is only one, it need not be named");
            }
            _ => reader.missing("server", &format!("name one of {}", names.join(", "))),
        }
    }
    let text = reader.text("server")?;
    let found = servers.iter().find(|server| server.name == text.value);
    if found.is_none() && !text.unknown {
        let advice = did_you_mean(&text.value, &names).unwrap_or_else(|| match names.as_slice() {
            [] => "define it with [server.NAME]".to_owned(),
            names => format!("there are: {}", names.join(", ")),
        });
        reader.scope.remarks.missing(text.at, &text.key, format!("there is no server {}", quoted(&text.value)), advice);
    }
    found.cloned()
}

/// A mount without slashes around it; `auth/` before it is taken off, as other agents write it.
fn mount(text: &str) -> Result<String, Wrong> {
    let path = text.trim_matches('/');
    let path = path.strip_prefix("auth/").unwrap_or(path);
    if path.ends_with("/login") || path == "login" {
        return wrong("ends with login", "write the mount alone, such as \"azure\"");
    }
    path_of(path, "is no mount path", "write the mount alone, such as \"azure\" for auth/azure")
}

fn namespace(text: &str) -> Result<String, Wrong> {
    path_of(text.trim_matches('/'), "is no namespace", "write its path, such as \"team-a\" or \"team-a/web\"")
}

fn path_of(path: &str, found: &str, advice: &str) -> Result<String, Wrong> {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(|byte| byte.is_ascii_graphic());
    if path.split('/').all(plain) && !path.contains(['?', '#', '%', '\\', '"']) {
        Ok(path.to_owned())
    } else {
        wrong(found, advice)
    }
}

fn check_interval(reader: &mut Reader<'_>) -> Option<Duration> {
    let range = Duration::from_secs(10)..=Duration::from_hours(24);
    let default = Some(Duration::from_mins(5));
    let parse = |text: &str| match text {
        "off" => Ok(None),
        text => leaf::duration(text, &range).map(Some),
    };
    // An integer is told as one that lacks its unit.
    if reader.is_integer("check_interval") {
        reader.duration_if_given("check_interval", range).or(default)
    } else {
        reader.parsed("check_interval", parse).unwrap_or(default)
    }
}

/// The stand-in where the method is missing.
fn nobody() -> Identity {
    Identity {
        resource: String::new(),
        scope: None,
        from: From::Instance(ManagedIdentity::System),
        overrides: LoginFields::default(),
        variables: Variables::default(),
        endpoints: Endpoints::provider(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_taken_in_the_forms_that_people_write() {
        let check = |text: &str, wanted: Option<&str>| assert_eq!(mount(text).ok().as_deref(), wanted, "{text}");
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
