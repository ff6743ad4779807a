//! Client of Vault, OpenBao and Consul-compatible servers: logins, tokens, secrets and leases.

mod consul_login;
mod parse_response;
mod error;
mod path_class;
mod login;
mod secret;
mod kv_mounts;
mod events;
mod capabilities;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

use std::time::Duration;

use http::{HeaderName, Method};
use keyward_http::client::{self, Client, ClientResponse, TransportError};
use keyward_http::reverse_proxy::{UpstreamOutcome, UpstreamRecorder};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::metrics::Metrics;
use reqwest::RequestBuilder;
use serde::{Serialize, Serializer};
use tokio::time::Instant;

use crate::token;
use crate::token::{ClientToken, Lease};

pub use error::{CallError, TokenVerdict};
pub(crate) use error::{is_bare_denial, is_outage};
pub(crate) use events::SubscriptionRefusal;
pub use login::{DerivedTokenKind, DerivedTokenOptions, SignedCallerIdentity};
pub(crate) use path_class::PathClass;
pub(crate) use secret::SecretLease;
pub use secret::{SecretFields, SecretOp, SecretRequest, SecretResponse};

/// Options of a client of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerClientOptions {
    /// Name of the server in the configuration.
    pub name: String,
    /// Product of the server, which decides its API.
    pub kind: ServerKind,
    /// Address and TLS options of the server.
    pub client: client::ClientOptions,
    /// Time limit of a login, during which the server may query Azure about the machine.
    pub login_timeout: Duration,
}

/// Product of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerKind {
    /// HashiCorp Vault.
    Vault,
    /// OpenBao.
    OpenBao,
    /// keyward's ACL server, by its Vault-compatible API.
    Keyward,
    /// Consul or keyward's ACL server, by the Consul API (`/v1/acl/login`).
    Consul,
}

impl ServerKind {
    /// Returns true for servers with Consul's API.
    pub const fn is_consul_compatible(self) -> bool {
        matches!(self, Self::Keyward | Self::Consul)
    }
}

/// A client of one server. Clones share its connections.
#[derive(Debug, Clone)]
pub struct ServerClient {
    name: String,
    kind: ServerKind,
    client: Client,
    recorder: Option<UpstreamRecorder>,
    login_timeout: Duration,
    kv_mounts: kv_mounts::KvMounts,
}

/// JSON body of a login by a signed token. Fields that are `None` are omitted.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct LoginRequest<'a> {
    /// Role on the server.
    pub role: &'a str,
    /// Signed identity token.
    #[serde(serialize_with = "expose_secret")]
    pub jwt: &'a SecretString,
    /// Azure subscription of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_id: Option<&'a str>,
    /// Azure resource group of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_group_name: Option<&'a str>,
    /// Name of the virtual machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_name: Option<&'a str>,
    /// Name of the scale set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmss_name: Option<&'a str>,
    /// Resource id of another kind of Azure resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<&'a str>,
}

/// Response to a login.
#[derive(Debug)]
pub struct LoginResponse {
    /// Token, or the wrapping token of a wrapped login.
    pub secret: ClientToken,
    /// Accessor of the token.
    pub(crate) accessor: Option<String>,
    /// Lease of the token.
    pub lease: Lease,
    /// Kind of the token.
    pub(crate) kind: token::TokenKind,
    /// Names of its policies, 256 at most.
    pub policies: Vec<String>,
    /// True if the response says that the token has no parent.
    pub(crate) is_orphan: bool,
}

/// Response to a token's self look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupResponse {
    /// Rest of the lease; a `ttl` of zero means no expiry.
    pub lease: Lease,
    /// Accessor of the token.
    pub accessor: Option<String>,
    /// True for a batch token.
    pub batch: bool,
    /// Names of its policies.
    pub(crate) policies: Vec<String>,
    /// Number of uses that are left; `None` for no limit.
    pub(crate) uses_left: Option<u64>,
}

/// Response to a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewResponse {
    /// Lease, and whether it can be renewed again.
    pub lease: Lease,
    /// Names of its policies.
    pub(crate) policies: Vec<String>,
}

impl ServerClient {
    /// Builds a client without sending anything.
    pub fn build(options: &ServerClientOptions) -> Result<Self, client::BuildError> {
        let client = options.client.build()?;
        let name = options.name.clone();
        let kv_mounts = kv_mounts::KvMounts::default();
        Ok(Self { name, kind: options.kind, client, recorder: None, login_timeout: options.login_timeout, kv_mounts })
    }

    /// Counts the requests to the server, by its name in the configuration.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.recorder = Some(UpstreamRecorder::new(metrics, &self.name, &PathClass::NAMES));
        self
    }

    /// Returns a client of the same server for another session, which learns the server's mounts by its own rights.
    #[must_use]
    pub fn for_another_session(&self) -> Self {
        Self { kv_mounts: kv_mounts::KvMounts::default(), ..self.clone() }
    }

    /// Returns the server's name in the configuration.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the server's product.
    pub const fn kind(&self) -> ServerKind {
        self.kind
    }

    /// Returns the server's origin, or the path of its socket, for messages.
    pub(crate) fn address(&self) -> &str {
        self.client.server()
    }

    /// Returns the time limit of a login.
    pub(crate) const fn login_timeout(&self) -> Duration {
        self.login_timeout
    }

    /// Returns the time limit of other calls.
    pub(crate) const fn call_timeout(&self) -> Duration {
        self.client.timeout()
    }

    /// Logs in by a signed token (`POST auth/MOUNT/login`), within the time limit of logins.
    pub async fn login(
        &self,
        mount: &str,
        namespace: Option<&str>,
        wrap_ttl: Option<Duration>,
        body: &LoginRequest<'_>,
    ) -> Result<LoginResponse, CallError> {
        self.send_login(mount, namespace, wrap_ttl, body, body.jwt).await
    }

    /// Looks up the token that authenticates the request (`GET auth/token/lookup-self`, for Consul `GET acl/token/self`).
    pub async fn lookup_self(&self, token: &ClientToken, namespace: Option<&str>) -> Result<LookupResponse, CallError> {
        if self.kind == ServerKind::Consul {
            return self.consul_lookup(token, namespace).await;
        }
        let request = self.with_token(Method::GET, "v1/auth/token/lookup-self", token, namespace);
        let response = self.send(request).await?;
        parse_response::lookup(&parse_response::parse_json(&response, token.secret())?)
    }

    /// Renews a token (`POST auth/token/renew-self`) for the server's default increment.
    pub async fn renew_self(&self, token: &ClientToken, namespace: Option<&str>) -> Result<RenewResponse, CallError> {
        let request = self.with_token(Method::POST, "v1/auth/token/renew-self", token, namespace);
        let response = self.send(request.json(&serde_json::Map::new())).await?;
        parse_response::renewal(&parse_response::parse_json(&response, token.secret())?)
    }

    /// Revokes a token (`POST auth/token/revoke-self`, for Consul `POST acl/logout`).
    pub async fn revoke_self(&self, token: &ClientToken, namespace: Option<&str>) -> Result<(), CallError> {
        if self.kind == ServerKind::Consul {
            return self.consul_logout(token, namespace).await;
        }
        let request = self.with_token(Method::POST, "v1/auth/token/revoke-self", token, namespace);
        let response = self.send(request.json(&serde_json::Map::new())).await?;
        parse_response::check_status(&response, token.secret())
    }

    /// Sends a request and reads its whole response, of any status, within the server's time limit.
    async fn send(&self, request: RequestBuilder) -> Result<ClientResponse, TransportError> {
        self.send_within(request, self.client.timeout()).await
    }

    /// Sends a request like [`ServerClient::send`] within `time`.
    async fn send_within(&self, request: RequestBuilder, time: Duration) -> Result<ClientResponse, TransportError> {
        let Some(recorder) = &self.recorder else { return Box::pin(self.client.send_within(request, time)).await };
        let (http, request) = request.build_split();
        let request = request.map_err(|error| self.client.failed(error))?;
        let path = request.url().path();
        let class = PathClass::from_path(path.split_once("/v1/").map_or(path, |(_, below)| below));
        let started = Instant::now();
        let result = Box::pin(self.client.send_within(RequestBuilder::from_parts(http, request), time)).await;
        recorder.record(class.index(), UpstreamOutcome::from_call(&result), started.elapsed());
        result
    }

    fn request(&self, method: Method, path: &str, namespace: Option<&str>) -> RequestBuilder {
        // A listener of Vault Agent or keyward in between may require this header (`require_request_header`).
        let request = self.client.request(method, path).header("x-vault-request", "true");
        match namespace {
            Some(namespace) => request.header("x-vault-namespace", namespace),
            None => request,
        }
    }

    fn with_token(&self, method: Method, path: &str, token: &ClientToken, namespace: Option<&str>) -> RequestBuilder {
        self.request(method, path, namespace).header(TOKEN_HEADER, token.header_value())
    }
}

const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-vault-token");

fn expose_secret<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose_secret())
}
