//! Login: exchanges a verified identity token for an ACL token.
//!
//! Auth methods of the configuration file; stored methods are in `stored_method`.

mod error;
mod signature;
mod bind;
mod verifier_cache;
mod stored_method;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use parking_lot::Mutex;

use super::acl_service::AclService;
use super::caller::LiveToken;
use super::error::ServiceError;
use super::issuer_keys::{self, IssuerKeys};
use super::links::truncate;
use super::tokens::ValidatedToken;
use super::transaction::{Transaction, retry_on_conflict};
use crate::model::auth_method::Algorithm;
use crate::model::azure_identity::{BoundClaims, ClaimedFields, IssuerConfig, VerifiedFacts, verify_login};
use crate::model::id::Id;
use crate::model::links::Links;
use crate::model::names::NamespaceName;
use crate::model::secret::PlainSecret;
use crate::model::token::LoginOrigin;
use crate::store::{Freshness, Revision};

pub(crate) use error::LoginError;
pub(crate) use stored_method::StoredLoginRequest;

/// Options of an auth method in the configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodOptions {
    /// Trusted issuer and audience.
    pub trust: IssuerConfig,
    /// Location of the issuer's keys.
    pub keys: issuer_keys::IssuerKeyOptions,
    /// Login roles by name.
    pub roles: BTreeMap<String, LoginRoleOptions>,
}

/// Options of a login role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginRoleOptions {
    /// Identities that may log in.
    pub bounds: BoundClaims,
    /// Names of the policies of its tokens.
    pub policies: Vec<String>,
    /// Lifetime of its tokens.
    pub ttl: Duration,
}

/// Login request. Nothing in it is verified.
#[derive(Debug)]
pub(crate) struct ConfiguredLoginRequest {
    /// Name of the login role.
    pub role: Option<String>,
    /// Token of the cloud identity.
    pub unverified_jwt: Option<SecretString>,
    /// Fields that the caller claims beside its token.
    pub unverified_fields: ClaimedFields,
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

#[derive(Debug)]
struct ConfiguredMethod {
    trust: IssuerConfig,
    keys: IssuerKeys,
    roles: BTreeMap<String, LoginRole>,
}

#[derive(Debug)]
struct LoginRole {
    bounds: BoundClaims,
    /// Policy names.
    policies: Vec<String>,
    /// Policy ids, valid for one revision of the names of policies.
    linked: Mutex<Option<(Revision, Vec<Id>)>>,
    ttl: Duration,
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
            let keys = IssuerKeys::fetched(options.trust.issuer.clone(), options.keys.clone(), clock.clone());
            let mut roles = BTreeMap::new();
            for (role, options) in &options.roles {
                let mut policies: Vec<String> = Vec::new();
                for policy in &options.policies {
                    if !policies.contains(policy) {
                        policies.push(policy.clone());
                    }
                }
                let bounds = options.bounds.clone();
                let ttl = options.ttl;
                let login_role = LoginRole { bounds, policies, linked: Mutex::default(), ttl };
                match login_role.policies(&service).await {
                    // The first login after the restore creates them.
                    Ok(_) | Err(ServiceError::Restoring) => {}
                    Err(error) => return Err(error),
                }
                roles.insert(role.clone(), login_role);
            }
            methods.insert(name.clone(), ConfiguredMethod { trust: options.trust.clone(), keys, roles });
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
        self.configured.iter().map(|(name, method)| (name.as_str(), method.roles.keys().map(String::as_str).collect()))
    }

    async fn try_login(&self, method: &str, request: ConfiguredLoginRequest) -> Result<LoginResult, LoginError> {
        let (name, method) = self.configured.get_key_value(method).ok_or(LoginError::NoSuchMethod)?;
        let unverified_jwt = request.unverified_jwt.ok_or(LoginError::Missing("jwt"))?;
        let requested_role = request.role.filter(|role| !role.is_empty()).ok_or(LoginError::Missing("role"))?;
        let (role_name, role) = method
            .roles
            .get_key_value(&requested_role)
            .ok_or_else(|| LoginError::NoSuchRole(requested_role.chars().take(128).collect()))?;

        // Azure signs the tokens of identities with RS256, and names the key in each.
        let signed = signature::signed_claims(&unverified_jwt, &method.keys, &[Algorithm::Rs256], true).await?;
        let facts = verify_login(&signed, &method.trust, &role.bounds, &request.unverified_fields, self.service.now())?;

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

impl LoginRole {
    /// Returns the ids of the role's policies and creates missing ones. A rename, a policy that is created again, and a
    /// restore can lead from a name to another record, so the ids are cached per revision of the names.
    async fn policies(&self, service: &AclService) -> Result<Vec<Id>, ServiceError> {
        // During a restore a name may lead to a record that is deleted by it.
        service.epoch(Freshness::Linearizable).await?;
        // Read before the names: a concurrent write then invalidates the cached ids, never the reverse.
        let at = service.typed_store.store().last("policy-name");
        let cached = || self.linked.lock();
        if let Some((_, ids)) = cached().as_ref().filter(|(then, _)| Some(*then) == at) {
            return Ok(ids.clone());
        }
        let mut ids = Vec::new();
        for policy in &self.policies {
            ids.push(service.records.ensure_login_policy(policy).await?);
        }
        // A store with other writers has no such revision, so the names are read at each login.
        *cached() = at.map(|at| (at, ids.clone()));
        Ok(ids)
    }
}
