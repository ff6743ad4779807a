//! Address and local token of the running gateway, and calls of its API.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use http::{Method, StatusCode};
use keyward_config::{self as config, Environment, Purpose};
use keyward_gateway::client_setup::credentials::{self, ClientTokenFile, CredentialsError};
use keyward_gateway::client_setup::{ClientTokenKind, ServiceHost};
use keyward_http::client::{self, ProxyMode, ServerAddress, TlsOptions, is_loopback};
use keyward_http::server::Endpoint;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_code::ErrorCode;
use serde_json::Value;
use url::Url;

use crate::cli::agent_client::AgentError;
use crate::cli::socket_peer::check_socket_peer;
use crate::cli::{ConfigFiles, Exit, print_error, print_error_with_code};

/// Flags that lead to the running gateway: a configuration, or an address and a token file.
#[derive(Debug, Clone, Args)]
pub(super) struct GatewayAddress {
    #[command(flatten)]
    files: ConfigFiles,
    /// Address of the gateway instead of the configuration's: `http://127.0.0.1:PORT`
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address, requires = "local_token_file")]
    address: Option<Url>,
    /// File with the local token
    #[arg(long, value_name = "FILE")]
    local_token_file: Option<PathBuf>,
    /// Host name of the platform in configurations of Terraform and OpenTofu [default: that of the platform's address]
    #[arg(long, value_name = "HOST", value_parser = host)]
    host: Option<ServiceHost>,
}

/// A gateway's address, its local token's file, and its platform's host, where they are known.
pub(in crate::cli) struct GatewayTarget {
    pub(super) address: ServerAddress,
    pub(super) file: PathBuf,
    pub(super) host: Option<ServiceHost>,
    /// The token file for clients; `clients_call` is the address that they call with it.
    pub(super) token_file: ClientTokenFile,
    pub(super) clients_call: ServerAddress,
}

impl GatewayAddress {
    /// The gateway of these configuration files.
    pub(super) fn from_files(files: &ConfigFiles) -> Self {
        Self { files: files.clone(), address: None, local_token_file: None, host: None }
    }

    /// Determines the gateway's address and local token; prints the error if that fails.
    pub(super) fn find(&self) -> Result<GatewayTarget, Exit> {
        if let (Some(address), Some(file)) = (&self.address, &self.local_token_file) {
            let address = ServerAddress::Url(address.clone());
            let file = file.clone();
            let token_file = ClientTokenFile::Local(file.clone());
            let clients_call = address.clone();
            return Ok(GatewayTarget { address, file, host: self.host.clone(), token_file, clients_call });
        }
        let outcome = config::load(&self.files.config, &Environment::current(), Purpose::Check);
        let Some(config) = outcome.config else {
            for error in &outcome.errors {
                print_error(&error.to_string());
            }
            return Err(Exit::ConfigInvalid);
        };
        let Some(gateway) = config.gateway else {
            print_error_with_code(
                ErrorCode::NoGateway,
                "the configuration has no [gateway]; pass --address and --local-token-file of a running gateway",
            );
            return Err(Exit::Failed);
        };
        let tcp = |endpoint: &Endpoint| match endpoint {
            Endpoint::Tcp(address) => Url::parse(&format!("http://{address}/")).ok().map(ServerAddress::Url),
            Endpoint::Unix(_) | Endpoint::Activated(_) => None,
        };
        let unix = |endpoint: &Endpoint| match endpoint {
            Endpoint::Unix(socket) => Some(ServerAddress::Unix(socket.path.clone())),
            Endpoint::Tcp(_) | Endpoint::Activated(_) => None,
        };
        let all = &gateway.endpoints;
        let Some(address) = all.iter().find_map(tcp).or_else(|| all.iter().find_map(unix)) else {
            print_error_with_code(
                ErrorCode::NoGateway,
                "the gateway listens on a socket of systemd, whose address is unknown here; pass --address and --local-token-file",
            );
            return Err(Exit::Failed);
        };
        check_socket_peer(&address, &Environment::current())?;
        let file = self.local_token_file.clone().unwrap_or(gateway.local_token.file);
        let platform = gateway.terraform_config_file.filter(|file| file.token_kind == ClientTokenKind::PlatformToken);
        let (token_file, clients_call) = match platform {
            Some(drop_in) => (ClientTokenFile::Platform(drop_in.file), ServerAddress::Url(gateway.proxy.upstream)),
            None => (ClientTokenFile::Local(file.clone()), address.clone()),
        };
        Ok(GatewayTarget {
            address,
            file,
            host: Some(self.host.clone().unwrap_or(gateway.host)),
            token_file,
            clients_call,
        })
    }
}

/// Longer than a gateway holds a call while the platform refuses its token (`token_wait`, a minute by default).
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(75);

impl GatewayTarget {
    /// Reads the local token from its file, or the error.
    fn token(&self) -> Result<SecretString, CredentialsError> {
        credentials::read_local_token(&self.file)
    }

    /// Reads a document of the gateway, or of the platform through it; prints the error if that fails.
    pub(super) fn fetch_or_report(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Result<Value, Exit>> {
        let response = self.fetch(path, query)?;
        Ok(response.map_err(|error| {
            print_error(&error.line);
            error.exit
        }))
    }

    /// Reads a document of the gateway, or of the platform through it.
    pub(in crate::cli) fn fetch(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> anyhow::Result<Result<Value, AgentError>> {
        self.fetch_within(path, query, RESPONSE_TIMEOUT)
    }

    /// Does as [`GatewayTarget::fetch`], within `time`.
    pub(in crate::cli) fn fetch_within(
        &self,
        path: &str,
        query: &[(&str, &str)],
        time: Duration,
    ) -> anyhow::Result<Result<Value, AgentError>> {
        let token = self.token()?;
        let options = client::ClientOptions {
            address: self.address.clone(),
            tls: TlsOptions::default(),
            proxy: ProxyMode::Direct,
            connect_timeout: Duration::from_secs(2),
            response_timeout: time,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let response = runtime.block_on(async {
            let client = options.build()?;
            let request = client.request(Method::GET, path).query(query).bearer_auth(token.expose_secret());
            anyhow::Ok(client.send_within(request, time).await)
        })?;
        Ok(match response {
            Ok(response) if response.status.is_success() => {
                Ok(serde_json::from_slice(&response.body).with_context(|| {
                    format!("the response to {path} is not JSON; check that --address leads to a gateway")
                })?)
            }
            Ok(response) => {
                let document = serde_json::from_slice(&response.body).unwrap_or(Value::Null);
                let detail = document["errors"][0]["detail"].as_str().unwrap_or("no reason is given");
                let code = (response.status == StatusCode::UNAUTHORIZED).then_some(ErrorCode::LocalTokenRejected);
                let line = ErrorCode::tag(code, &format!("the gateway answers {}: {detail}", response.status));
                let exit = match response.status {
                    StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Exit::Denied,
                    StatusCode::NOT_FOUND => Exit::Missing,
                    StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Exit::TryLater,
                    _ => Exit::Failed,
                };
                Err(AgentError { exit, line })
            }
            Err(error) => {
                let line = ErrorCode::tag(Some(ErrorCode::GatewayNotRunning), &format!("no gateway answers: {error}"));
                Err(AgentError { exit: Exit::NotRunning, line })
            }
        })
    }
}

fn parse_address(text: &str) -> Result<Url, String> {
    let advice = || "write http://127.0.0.1:PORT".to_owned();
    let url = Url::parse(text).map_err(|_| advice())?;
    let fits = url.scheme() == "http" && url.path() == "/" && is_loopback(&url);
    if fits { Ok(url) } else { Err(advice()) }
}

fn host(text: &str) -> Result<ServiceHost, String> {
    ServiceHost::parse(text).map_err(|error| format!("it {error}"))
}
