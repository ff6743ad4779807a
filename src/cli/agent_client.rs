//! Client of the running agent's local API for commands: finds the agent, calls it and maps answers to exit codes.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http::{Method, StatusCode};
use keyward_app::doctor::AgentContact;
use keyward_config::{self as config, Environment, Listener, LoadOutcome, Purpose, Serves};
use keyward_http::client::{self, Client, ProxyMode, ServerAddress, TlsOptions, TransportError};
use keyward_http::guard::AccessMode;
use keyward_http::server::Endpoint;
use keyward_machine::os;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_code::ErrorCode;
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use serde_json::Value;
use url::Url;

use super::socket_peer::{ADDRESSES, check_socket_peer, is_remote};
use super::{ConfigFiles, Exit, print_error, print_error_with_code, print_warning};

/// Flags that lead to the running agent.
#[derive(Debug, Clone, Args)]
pub(super) struct AgentAddress {
    #[command(flatten)]
    files: ConfigFiles,
    /// Address of the agent instead of the configuration's: the path of a socket or `http://127.0.0.1:PORT` [env:
    /// `KEYWARD_ADDR`]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    address: Option<ServerAddress>,
}

#[cfg(feature = "gateway")]
impl AgentAddress {
    /// Returns the configuration files if they have a gateway but no such listener, and no address is given.
    pub(super) fn without_listener(&self, required: RequiredListener) -> Option<&ConfigFiles> {
        let environment = Environment::current();
        if self.address.is_some() || environment.variables.get(ADDRESS_VARIABLE).is_some_and(|text| !text.is_empty()) {
            return None;
        }
        let config = config::load(&self.files.config, &environment, Purpose::Check).config?;
        let is_standalone = config.gateway.is_some() && best_listener(&config.listeners, required).is_none();
        is_standalone.then_some(&self.files)
    }
}

/// Kind of listener that a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequiredListener {
    LocalApi,
    Health,
    Identity,
}

/// Reason why a request has no usable response.
pub(super) struct AgentError {
    /// Exit code of the command.
    pub(super) exit: Exit,
    /// Error with its code.
    pub(super) line: String,
}

/// Client of the running agent.
pub(super) struct AgentClient {
    client: Client,
    key: Option<SecretString>,
    /// Path of the agent's unix socket, if it has one.
    socket: Option<PathBuf>,
    /// Error of a configuration that this user may not read, and the address that is used without it.
    unread_config: Option<String>,
    runtime: tokio::runtime::Runtime,
}

impl AgentClient {
    pub(super) fn connect(at: &AgentAddress, required: RequiredListener) -> Result<Self, Exit> {
        let environment = Environment::current();
        let outcome = config::load(&at.files.config, &environment, Purpose::Check);
        let (address, listener, unread_config) = match at.configured(&environment)? {
            Some(address) => {
                let is_remote = is_remote(&address);
                if is_remote && required != RequiredListener::Health {
                    print_error(&format!("the address is not on this machine: {ADDRESSES}"));
                    return Err(Exit::Failed);
                }
                (address.clone(), find_listener_at(&outcome.listeners, &address).filter(|_| !is_remote), None)
            }
            None => find(&outcome, required)?,
        };
        check_socket_peer(&address, &environment)?;
        let key = match listener {
            Some(listener) => key(listener, &outcome)?,
            None => None,
        };
        let socket = match &address {
            ServerAddress::Unix(path) => Some(path.clone()),
            ServerAddress::Url(_) => None,
        };
        // A probe of another machine sends no key, and its response holds no secret.
        let allow_http = is_remote(&address) && key.is_none();
        let options = client::ClientOptions {
            address,
            tls: TlsOptions { allow_http, ..TlsOptions::default() },
            proxy: ProxyMode::Direct,
            connect_timeout: Duration::from_secs(2),
            response_timeout: REQUEST_TIMEOUT,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let built = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
            let client = runtime.block_on(async { options.build() })?;
            Ok(Self { client, key, socket, unread_config, runtime })
        });
        built.map_err(|error| {
            print_error(&format!("{error:#}"));
            Exit::Failed
        })
    }

    /// Sends a request and returns status and body, within `time`.
    pub(super) fn get(
        &self,
        path: &str,
        query: &[(&str, &str)],
        time: Duration,
    ) -> Result<(StatusCode, Value), TransportError> {
        self.call(Method::GET, path, query, time)
    }

    /// Sends a POST request, as [`AgentClient::get`] sends a GET request.
    pub(super) fn post(
        &self,
        path: &str,
        query: &[(&str, &str)],
        time: Duration,
    ) -> Result<(StatusCode, Value), TransportError> {
        self.call(Method::POST, path, query, time)
    }

    fn call(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        time: Duration,
    ) -> Result<(StatusCode, Value), TransportError> {
        let mut request = self.client.request(method, path).query(query).header("x-vault-request", "true");
        if let Some(key) = &self.key {
            request = request.header("x-vault-token", key.expose_secret());
        }
        let response = self.runtime.block_on(self.client.send_within(request, time))?;
        Ok((response.status, serde_json::from_slice(&response.body).unwrap_or(Value::Null)))
    }

    /// Returns the response if it is a success; prints an error otherwise.
    pub(super) fn expect(&self, response: Result<(StatusCode, Value), TransportError>) -> Result<Value, Exit> {
        self.explain(response).map_err(|error| {
            print_error(&error.line);
            error.exit
        })
    }

    /// Returns the body of a successful answer; else why there is none.
    pub(super) fn explain(&self, response: Result<(StatusCode, Value), TransportError>) -> Result<Value, AgentError> {
        match response {
            Ok((status, body)) if status.is_success() => Ok(body),
            Ok((status, body)) => {
                let errors = body["errors"].as_array().cloned().unwrap_or_else(|| vec![body["message"].clone()]);
                let errors: Vec<&str> = errors.iter().filter_map(Value::as_str).collect();
                let (exit, code) = match status {
                    StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => (Exit::Denied, Some(ErrorCode::AgentRefused)),
                    StatusCode::SERVICE_UNAVAILABLE => (Exit::NotReady, Some(ErrorCode::AgentNotReady)),
                    StatusCode::TOO_MANY_REQUESTS => (Exit::TryLater, None),
                    _ => (Exit::Failed, None),
                };
                let line = ErrorCode::tag(code, &format!("the agent answers {status}: {}", errors.join("; ")));
                Err(AgentError { exit, line })
            }
            Err(error) => {
                let unread = self.unread_config.as_ref().map(|unread| format!("; {unread}")).unwrap_or_default();
                if let Some(refusal) = self.refusal() {
                    let line = ErrorCode::tag(Some(ErrorCode::AgentSocketDenied), &format!("{refusal}{unread}"));
                    return Err(AgentError { exit: Exit::Denied, line });
                }
                let line =
                    ErrorCode::tag(Some(ErrorCode::AgentNotRunning), &format!("no agent answers: {error}{unread}"));
                Err(AgentError { exit: Exit::NotRunning, line })
            }
        }
    }

    /// Returns the reason why this user may not connect to the agent's socket, if there is one.
    pub(super) fn refusal(&self) -> Option<String> {
        self.socket.as_deref().and_then(describe_permission_denied)
    }
}

impl AgentAddress {
    /// The address that the command line gives, else the variable.
    fn configured(&self, environment: &Environment) -> Result<Option<ServerAddress>, Exit> {
        let variable = environment.variables.get(ADDRESS_VARIABLE).filter(|text| !text.is_empty());
        match (&self.address, variable) {
            (Some(address), _) => Ok(Some(address.clone())),
            (None, Some(text)) => parse_address(text).map(Some).map_err(|why| {
                print_error(&format!("{ADDRESS_VARIABLE} is {text:?}: {why}"));
                Exit::Failed
            }),
            (None, None) => Ok(None),
        }
    }
}

/// Finds the listener to call. The file may contain errors that the running agent has not loaded. The last value is for the
/// error if nothing answers: a member of the socket's group need not read the configuration.
fn find(
    outcome: &LoadOutcome,
    required: RequiredListener,
) -> Result<(ServerAddress, Option<&Listener>, Option<String>), Exit> {
    let target = best_listener(&outcome.listeners, required).map(|(listener, address)| (address, Some(listener), None));
    if outcome.config.is_some() {
        return target.ok_or_else(|| {
            let (part, section) = match required {
                RequiredListener::Identity => ("identity listener", "[listener.tools] with kind = \"identity\""),
                _ => ("local API", "[listener.api] with address = \"unix:///run/keyward/api.sock\""),
            };
            let line = format!("the configuration has no {part} to ask; add {section}, or pass --address");
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

/// True if this user may not read a file or folder.
fn is_denied(path: &Path) -> bool {
    rustix::fs::accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS) == Err(Errno::ACCESS)
}

/// Describes why the system refuses this user the socket, and which group may use it; `None` if it does not refuse.
fn describe_permission_denied(socket: &Path) -> Option<String> {
    let refused = UnixStream::connect(socket).err()?;
    if refused.kind() != std::io::ErrorKind::PermissionDenied {
        return None;
    }
    // If the socket itself cannot be seen, a folder above it refuses.
    let (path, metadata) = socket.ancestors().find_map(|path| Some((path, path.metadata().ok()?)))?;
    let group = os::group_name(metadata.gid()).unwrap_or_else(|| metadata.gid().to_string());
    let path = path.display();
    let socket = socket.display();
    let mode = metadata.mode() & 0o7777;
    Some(format!(
        "permission denied on the agent's socket {socket}: {path} has mode {mode:04o} and group {group}; \
         add this user to the group {group} and log in anew, or run the command as the agent's user"
    ))
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

/// Variable with the agent's address, which overrides the configuration.
const ADDRESS_VARIABLE: &str = "KEYWARD_ADDR";

/// Socket of the packaged configurations; used if the configuration cannot be read.
const DEFAULT_SOCKET: &str = "/run/keyward/api.sock";

/// Time limit of requests that do not wait.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

fn parse_address(text: &str) -> Result<ServerAddress, String> {
    let path = text.strip_prefix("unix://").unwrap_or(text);
    if path.starts_with('/') {
        return Ok(ServerAddress::Unix(PathBuf::from(path)));
    }
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "http" && url.path() == "/");
    url.map(ServerAddress::Url).ok_or_else(|| ADDRESSES.to_owned())
}

/// The key that a listener asks for, if it does.
fn key(listener: &Listener, outcome: &LoadOutcome) -> Result<Option<SecretString>, Exit> {
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

/// Placeholder in a configuration for a secret that could not be read.
const SECRET_PLACEHOLDER: &str = "\0";

/// Returns the best listener and its address: unix sockets first, a local API before a health listener.
fn best_listener(listeners: &[Listener], required: RequiredListener) -> Option<(&Listener, ServerAddress)> {
    let mut fit: Vec<_> = listeners
        .iter()
        .filter(|listener| match listener.serves {
            Serves::LocalApi => required != RequiredListener::Identity,
            Serves::Health => required == RequiredListener::Health,
            Serves::Identity(_) => required == RequiredListener::Identity,
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
fn find_listener_at<'a>(listeners: &'a [Listener], at: &ServerAddress) -> Option<&'a Listener> {
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
