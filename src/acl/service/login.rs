//! Login: exchanges a verified identity token for an ACL token.
//!
//! Auth methods of the configuration file; stored methods are in `stored_method`, their logins with a browser in `oidc`.

mod error;
mod call_slots;
mod sts;
mod token_review;
mod options;
mod signature;
mod configured;
mod bind;
mod code_exchange;
mod verifier_cache;
mod stored_method;
mod oidc;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

use std::collections::BTreeMap;
use std::sync::Arc;

use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;

use super::acl_service::AclService;
use super::caller::LiveToken;
use super::error::ServiceError;
use super::links::truncate;
use super::tokens::ValidatedToken;
use super::transaction::{Transaction, retry_on_conflict};
use crate::model::aws_identity::UnverifiedCallerRequest;
use crate::model::azure_identity::{ClaimedFields, VerifiedFacts};
use crate::model::id::Id;
use crate::model::links::Links;
use crate::model::names::NamespaceName;
use crate::model::secret::PlainSecret;
use crate::model::token::LoginOrigin;

use configured::{ConfiguredMethod, LoginRole};

pub(crate) use error::LoginError;
pub(crate) use oidc::{AuthUrlRequest, OidcCallbackRequest};
pub use options::{
    AwsMethodOptions, KubernetesMethodOptions, LoginRoleOptions, MethodOptions, RoleSummary, TokenMethodOptions,
};
pub(crate) use stored_method::StoredLoginRequest;
pub use sts::StsOptions;
pub use token_review::KubernetesApiOptions;

/// Login request. Nothing in it is verified.
#[derive(Debug)]
pub(crate) struct ConfiguredLoginRequest {
    /// Name of the login role.
    pub role: Option<String>,
    /// Token of the cloud identity.
    pub unverified_jwt: Option<SecretString>,
    /// Fields that the caller claims beside its token.
    pub unverified_fields: ClaimedFields,
    /// Request that an AWS principal has signed.
    pub unverified_request: UnverifiedCallerRequest,
}

/// Result of a login.
#[derive(Debug)]
pub(crate) struct LoginResult {
    /// Token.
    pub live: LiveToken,
    /// Secret of the token.
    pub secret: PlainSecret,
    /// Names of its policies, as configured.
    pub policies: Vec<String>,
}

/// Auth methods of the configuration by name, and a cache of verifiers for stored methods.
#[derive(Debug)]
pub(crate) struct LoginMethods {
    configured: BTreeMap<String, ConfiguredMethod>,
    verifiers: verifier_cache::VerifierCache,
    service: Arc<AclService>,
}

impl LoginMethods {
    /// Creates the methods and their policies. Keys are fetched at the first login.
    pub(crate) async fn new(
        options: &BTreeMap<String, MethodOptions>,
        service: Arc<AclService>,
        clock: &Clock,
    ) -> Result<Self, ServiceError> {
        let mut methods = BTreeMap::new();
        for (name, options) in options {
            let method = ConfiguredMethod::new(options, clock);
            for (_, role) in method.roles() {
                match role.policies(&service).await {
                    // The first login after the restore creates them.
                    Ok(_) | Err(ServiceError::Restoring) => {}
                    Err(error) => return Err(error),
                }
            }
            methods.insert(name.clone(), method);
        }
        Ok(Self { configured: methods, verifiers: verifier_cache::VerifierCache::new(clock.clone()), service })
    }

    /// Logs in with the configured method `method`.
    pub(crate) async fn login(&self, method: &str, request: ConfiguredLoginRequest) -> Result<LoginResult, LoginError> {
        let outcome = self.try_login(method, request).await;
        match &outcome {
            Ok(granted) => {
                let immutable = granted.live.token.value.immutable();
                let role = immutable.login.as_ref().and_then(|login| login.role.as_deref());
                let principal = immutable.login.as_ref().and_then(|login| login.facts.get("principal_id"));
                let accessor = immutable.accessor_id.to_string();
                tracing::info!(event = "acl.login.ok", method, role, principal, accessor, "logged in");
            }
            // The API logs these.
            Err(LoginError::Service(_)) => {}
            // The caller is not authenticated, so its claims are not logged as facts.
            Err(error) => {
                let method = truncate(method);
                tracing::warn!(event = "acl.login.refused", method, error = error.to_string(), "refused a login");
            }
        }
        outcome
    }

    /// Returns the names of the methods of the configuration with the names of their login roles.
    pub(crate) fn configured(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.configured
            .iter()
            .map(|(name, method)| (name.as_str(), method.roles().into_iter().map(|(role, _)| role).collect()))
    }

    async fn try_login(&self, method: &str, request: ConfiguredLoginRequest) -> Result<LoginResult, LoginError> {
        let (name, method) = self.configured.get_key_value(method).ok_or(LoginError::NoSuchMethod)?;
        let (role_name, role, facts) = method.verify(&request, self.service.now()).await?;
        self.grant(name, role_name, role, facts).await
    }

    async fn grant(
        &self,
        method: &str,
        name: &str,
        role: &LoginRole,
        facts: VerifiedFacts,
    ) -> Result<LoginResult, LoginError> {
        let ids = role.policies(&self.service).await?;
        let namespace = NamespaceName::default_namespace();
        let origin = LoginOrigin {
            auth_method: method.to_owned(),
            method_id: None,
            namespace: namespace.clone(),
            role: Some(name.to_owned()),
            facts,
        };
        let secret = PlainSecret::random();
        let make = async || {
            let target = self.service.records.writable_namespace(&namespace).await?;
            let now = self.service.now();
            let new = ValidatedToken {
                accessor: Id::random(),
                secret: secret.clone(),
                description: "token created via login".to_owned(),
                links: Links { policies: ids.clone(), ..Links::default() },
                roles: Vec::new(),
                // Consul's default: its auth methods make local tokens unless their token locality is global.
                local: true,
                create_time: now,
                expiration_time: Some(now.after(role.ttl)),
                login: Some(origin.clone()),
            };
            self.service.token_records().insert(&target, new, Transaction::default()).await
        };
        let live = retry_on_conflict(make).await?;
        Ok(LoginResult { live, secret, policies: role.policies.clone() })
    }
}
