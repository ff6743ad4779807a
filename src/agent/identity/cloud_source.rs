//! The Azure identity source: selects where the token comes from, retries, and reads the token's claims.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use keyward_credentials::jwt::UnverifiedClaims;
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use parking_lot::Mutex;

use super::attempts::{MIN_VALIDITY, Persistence};
use super::error::AttemptError;
use super::login_fields::{self, InstanceMetadata};
use super::managed_identity_host::ManagedIdentityHost;
use super::retry::IdentityEndpoint;
use super::source_selection::{SelectedSource, Selection, select_source};
use super::transport::Transport;
use super::{
    CloudEndpoints, CloudIdentityOptions, IdentityError, IdentityProof, IdentitySource, RequestedAudience, SignedToken,
    app_service, arc,
};
use super::{azure_sdk, client_certificate, client_secret, metadata, workload};

impl CloudIdentityOptions {
    /// Creates the source and checks the variables, without any request.
    pub fn build(&self, clock: Clock) -> Result<Box<dyn IdentitySource>, IdentityError> {
        self.build_with(Persistence::new(clock))
    }

    pub(super) fn build_with(&self, persistence: Persistence) -> Result<Box<dyn IdentitySource>, IdentityError> {
        self.build_for(TokenUse::Login, persistence)
    }

    /// Creates the source of tokens for tools as [`CloudIdentityOptions::build`] creates that of a login.
    pub(super) fn build_for_tools(&self, clock: Clock) -> Result<Box<dyn IdentitySource>, IdentityError> {
        self.build_for(TokenUse::Tools, Persistence::new(clock))
    }

    fn build_for(
        &self,
        token_use: TokenUse,
        persistence: Persistence,
    ) -> Result<Box<dyn IdentitySource>, IdentityError> {
        select_source(self)?;
        Ok(Box::new(CloudSource {
            options: self.clone(),
            token_use,
            persistence,
            authority: OnceLock::new(),
            logged_selection: Mutex::new(None),
            instance: Mutex::new(None),
            proxy_ca: Mutex::new(None),
        }))
    }

    /// Returns the scope of environment sources: as configured, else the resource followed by `/.default`.
    ///
    /// Two consecutive slashes are correct: the first belongs to the audience.
    pub fn environment_scope(&self) -> String {
        self.scope.clone().unwrap_or_else(|| format!("{}{DEFAULT}", self.resource))
    }

    /// Returns the resource of a managed identity: as configured, or in environment mode the scope's.
    fn managed_resource(&self) -> String {
        match self.from {
            super::IdentityOrigin::Instance(_) => self.resource.clone(),
            super::IdentityOrigin::Environment => {
                let scope = self.environment_scope();
                scope.strip_suffix(DEFAULT).unwrap_or(&scope).to_owned()
            }
        }
    }
}

/// Suffix of a scope for all permissions of a resource.
const DEFAULT: &str = "/.default";

/// Use of the tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenUse {
    /// A login, which needs fields of the machine, and a token that is valid for another minute.
    Login,
    /// Tools, which need the token alone. Its keeper replaces it before its end, so a short rest is no reason to try again.
    Tools,
}

impl TokenUse {
    /// Longest rest of the validity with which another token is requested at once.
    const fn min_validity(self) -> Duration {
        match self {
            Self::Login => MIN_VALIDITY,
            Self::Tools => Duration::ZERO,
        }
    }
}

/// The Azure identity of this machine or pod.
#[derive(Debug)]
struct CloudSource {
    options: CloudIdentityOptions,
    token_use: TokenUse,
    persistence: Persistence,
    authority: OnceLock<Transport>,
    /// Description logged last; logged again only on change.
    logged_selection: Mutex<Option<String>>,
    /// Cached instance metadata.
    instance: Mutex<Option<InstanceMetadata>>,
    /// Last content of the token proxy's CA file.
    proxy_ca: Mutex<Option<Vec<u8>>>,
}

#[async_trait]
impl IdentitySource for CloudSource {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let selection = select_source(&self.options)?;
        self.log_selection(&selection);
        let source = &selection.selected;
        let endpoint = match source {
            SelectedSource::Managed(ManagedIdentityHost::Metadata, _) => IdentityEndpoint::Metadata,
            SelectedSource::Managed(..) => IdentityEndpoint::LocalService,
            _ => IdentityEndpoint::Authority,
        };
        let (jwt, claims) = self.get_token(source, endpoint).await?;
        let instance = match (endpoint, &claims) {
            // Only tokens for Azure's own resources name the machine in `xms_mirid` or `xms_az_rid`; others need the
            // document.
            (IdentityEndpoint::Metadata, claims)
                if self.token_use == TokenUse::Login && !claims.as_ref().is_some_and(login_fields::names_resource) =>
            {
                self.instance().await
            }
            _ => None,
        };
        let fields = login_fields::login_fields(claims.as_ref(), instance.as_ref(), &self.options.overrides);
        let audience = match endpoint {
            IdentityEndpoint::Authority => {
                let scope = self.options.environment_scope();
                scope.strip_suffix(DEFAULT).unwrap_or(&scope).to_owned()
            }
            _ => self.options.managed_resource(),
        };
        Ok(IdentityProof::Signed(Box::new(SignedToken {
            jwt,
            fields,
            claims,
            audience: Some(RequestedAudience::Azure(audience)),
        })))
    }

    fn describe(&self) -> String {
        select_source(&self.options)
            .map_or_else(|error| error.source_name.to_owned(), |selection| selection.selected.describe())
    }

    fn files(&self) -> Vec<PathBuf> {
        select_source(&self.options).map(|selection| selection.selected.files()).unwrap_or_default()
    }
}

impl CloudSource {
    /// Logs the selection once, and again when it changes.
    fn log_selection(&self, selection: &Selection) {
        let source = selection.selected.describe();
        let mut logged_selection = self.logged_selection.lock();
        if logged_selection.as_ref() == Some(&source) {
            return;
        }
        for (name, reason) in &selection.skipped {
            tracing::info!(event = "identity.source.skipped", source = name, reason, "an identity source was skipped");
        }
        tracing::info!(event = "identity.source.chosen", source, "identity source selected");
        *logged_selection = Some(source);
    }

    /// Gets a token that is valid for another minute, with retries.
    async fn get_token(
        &self,
        source: &SelectedSource,
        endpoint: IdentityEndpoint,
    ) -> Result<(SecretString, Option<UnverifiedClaims>), IdentityError> {
        let mut attempts = self.persistence.start(endpoint, source.name());
        loop {
            let (failure, last) = match self.request_token(source).await {
                Ok(jwt) => {
                    let claims = UnverifiedClaims::decode(jwt.expose_secret()).ok();
                    match self.remaining(claims.as_ref()) {
                        Some(remaining) if remaining <= self.token_use.min_validity() => {
                            (AttemptError::Expiring, Some((jwt, claims)).filter(|_| !remaining.is_zero()))
                        }
                        _ => return Ok(attempts.succeed((jwt, claims))),
                    }
                }
                Err(failure) => (failure, None),
            };
            match (attempts.wait(&failure).await, last) {
                (Ok(()), _) => {}
                // It expires soon, but is valid.
                (Err(_), Some(token)) => return Ok(attempts.succeed(token)),
                (Err(error), None) => return Err(error),
            }
        }
    }

    fn remaining(&self, claims: Option<&UnverifiedClaims>) -> Option<Duration> {
        Some(claims?.exp?.duration_since(self.persistence.clock().now().wall).unwrap_or(Duration::ZERO))
    }

    async fn request_token(&self, source: &SelectedSource) -> Result<SecretString, AttemptError> {
        let now = self.persistence.clock().now().wall;
        let resource = self.options.managed_resource();
        let scope = self.options.environment_scope();
        match source {
            SelectedSource::Managed(ManagedIdentityHost::Metadata, managed_identity) => {
                metadata::request_token(
                    Transport::machine()?,
                    &self.options.endpoints.metadata,
                    managed_identity,
                    &resource,
                )
                .await
            }
            SelectedSource::Managed(ManagedIdentityHost::AppService { endpoint, header, form }, managed_identity) => {
                app_service::request_token(Transport::machine()?, endpoint, header, *form, managed_identity, &resource)
                    .await
            }
            SelectedSource::Managed(ManagedIdentityHost::Arc { endpoint }, _) => {
                arc::request_token(Transport::machine()?, endpoint, &self.options.endpoints.arc_tokens, &resource).await
            }
            SelectedSource::ClientSecret(principal, secret) => {
                client_secret::request_token(self.authority()?, principal, secret, &scope).await
            }
            SelectedSource::ClientCertificate(principal, certificate) => {
                client_certificate::request_token(self.authority()?, principal, certificate, &scope, now).await
            }
            SelectedSource::Workload(principal, file, None) => {
                let client = azure_sdk::SdkHttpClient::new(self.authority()?.clone());
                workload::request_token(client, principal, file, &scope, now).await
            }
            SelectedSource::Workload(principal, file, Some(proxy)) => {
                // Built for each exchange: the trusted authorities may have changed.
                let client =
                    azure_sdk::SdkHttpClient::with_token_proxy(proxy.transport(&self.proxy_ca)?, proxy.clone());
                workload::request_token(client, principal, file, &scope, now).await
            }
        }
    }

    /// Returns the instance metadata, cached after the first response; the login works without it.
    async fn instance(&self) -> Option<InstanceMetadata> {
        let cached = self.instance.lock().clone();
        if cached.is_some() {
            return cached;
        }
        match metadata::instance(Transport::machine().ok()?, &self.options.endpoints.metadata).await {
            Ok(instance) => {
                *self.instance.lock() = Some(instance.clone());
                Some(instance)
            }
            Err(failure) => {
                tracing::debug!(
                    event = "identity.instance.missing",
                    error = failure.to_string(),
                    "cannot read the instance document; logging in without it"
                );
                None
            }
        }
    }

    fn authority(&self) -> Result<&Transport, AttemptError> {
        let CloudEndpoints { authority_ca, authority_is_local, .. } = &self.options.endpoints;
        Transport::get_or_build(&self.authority, || Transport::authority(authority_ca.as_deref(), *authority_is_local))
    }
}
