//! A `terraform` secrets engine: tokens of HCP Terraform or Terraform Enterprise, leased or not, like the real engine's
//! (`terraform/creds/ROLE`, `terraform/rotate-role/ROLE`).
//!
//! With a platform it creates and deletes real tokens there; without one it returns random strings.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use keyward_http::client::{self, BuildError};
use keyward_machine::secret_string::SecretString;
use parking_lot::Mutex;
use serde_json::{Value, json};
use url::Url;

use super::leases::LeaseTerms;
use super::tokens::random_text;

/// Settings of the engine.
#[derive(Debug, Clone, Default)]
pub struct TerraformEngineOptions {
    /// Roles by name.
    pub roles: BTreeMap<String, Credential>,
    /// Platform that issues the tokens.
    pub platform: Option<Platform>,
}

/// Kind of credential of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// A new token for each read, deleted with its lease.
    Team(LeaseTerms),
    /// The team's single token: the same for all readers, until the role is rotated.
    TeamLegacy,
}

/// Access to the platform's token API.
#[derive(Debug, Clone)]
pub struct Platform {
    /// Base URL.
    pub address: Url,
    /// Token that may manage the team's tokens.
    pub token: SecretString,
    /// Team id.
    pub team: String,
}

/// The engine.
#[derive(Debug)]
pub(super) struct Engine {
    roles: BTreeMap<String, Credential>,
    platform: Option<(Platform, client::Client)>,
    /// Single tokens, by role.
    single_tokens: Mutex<BTreeMap<String, CreatedToken>>,
}

/// A token: its id at the platform, and its secret.
#[derive(Debug, Clone)]
pub(super) struct CreatedToken {
    pub(super) id: String,
    pub(super) token: String,
}

impl Engine {
    pub(super) fn new(options: &TerraformEngineOptions) -> Result<Self, BuildError> {
        let platform = match &options.platform {
            None => None,
            Some(platform) => {
                let options = client::ClientOptions {
                    address: client::ServerAddress::Url(platform.address.clone()),
                    tls: client::TlsOptions::default(),
                    proxy: client::ProxyMode::Direct,
                    connect_timeout: Duration::from_secs(5),
                    response_timeout: Duration::from_secs(10),
                };
                Some((platform.clone(), options.build()?))
            }
        };
        Ok(Self { roles: options.roles.clone(), platform, single_tokens: Mutex::default() })
    }

    pub(super) fn role(&self, name: &str) -> Option<&Credential> {
        self.roles.get(name)
    }

    /// Creates a new token of the team and keeps the others.
    pub(super) async fn create(&self, description: &str) -> Result<CreatedToken, String> {
        let body = json!({ "data": { "type": "authentication-tokens", "attributes": { "description": description } } });
        self.create_token("authentication-tokens", &body).await
    }

    /// Returns the team's single token; creates it if needed.
    pub(super) async fn single_token(&self, role: &str) -> Result<CreatedToken, String> {
        let token = self.single_tokens.lock().get(role).cloned();
        match token {
            Some(token) => Ok(token),
            None => self.rotate(role).await,
        }
    }

    /// Replaces the team's single token.
    pub(super) async fn rotate(&self, role: &str) -> Result<CreatedToken, String> {
        let body = json!({ "data": { "type": "authentication-token", "attributes": {} } });
        let token = self.create_token("authentication-token", &body).await?;
        self.single_tokens.lock().insert(role.to_owned(), token.clone());
        Ok(token)
    }

    async fn create_token(&self, path: &str, body: &Value) -> Result<CreatedToken, String> {
        let Some((platform, client)) = &self.platform else {
            return Ok(CreatedToken {
                id: format!("at-{}", random_text()),
                token: format!("emulated.atlasv1.{}", random_text()),
            });
        };
        let request = client.request(Method::POST, &format!("api/v2/teams/{}/{path}", platform.team));
        let request = request.bearer_auth(platform.token.expose_secret()).header("content-type", MEDIA_TYPE);
        let response = client.send(request.body(body.to_string())).await.map_err(|error| error.to_string())?;
        let document: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let text = |at: &str| document.pointer(at).and_then(Value::as_str).map(str::to_owned);
        match (text("/data/id"), text("/data/attributes/token")) {
            (Some(id), Some(token)) => Ok(CreatedToken { id, token }),
            _ => Err(format!("the platform answered HTTP {}", response.status.as_u16())),
        }
    }

    /// Deletes a token; a missing one is not an error.
    pub(super) async fn end(&self, id: &str) {
        let Some((platform, client)) = &self.platform else { return };
        let request = client.request(Method::DELETE, &format!("api/v2/authentication-tokens/{id}"));
        if let Err(error) = client.send(request.bearer_auth(platform.token.expose_secret())).await {
            tracing::warn!(
                event = "dev.secrets.cleanup_failed",
                error = error.to_string(),
                "a token was left at the platform"
            );
        }
    }
}

const MEDIA_TYPE: &str = "application/vnd.api+json";
