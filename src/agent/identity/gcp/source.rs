//! The Google Cloud identity source.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use keyward_credentials::jwt::UnverifiedClaims;
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use serde_json::{Value, json};

use super::service_account_key::ServiceAccountKey;
use super::{GcpIdentityOptions, GcpOrigin, metadata, sign_jwt};
use crate::identity::attempts::Persistence;
use crate::identity::error::{AttemptError, config_error};
use crate::identity::retry::IdentityEndpoint;
use crate::identity::transport::Transport;
use crate::identity::{IdentityError, IdentityProof, IdentitySource, LoginFields, RequestedAudience, SignedToken};

impl GcpIdentityOptions {
    /// Creates the source and checks the variables, without any request.
    ///
    /// # Errors
    /// A variable is invalid.
    pub fn build(&self, clock: Clock) -> Result<Box<dyn IdentitySource>, IdentityError> {
        self.build_with(Persistence::new(clock))
    }

    pub(in crate::identity) fn build_with(
        &self,
        persistence: Persistence,
    ) -> Result<Box<dyn IdentitySource>, IdentityError> {
        self.endpoints.metadata_url(&self.variables).map_err(|message| config_error(message.to_owned(), None))?;
        Ok(Box::new(GcpSource { options: self.clone(), persistence, credentials: OnceLock::new() }))
    }

    /// Returns the URLs that the source connects to.
    pub fn urls(&self) -> Vec<url::Url> {
        let metadata = self.endpoints.metadata_url(&self.variables).ok();
        match self.origin {
            GcpOrigin::Instance { .. } => metadata.into_iter().collect(),
            GcpOrigin::SignJwt { .. } => metadata.into_iter().chain([self.endpoints.credentials.clone()]).collect(),
            GcpOrigin::Key { .. } => Vec::new(),
        }
    }
}

/// The Google Cloud identity of this machine, pod or process.
#[derive(Debug)]
struct GcpSource {
    options: GcpIdentityOptions,
    persistence: Persistence,
    credentials: OnceLock<Transport>,
}

#[async_trait]
impl IdentitySource for GcpSource {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let jwt = self.get_token().await?;
        let claims = UnverifiedClaims::decode(jwt.expose_secret()).ok();
        let audience = Some(RequestedAudience::Google(self.options.audience.clone()));
        Ok(IdentityProof::Signed(Box::new(SignedToken { jwt, fields: LoginFields::default(), claims, audience })))
    }

    fn describe(&self) -> String {
        match &self.options.origin {
            GcpOrigin::Instance { service_account } => format!("{} (service account {service_account})", self.name()),
            GcpOrigin::SignJwt { service_account } => {
                let account = service_account.as_deref().unwrap_or("of this machine");
                format!("{} (service account {account})", self.name())
            }
            GcpOrigin::Key { file } => format!("{} in {}", self.name(), file.display()),
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        match &self.options.origin {
            GcpOrigin::Key { file } => vec![file.clone()],
            GcpOrigin::Instance { .. } | GcpOrigin::SignJwt { .. } => Vec::new(),
        }
    }
}

impl GcpSource {
    const fn name(&self) -> &'static str {
        match self.options.origin {
            GcpOrigin::Instance { .. } => "Google Cloud metadata server",
            GcpOrigin::SignJwt { .. } => "Google Cloud signJwt",
            GcpOrigin::Key { .. } => "Google Cloud service account key",
        }
    }

    async fn get_token(&self) -> Result<SecretString, IdentityError> {
        let endpoint = match self.options.origin {
            GcpOrigin::SignJwt { .. } => IdentityEndpoint::Authority,
            GcpOrigin::Instance { .. } | GcpOrigin::Key { .. } => IdentityEndpoint::LocalService,
        };
        let mut attempts = self.persistence.start(endpoint, self.name());
        loop {
            match self.request_token().await {
                Ok(token) => return Ok(attempts.succeed(token)),
                Err(failure) => attempts.wait(&failure).await?,
            }
        }
    }

    async fn request_token(&self) -> Result<SecretString, AttemptError> {
        let GcpIdentityOptions { origin, variables, endpoints, .. } = &self.options;
        let base = endpoints.metadata_url(variables).map_err(AttemptError::setting)?;
        match origin {
            GcpOrigin::Instance { service_account } => {
                metadata::identity_token(Transport::machine()?, &base, service_account, &self.options.audience).await
            }
            GcpOrigin::SignJwt { service_account } => {
                let machine = Transport::machine()?;
                let account = match service_account {
                    Some(account) => account.clone(),
                    None => metadata::email(machine, &base, MAIN_ACCOUNT).await?,
                };
                let access_token = metadata::access_token(machine, &base, MAIN_ACCOUNT).await?;
                let claims = self.claims(&account);
                sign_jwt::request(self.credentials()?, &endpoints.credentials, &account, &access_token, &claims).await
            }
            GcpOrigin::Key { file } => {
                let file = file.clone();
                let reading = tokio::task::spawn_blocking(move || ServiceAccountKey::read(&file)).await;
                let key = reading
                    .map_err(|_| AttemptError::setting("the key was not read: keyward is stopping"))
                    .and_then(|key| key)?;
                key.sign(&self.claims(&key.email))
            }
        }
    }

    /// Returns the claims of a token for this server's role, valid for ten minutes.
    fn claims(&self, service_account: &str) -> Value {
        let now = self
            .persistence
            .clock()
            .now()
            .wall
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or(Duration::ZERO)
            .as_secs();
        json!({ "sub": service_account, "iss": service_account, "aud": self.options.audience, "iat": now, "exp": now + JWT_SECONDS })
    }

    fn credentials(&self) -> Result<&Transport, AttemptError> {
        let endpoints = &self.options.endpoints;
        let build = || Transport::authority(endpoints.credentials_ca.as_deref(), endpoints.credentials_is_local);
        Transport::get_or_build(&self.credentials, build)
    }
}

/// Alias of a machine's main service account.
const MAIN_ACCOUNT: &str = "default";

/// Lifetime of a signed token, in seconds: the server's method refuses more than 15 minutes unless its role allows it.
const JWT_SECONDS: u64 = 600;
