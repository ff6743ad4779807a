//! The secrets server as the agent calls it: login, look-up, renewal, revocation; reads of secrets and their leases.

mod consul_login;
mod parse_response;
mod error;
mod login;
mod secret;

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use reqwest::RequestBuilder;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;

use crate::agent::token;
use crate::agent::token::{ClientToken, Lease};
use crate::http::client;

pub(in crate::agent) use error::is_bare_denial;
pub use error::{CallError, Verdict, is_outage};
pub use login::ChildOptions;
pub(in crate::agent) use secret::wipe;
pub use secret::{How, SecretAnswer, SecretFields, SecretLease, SecretRequest};

/// What a client of one secrets server is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The name that the configuration gives the server.
    pub name: String,
    /// Which server it is, where the wire differs.
    pub kind: Kind,
    /// Where it is and how to reach it.
    pub client: client::Options,
    /// Time to wait for a login's answer: a server that checks the machine asks the cloud meanwhile.
    pub login_timeout: Duration,
}

/// Which secrets server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// HashiCorp Vault.
    Vault,
    /// OpenBao.
    OpenBao,
    /// keyward's own access-control service, by its doors in Vault's wire.
    Keyward,
    /// An access-control service, keyward's or another, by its own wire: `/v1/acl/login`.
    Consul,
}

/// A client of one secrets server. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Upstream {
    name: String,
    kind: Kind,
    client: client::Client,
    login_timeout: Duration,
}

/// What a login sends. All but the first two are left out where they are `None`.
#[derive(Debug, Clone, Copy)]
pub struct LoginBody<'a> {
    /// The role to log in to.
    pub role: &'a str,
    /// The proof of identity.
    pub jwt: &'a SecretString,
    /// Subscription of the machine.
    pub subscription_id: Option<&'a str>,
    /// Its resource group.
    pub resource_group_name: Option<&'a str>,
    /// Its name.
    pub vm_name: Option<&'a str>,
    /// Name of its scale set.
    pub vmss_name: Option<&'a str>,
    /// Full id of another kind of resource.
    pub resource_id: Option<&'a str>,
}

/// What a login gave.
#[derive(Debug)]
pub struct LoginAnswer {
    /// The token; for a wrapped login, the one that unwraps it.
    pub secret: ClientToken,
    /// The server's name for the token.
    pub accessor: Option<String>,
    /// How long it lives from the answer on.
    pub lease: Lease,
    /// What kind it is.
    pub kind: token::Kind,
    /// Names of its policies, cut short if there are very many.
    pub policies: Vec<String>,
}

/// What a look-up of our own token gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookedUp {
    /// What is left of its life; `ttl` zero means that it never ends.
    pub lease: Lease,
    /// The server's name for the token.
    pub accessor: Option<String>,
    /// Whether it is a batch token.
    pub batch: bool,
    /// Names of its policies.
    pub policies: Vec<String>,
}

/// What a renewal gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    /// How long the token lives from the answer on, and whether it can be renewed again.
    pub lease: Lease,
    /// Names of its policies.
    pub policies: Vec<String>,
}

impl Upstream {
    /// Makes a client. Nothing is sent yet.
    ///
    /// # Errors
    /// The HTTP client's options name a file that cannot be used, or do not go together.
    pub fn build(options: &Options) -> Result<Self, client::BuildError> {
        let client = options.client.build()?;
        let name = options.name.clone();
        Ok(Self { name, kind: options.kind, client, login_timeout: options.login_timeout })
    }

    /// The name that the configuration gives the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which server it is.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The server's address in words: its origin, or its socket's path.
    pub fn address(&self) -> &str {
        self.client.server()
    }

    /// `POST auth/MOUNT/login`, waiting for the answer as long as logins may take.
    ///
    /// # Errors
    /// There was no answer, the server refused, or it answered with something else than a usable token.
    pub async fn login(
        &self,
        mount: &str,
        namespace: Option<&str>,
        wrap_ttl: Option<Duration>,
        body: &LoginBody<'_>,
    ) -> Result<LoginAnswer, CallError> {
        self.log_in(mount, namespace, wrap_ttl, &WireLogin::of(body), body.jwt).await
    }

    /// `GET auth/token/lookup-self`; on an access-control service `GET acl/token/self`.
    ///
    /// # Errors
    /// There was no answer, the server refused ([`CallError::verdict`] says what that means), or it made no sense.
    pub async fn lookup_self(&self, token: &ClientToken, namespace: Option<&str>) -> Result<LookedUp, CallError> {
        if self.kind == Kind::Consul {
            return self.acl_lookup(token, namespace).await;
        }
        let request = self.with_token(Method::GET, "v1/auth/token/lookup-self", token, namespace);
        let answer = self.client.send(request).await?;
        parse_response::lookup(&parse_response::ok(&answer, token.secret())?)
    }

    /// `POST auth/token/renew-self`, for as long as the server gives.
    ///
    /// # Errors
    /// There was no answer, the server refused ([`CallError::verdict`] says what that means), or it made no sense.
    pub async fn renew_self(&self, token: &ClientToken, namespace: Option<&str>) -> Result<Renewed, CallError> {
        let request = self.with_token(Method::POST, "v1/auth/token/renew-self", token, namespace);
        let answer = self.client.send(request.json(&serde_json::Map::new())).await?;
        parse_response::renewal(&parse_response::ok(&answer, token.secret())?)
    }

    /// `POST auth/token/revoke-self`; on an access-control service `POST acl/logout`.
    ///
    /// # Errors
    /// There was no answer, or the server refused.
    pub async fn revoke_self(&self, token: &ClientToken, namespace: Option<&str>) -> Result<(), CallError> {
        if self.kind == Kind::Consul {
            return self.acl_logout(token, namespace).await;
        }
        let request = self.with_token(Method::POST, "v1/auth/token/revoke-self", token, namespace);
        let answer = self.client.send(request.json(&serde_json::Map::new())).await?;
        parse_response::accepted(&answer, token.secret())
    }

    fn request(&self, method: Method, path: &str, namespace: Option<&str>) -> RequestBuilder {
        let request = self.client.request(method, path).header("x-vault-request", "true");
        match namespace {
            Some(namespace) => request.header("x-vault-namespace", namespace),
            None => request,
        }
    }

    fn with_token(&self, method: Method, path: &str, token: &ClientToken, namespace: Option<&str>) -> RequestBuilder {
        let request = self.request(method, path, namespace);
        // A client token is visible ASCII, which every header takes.
        match HeaderValue::from_str(token.secret().expose_secret()) {
            Ok(mut value) => {
                value.set_sensitive(true);
                request.header(TOKEN_HEADER, value)
            }
            Err(_) => request,
        }
    }
}

const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-vault-token");

/// A login as it goes over the wire.
#[derive(Serialize)]
struct WireLogin<'a> {
    role: &'a str,
    jwt: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_group_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vm_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vmss_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_id: Option<&'a str>,
}

impl<'a> WireLogin<'a> {
    fn of(body: &LoginBody<'a>) -> Self {
        Self {
            role: body.role,
            jwt: body.jwt.expose_secret(),
            subscription_id: body.subscription_id,
            resource_group_name: body.resource_group_name,
            vm_name: body.vm_name,
            vmss_name: body.vmss_name,
            resource_id: body.resource_id,
        }
    }
}
