//! `[listener.NAME]`: a socket that is served to this machine's tools, or to a kubelet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use keyward_http::guard::{AccessMode, GuardOptions as Guard};
use keyward_http::server::{Endpoint, UnixSocket};
use keyward_http::tls::ServerCertificate;
use keyward_telemetry::error_code::ErrorCode;

use super::api_proxy;
use super::derived_token;
use super::diagnostic::Location;
use super::identity::Identities;
use super::listener_access::{
    MIN_KEY_BYTES, admit, admit_browsers, admit_tools, reject_access_keys, reject_key, reject_keys,
};
use super::reader::Reader;
use super::server_certificate;
use super::sink::Sessions;
use super::systemd_credentials;
use super::template::TemplateContext;
use super::values::{self, ValueError, invalid};
use super::{Certificate, Listener, NeedKind, Serves};

/// Default mode of a socket: its owner and its group may connect.
const DEFAULT_SOCKET_MODE: u32 = 0o660;

/// Threads that serve a listener which forwards requests.
pub(super) const THREADS: RangeInclusive<usize> = 1..=64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    LocalApi,
    Health,
    ApiProxy,
    Identity,
    Ui,
    SystemdCredentials,
}

const KINDS: [(&str, Kind); 6] = [
    ("local_api", Kind::LocalApi),
    ("health", Kind::Health),
    ("api_proxy", Kind::ApiProxy),
    ("identity", Kind::Identity),
    ("ui", Kind::Ui),
    ("systemd_credentials", Kind::SystemdCredentials),
];

/// Sections that listeners serve.
#[derive(Clone, Copy)]
pub(super) struct ListenerContext<'a> {
    pub(super) templates: TemplateContext<'a>,
    pub(super) identities: &'a Identities,
    /// The rules of callers decide who may call.
    pub(super) has_callers: bool,
}

/// Reads all listeners. Two may not share an address.
pub(super) fn read_all(tables: Vec<(String, Reader<'_>)>, context: ListenerContext<'_>) -> Vec<Listener> {
    let mut used: BTreeMap<String, (Location, String)> = BTreeMap::new();
    let mut listeners = Vec::new();
    for (name, mut reader) in tables {
        let at = reader.locate("address").unwrap_or(reader.at);
        let diagnostics = reader.scope.diagnostics;
        let path = reader.path.clone();
        let Some(listener) = read(name.clone(), reader, context) else { continue };
        let free = matches!(listener.endpoint, Endpoint::Tcp(address) if address.port() == 0);
        if !free && let Some((first, other)) = used.insert(listener.endpoint.to_string(), (at, name)) {
            let message = (
                ErrorCode::DuplicateSetting,
                format!("also the address of listener {other}, at {}", diagnostics.name(first)),
            );
            diagnostics.error(at, &format!("{path}.address"), message, "give each listener its own address");
        }
        listeners.push(listener);
    }
    listeners
}

fn read(name: String, mut reader: Reader<'_>, context: ListenerContext<'_>) -> Option<Listener> {
    let ListenerContext { templates, identities, has_callers } = context;
    let all_sessions = templates.sessions;
    let kind = reader.choice("kind", &KINDS).unwrap_or(Kind::LocalApi);
    let (endpoint, at) = read_address(&name, &mut reader);
    if kind == Kind::SystemdCredentials {
        return read_systemd_listener(name, reader, endpoint, at, templates);
    }
    reject_keys(
        &mut reader,
        &systemd_credentials::KEYS,
        "only allowed on a listener of kind = \"systemd_credentials\"",
    );
    let tls = tls(&mut reader, kind, endpoint.as_ref(), templates.certificates);
    let proxy_tls = tls.clone().filter(|_| kind == Kind::ApiProxy);
    let admit = match (&endpoint, kind) {
        (Some(endpoint), Kind::LocalApi | Kind::ApiProxy) => admit(&mut reader, endpoint, at, has_callers),
        (Some(endpoint), Kind::Identity) => admit_tools(&mut reader, endpoint, at, has_callers),
        (endpoint, Kind::Ui) => admit_browsers(&mut reader, endpoint.as_ref(), tls.is_some(), at),
        (_, Kind::Health) => {
            reject_access_keys(&mut reader);
            AccessMode::AnyLocalUser
        }
        (_, Kind::SystemdCredentials) => AccessMode::SocketPeers,
        (None, Kind::LocalApi | Kind::ApiProxy | Kind::Identity) => {
            reader.secret("key_file", MIN_KEY_BYTES);
            reader.flag("any_local_user", false);
            AccessMode::SocketPeers
        }
    };
    let hosts = reader.list("allowed_hosts").unwrap_or_default();
    let allowed_hosts: BTreeSet<_> = hosts.iter().filter_map(|text| reader.parse(text, values::host)).collect();
    let (serves, sessions) = match kind {
        Kind::Health => (Serves::Health, all_sessions.all()),
        Kind::SystemdCredentials => return None,
        Kind::LocalApi => (Serves::LocalApi, read_sessions(&mut reader, all_sessions)),
        Kind::Identity => (Serves::Identity(identities.read_served(&mut reader)), Vec::new()),
        Kind::Ui => (ui(&mut reader, tls)?, read_sessions(&mut reader, all_sessions)),
        Kind::ApiProxy => {
            reject_key(&mut reader, "sessions", "not allowed on an api_proxy listener: write session");
            let (options, session) = api_proxy::read(&mut reader, all_sessions);
            if admit == AccessMode::AnyLocalUser && !options.request_header {
                warn_of_web_pages(&mut reader);
            }
            (Serves::ApiProxy(Box::new(options)), session.into_iter().collect())
        }
    };
    if kind != Kind::Identity {
        reject_key(&mut reader, "identities", "only allowed on a listener of kind = \"identity\"");
    }
    let threads = if kind == Kind::ApiProxy { reader.number("threads", THREADS) } else { None };
    if kind != Kind::ApiProxy {
        const ONLY_API_PROXY: &str = "only allowed on a listener of kind = \"api_proxy\"";
        reject_keys(&mut reader, &api_proxy::KEYS, ONLY_API_PROXY);
        if let Some(cache) = reader.table("cache") {
            cache.scope.diagnostics.error(cache.at, &cache.path, ONLY_API_PROXY, "leave it out");
        }
    }
    let serves_tokens = matches!(kind, Kind::LocalApi | Kind::ApiProxy);
    let derived_token = if serves_tokens { derived_token::read(&mut reader, false) } else { None };
    for session in sessions.iter().filter(|_| derived_token.is_some()) {
        all_sessions.reject_derived(&mut reader, "derived_token", session);
    }
    let required = reader.flag("required", true);
    reader.finish();
    let guard = Guard { allowed_hosts, admit };
    Some(Listener {
        name,
        serves,
        endpoint: endpoint?,
        tls: proxy_tls,
        guard,
        sessions,
        derived_token,
        threads: threads.unwrap_or(1),
        callers: None,
        required,
    })
}

/// Warns of an API proxy to which web pages may send requests.
fn warn_of_web_pages(reader: &mut Reader<'_>) {
    let at = reader.locate("require_request_header").unwrap_or(reader.at);
    let message = "false with any_local_user = true: web pages could send requests too";
    let advice = "set key_file, or leave require_request_header at true";
    let message = (ErrorCode::WebPagesAdmitted, message);
    reader.scope.diagnostics.warning(at, &reader.key("require_request_header"), message, advice);
}

/// Reads `address` with the owner of its socket, and its location.
fn read_address(name: &str, reader: &mut Reader<'_>) -> (Option<Endpoint>, Location) {
    let text = reader.required("address", "the address to listen on, such as \"unix:///run/keyward/api.sock\"");
    let at = text.as_ref().map_or(reader.at, |text| text.at);
    let unknown = text.as_ref().is_some_and(|text| text.unknown);
    let endpoint = text.as_ref().and_then(|text| reader.parse(text, endpoint));
    let endpoint = if unknown { endpoint.or_else(|| Some(Endpoint::Activated(name.to_owned()))) } else { endpoint };
    let (endpoint, shared_folder) = socket_owner(reader, endpoint);
    if let (Some(Endpoint::Unix(socket)), Some(text)) = (&endpoint, &text) {
        reader.check_socket_folder(text, &socket.path, shared_folder);
    }
    if let (Some(endpoint), Some(text)) = (&endpoint, &text) {
        reader.record_value(text, NeedKind::Listen(endpoint.clone()));
    }
    (endpoint, at)
}

/// Reads the rest of a listener for systemd.
fn read_systemd_listener(
    name: String,
    mut reader: Reader<'_>,
    endpoint: Option<Endpoint>,
    at: Location,
    context: TemplateContext<'_>,
) -> Option<Listener> {
    let others = ["key_file", "any_local_user", "sessions", "allowed_hosts"];
    for key in others.into_iter().chain(server_certificate::KEYS) {
        reject_key(&mut reader, key, "not allowed on a systemd_credentials listener: only systemd may connect");
    }
    let endpoint = systemd_credentials::check_socket(&mut reader, endpoint, at);
    let (mut credentials, derived_token) = systemd_credentials::read(&name, &mut reader, context);
    let required = reader.flag("required", true);
    credentials.require(required);
    reader.finish();
    let sessions: BTreeSet<_> = credentials.grants.iter().map(|grant| grant.session.clone()).collect();
    let serves = Serves::SystemdCredentials(Box::new(credentials));
    let guard = Guard::default();
    let sessions = sessions.into_iter().collect();
    Some(Listener {
        name,
        serves,
        endpoint: endpoint?,
        tls: None,
        guard,
        sessions,
        derived_token,
        threads: 1,
        callers: None,
        required,
    })
}

/// Reads the certificate of pages or of an API proxy on TCP; other listeners have no TLS.
fn tls(
    reader: &mut Reader<'_>,
    kind: Kind,
    endpoint: Option<&Endpoint>,
    certificates: &[Certificate],
) -> Option<ServerCertificate> {
    let why = match (kind, endpoint) {
        (Kind::ApiProxy, Some(Endpoint::Unix(_))) => "not allowed for a unix socket, which other machines cannot reach",
        (Kind::Ui | Kind::ApiProxy, _) => return server_certificate::read(reader, certificates),
        _ => "only allowed on a listener of kind = \"api_proxy\" or \"ui\"",
    };
    reject_keys(reader, &server_certificate::KEYS, why);
    None
}

#[cfg(feature = "ui")]
#[expect(clippy::unnecessary_wraps, reason = "a build without pages returns an error")]
fn ui(_: &mut Reader<'_>, tls: Option<ServerCertificate>) -> Option<Serves> {
    Some(Serves::Ui(tls))
}

#[cfg(not(feature = "ui"))]
fn ui(reader: &mut Reader<'_>, _: Option<ServerCertificate>) -> Option<Serves> {
    let at = reader.locate("kind").unwrap_or(reader.at);
    let advice = "leave the listener out, or use a build that has them";
    reader.error(at, "kind", "this build has no pages for browsers", advice);
    None
}

fn read_sessions(reader: &mut Reader<'_>, sessions: &Sessions) -> Vec<String> {
    let Some(texts) = reader.list("sessions") else { return sessions.plain() };
    let mut names = BTreeSet::new();
    for text in texts.into_iter().filter(|text| sessions.exists(reader, text)).collect::<Vec<_>>() {
        if sessions.is_wrapped(&text.value) {
            let message = format!("session {} has a wrap_ttl, and a wrapped token is for one reader", text.value);
            reader.scope.diagnostics.error(text.at, &text.key, message, "write it to a sink");
        }
        names.insert(text.value);
    }
    names.into_iter().collect()
}

/// Puts mode, owner and group on a unix socket, and returns true if others may write its folder. Elsewhere the keys are
/// errors.
pub(super) fn socket_owner(reader: &mut Reader<'_>, endpoint: Option<Endpoint>) -> (Option<Endpoint>, bool) {
    let endpoint = match endpoint {
        Some(Endpoint::Tcp(_)) => {
            for key in SOCKET_KEYS {
                reject_key(reader, key, "not allowed for a TCP address");
            }
            return (endpoint, false);
        }
        Some(Endpoint::Activated(_)) => {
            for key in SOCKET_KEYS {
                reject_key(reader, key, "not allowed for a socket that systemd opens: set it in the socket unit");
            }
            return (endpoint, false);
        }
        other => {
            let mode = reader.mode("mode", DEFAULT_SOCKET_MODE);
            let owner = reader.user("owner");
            let group = reader.group("group");
            match other {
                Some(Endpoint::Unix(socket)) => Some(Endpoint::Unix(UnixSocket { mode, owner, group, ..socket })),
                other => other,
            }
        }
    };
    (endpoint, reader.flag("shared_folder", false))
}

/// Keys of a unix socket's file.
const SOCKET_KEYS: [&str; 4] = ["mode", "owner", "group", "shared_folder"];

/// `unix:///PATH`, `tcp://ADDRESS:PORT` or `systemd:NAME`.
pub(super) fn endpoint(text: &str) -> Result<Endpoint, ValueError> {
    let forms = "write \"unix:///PATH\", \"tcp://127.0.0.1:PORT\" or \"systemd:NAME\"";
    if let Some(path) = text.strip_prefix("unix://") {
        let path = values::path(path)?;
        // sockaddr_un has room for 108 bytes with the end (unix(7)).
        if path.as_os_str().len() > 107 {
            return invalid("is too long for a socket", "a unix socket's path has at most 107 bytes");
        }
        return Ok(Endpoint::Unix(UnixSocket { path, mode: DEFAULT_SOCKET_MODE, owner: None, group: None }));
    }
    if let Some(address) = text.strip_prefix("tcp://") {
        return match address.trim_end_matches('/').parse::<SocketAddr>() {
            Ok(address) => Ok(Endpoint::Tcp(address)),
            Err(_) => {
                invalid("is not a TCP address", "write numbers: \"tcp://127.0.0.1:8300\" or \"tcp://[::1]:8300\"")
            }
        };
    }
    match text.strip_prefix("systemd:") {
        // FileDescriptorName= takes up to 255 characters without a colon (systemd.socket(5)).
        Some(name) if (1..=255).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic() && b != b':') => {
            Ok(Endpoint::Activated(name.to_owned()))
        }
        _ => invalid("is not an address to listen on", forms),
    }
}

#[cfg(test)]
mod tests;
