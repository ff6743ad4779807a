//! Client of the running agent's local API for commands: finds the agent, calls it and maps answers to exit codes.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http::{Method, StatusCode};
use keyward_config::{self as config, Environment, Purpose};
use keyward_http::client::{self, Client, ProxyMode, ServerAddress, TlsOptions, TransportError};
use keyward_machine::os;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_code::ErrorCode;
use serde_json::Value;
use url::Url;

#[cfg(feature = "gateway")]
use super::agent_listener::best_listener;
use super::agent_listener::{RequiredListener, find, find_listener_at, key};
use super::socket_peer::{ADDRESSES, check_socket_peer, is_remote};
use super::{ConfigFiles, Exit, print_error};

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
    pub(super) fn without_listener(&self, required: RequiredListener<'_>) -> Option<&ConfigFiles> {
        let environment = Environment::current();
        if self.address.is_some() || environment.variables.get(ADDRESS_VARIABLE).is_some_and(|text| !text.is_empty()) {
            return None;
        }
        let config = config::load(&self.files.config, &environment, Purpose::Check).config?;
        let is_standalone = config.gateway.is_some() && best_listener(&config.listeners, required).is_none();
        is_standalone.then_some(&self.files)
    }
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
    pub(super) fn connect(at: &AgentAddress, required: RequiredListener<'_>) -> Result<Self, Exit> {
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

/// Variable with the agent's address, which overrides the configuration.
const ADDRESS_VARIABLE: &str = "KEYWARD_ADDR";

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
