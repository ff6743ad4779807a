//! Listeners of the agent that a configuration names, and their keys.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use keyward_app::doctor::AgentContact;
use keyward_config::{Environment, Listener, LoadOutcome, Serves};
use keyward_http::client::ServerAddress;
use keyward_http::guard::AccessMode;
use keyward_http::server::Endpoint;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_code::ErrorCode;
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use url::Url;

use super::socket_peer::check_socket_peer;
use super::{Exit, print_error, print_error_with_code, print_warning};

/// Kind of listener that a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequiredListener<'a> {
    LocalApi,
    Health,
    /// One that serves this identity.
    Identity(&'a str),
}

/// Returns the best listener with the agent's status, and its key; `None` without one, or if its key cannot be read.
pub(super) fn find_contact(outcome: &LoadOutcome) -> Option<AgentContact> {
    let (listener, address) = best_listener(&outcome.listeners, RequiredListener::LocalApi)?;
    let key = match &listener.guard.admit {
        AccessMode::Key(key) if key.expose_secret() == SECRET_PLACEHOLDER => return None,
        AccessMode::Key(key) => Some(key.clone()),
        AccessMode::SocketPeers | AccessMode::AnyLocalUser | AccessMode::Callers => None,
    };
    Some(AgentContact { address, key })
}

/// The API proxy of the running agent that serves a session.
pub(super) struct ProxyEndpoint {
    pub(super) address: ServerAddress,
    pub(super) key: Option<SecretString>,
}

impl ProxyEndpoint {
    /// Finds the best API proxy: one with the session's own token before one with a derived token, unix sockets before
    /// TCP.
    pub(super) fn find(outcome: &LoadOutcome, session: &str) -> Result<Self, Exit> {
        let listeners = outcome.config.iter().flat_map(|config| &config.listeners);
        let serves = |listener: &&Listener| {
            // Of a certificate for other clients the authority is not known.
            matches!(listener.serves, Serves::ApiProxy(_))
                && listener.tls.is_none()
                && listener.sessions.iter().any(|name| name == session)
        };
        let mut fit: Vec<_> =
            listeners.filter(serves).filter_map(|listener| Some((listener, address(&listener.endpoint)?))).collect();
        fit.sort_by_key(|(listener, address)| {
            (listener.derived_token.is_some(), !matches!(address, ServerAddress::Unix(_)))
        });
        let Some((listener, address)) = fit.into_iter().next() else {
            let line = format!(
                "the configuration has no API proxy for session {session}, through which the running agent could be asked; \
                 add [listener.NAME] with kind = \"api_proxy\""
            );
            print_error_with_code(ErrorCode::NoListener, &line);
            return Err(Exit::Failed);
        };
        check_socket_peer(&address, &Environment::current())?;
        Ok(Self { address, key: key(listener, outcome)? })
    }
}

/// Finds the listener to call. The file may contain errors that the running agent has not loaded. The last value is for the
/// error if nothing answers: a member of the socket's group need not read the configuration.
pub(super) fn find<'a>(
    outcome: &'a LoadOutcome,
    required: RequiredListener<'_>,
) -> Result<(ServerAddress, Option<&'a Listener>, Option<String>), Exit> {
    let target = best_listener(&outcome.listeners, required).map(|(listener, address)| (address, Some(listener), None));
    if outcome.config.is_some() {
        return target.ok_or_else(|| {
            let missing = match required {
                RequiredListener::Identity(name) => {
                    format!("listener for [identity.{name}] to ask; add [listener.tools] with kind = \"identity\"")
                }
                _ => "local API to ask; add [listener.api] with address = \"unix:///run/keyward/api.sock\"".to_owned(),
            };
            let line = format!("the configuration has no {missing}, or pass --address");
            print_error_with_code(ErrorCode::NoListener, &line);
            Exit::Failed
        });
    }
    let (address, listener, _) =
        target.unwrap_or_else(|| (ServerAddress::Unix(PathBuf::from(DEFAULT_SOCKET)), None, None));
    let more = match outcome.errors.len() {
        0 | 1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    let first = outcome.errors.first().map(ToString::to_string).unwrap_or_default();
    let at = match &address {
        ServerAddress::Unix(path) => format!("unix://{}", path.display()),
        ServerAddress::Url(url) => url.to_string(),
    };
    if outcome.errors.iter().all(|error| is_denied(&error.file)) {
        let unread = format!("the configuration is not used: {first}{more}; the address is {at} without it");
        return Ok((address, listener, Some(unread)));
    }
    print_warning(&format!("the configuration has errors: {first}{more}; using the agent at {at} anyway"));
    Ok((address, listener, None))
}

/// Returns the best listener and its address: unix sockets first, a local API before a health listener.
pub(super) fn best_listener<'a>(
    listeners: &'a [Listener],
    required: RequiredListener<'_>,
) -> Option<(&'a Listener, ServerAddress)> {
    let mut fit: Vec<_> = listeners
        .iter()
        .filter(|listener| match &listener.serves {
            Serves::LocalApi => !matches!(required, RequiredListener::Identity(_)),
            Serves::Health => required == RequiredListener::Health,
            Serves::Identity(names) => {
                matches!(required, RequiredListener::Identity(name) if names.iter().any(|served| served == name))
            }
            Serves::ApiProxy(_) | Serves::SystemdCredentials(_) => false,
            #[cfg(feature = "ui")]
            Serves::Ui(_) => false,
        })
        .filter_map(|listener| Some((listener, address(&listener.endpoint)?)))
        .collect();
    fit.sort_by_key(|(listener, address)| {
        (listener.serves != Serves::LocalApi, !matches!(address, ServerAddress::Unix(_)))
    });
    fit.into_iter().next()
}

/// The listener at this address; else one whose address only the service manager knows.
pub(super) fn find_listener_at<'a>(listeners: &'a [Listener], at: &ServerAddress) -> Option<&'a Listener> {
    let exact = listeners.iter().find(|listener| address(&listener.endpoint).as_ref() == Some(at));
    let unknown = || {
        let mut activated = listeners.iter().filter(|listener| matches!(listener.endpoint, Endpoint::Activated(_)));
        // A unix socket asks for no key, and a socket of another kind for one that is not to be sent to it.
        activated
            .find(|listener| matches!(at, ServerAddress::Url(_)) && matches!(listener.guard.admit, AccessMode::Key(_)))
    };
    exact.or_else(unknown)
}

fn address(endpoint: &Endpoint) -> Option<ServerAddress> {
    match endpoint {
        Endpoint::Unix(socket) => Some(ServerAddress::Unix(socket.path.clone())),
        Endpoint::Tcp(address) => {
            let mut address = *address;
            if address.ip().is_unspecified() {
                address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
            }
            Url::parse(&format!("http://{address}/")).ok().map(ServerAddress::Url)
        }
        Endpoint::Activated(_) => None,
    }
}

/// The key that a listener asks for, if it does.
pub(super) fn key(listener: &Listener, outcome: &LoadOutcome) -> Result<Option<SecretString>, Exit> {
    let AccessMode::Key(key) = &listener.guard.admit else { return Ok(None) };
    if key.expose_secret() != SECRET_PLACEHOLDER {
        return Ok(Some(key.clone()));
    }
    let key_name = format!("listener.{}.key_file", listener.name);
    for note in outcome.notes.iter().filter(|note| note.key == key_name) {
        print_error(&note.to_string());
    }
    Err(Exit::Failed)
}

/// True if this user may not read a file or folder.
fn is_denied(path: &Path) -> bool {
    rustix::fs::accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS) == Err(Errno::ACCESS)
}

/// Socket of the packaged configurations; used if the configuration cannot be read.
const DEFAULT_SOCKET: &str = "/run/keyward/api.sock";

/// Placeholder in a configuration for a secret that could not be read.
const SECRET_PLACEHOLDER: &str = "\0";
