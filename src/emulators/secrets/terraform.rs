//! A `terraform` secrets engine: credentials of the provisioning platform, leased or not, as the real engine gives them
//! (`terraform/creds/ROLE`, `terraform/rotate-role/ROLE`).
//!
//! With a platform it makes and ends real tokens there; without one it gives texts that nobody checks.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use url::Url;

use super::leases::LeaseTerms;
use super::tokens::random_text;
use crate::http::client::{self, BuildError};

/// What the engine gives.
#[derive(Debug, Clone, Default)]
pub struct TerraformEngineOptions {
    /// Its roles, by name.
    pub roles: BTreeMap<String, Credential>,
    /// Where tokens are made.
    pub platform: Option<Platform>,
}

/// What a role gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// A token of its own for each read, ended with its lease.
    Team(LeaseTerms),
    /// The one token of the team: the same for all who read, until the role is rotated.
    TeamLegacy,
}

/// Where tokens are made.
#[derive(Debug, Clone)]
pub struct Platform {
    /// Its address.
    pub address: Url,
    /// The token that may make tokens of the team.
    pub token: SecretString,
    /// The team's id.
    pub team: String,
}

/// The engine.
#[derive(Debug)]
pub(super) struct Engine {
    roles: BTreeMap<String, Credential>,
    platform: Option<(Platform, client::Client)>,
    /// The tokens of roles that have one, by role.
    standing: Mutex<BTreeMap<String, Made>>,
}

/// A token that was made: its id at the platform, and its text.
#[derive(Debug, Clone)]
pub(super) struct Made {
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
        Ok(Self { roles: options.roles.clone(), platform, standing: Mutex::default() })
    }

    pub(super) fn role(&self, name: &str) -> Option<&Credential> {
        self.roles.get(name)
    }

    /// A new token of the team, beside all others.
    pub(super) async fn make(&self, description: &str) -> Result<Made, String> {
        let body = json!({ "data": { "type": "authentication-tokens", "attributes": { "description": description } } });
        self.ask("authentication-tokens", &body).await
    }

    /// The team's one token. A new one ends the one before.
    pub(super) async fn standing(&self, role: &str) -> Result<Made, String> {
        let known = self.standing.lock().unwrap_or_else(PoisonError::into_inner).get(role).cloned();
        match known {
            Some(made) => Ok(made),
            None => self.rotate(role).await,
        }
    }

    /// Makes the team's one token anew.
    pub(super) async fn rotate(&self, role: &str) -> Result<Made, String> {
        let body = json!({ "data": { "type": "authentication-token", "attributes": {} } });
        let made = self.ask("authentication-token", &body).await?;
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).insert(role.to_owned(), made.clone());
        Ok(made)
    }

    async fn ask(&self, what: &str, body: &Value) -> Result<Made, String> {
        let Some((platform, client)) = &self.platform else {
            return Ok(Made {
                id: format!("at-{}", random_text()),
                token: format!("emulated.atlasv1.{}", random_text()),
            });
        };
        let request = client.request(Method::POST, &format!("api/v2/teams/{}/{what}", platform.team));
        let request = request.bearer_auth(platform.token.expose_secret()).header("content-type", MEDIA_TYPE);
        let answer = client.send(request.body(body.to_string())).await.map_err(|error| error.to_string())?;
        let made: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let text = |at: &str| made.pointer(at).and_then(Value::as_str).map(str::to_owned);
        match (text("/data/id"), text("/data/attributes/token")) {
            (Some(id), Some(token)) => Ok(Made { id, token }),
            _ => Err(format!("the platform answered HTTP {}", answer.status.as_u16())),
        }
    }

    /// Ends a token. One that is gone is no failure.
    pub(super) async fn end(&self, id: &str) {
        let Some((platform, client)) = &self.platform else { return };
        let request = client.request(Method::DELETE, &format!("api/v2/authentication-tokens/{id}"));
        if let Err(error) = client.send(request.bearer_auth(platform.token.expose_secret())).await {
            tracing::warn!(event = "dev.secrets.cleanup_failed", %error, "a token was left at the platform");
        }
    }
}

const MEDIA_TYPE: &str = "application/vnd.api+json";
