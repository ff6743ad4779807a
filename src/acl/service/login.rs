//! Login: a token of an identity that is vouched for, verified, becomes a token of ours.
//!
//! Methods of the configuration file are here; those that are stored are in `stored`.

mod error;
mod verify;
mod bind;
mod stored_method;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use secrecy::SecretString;

use super::acl_service::Directory;
use super::caller::Live;
use super::error::ServiceError;
use super::issuer_keys::{self, Keys};
use super::repository::{Changes, retrying};
use super::restore_lock::Epoch;
use super::tokens::NewToken;
use crate::acl::model::auth_method::Algorithm;
use crate::acl::model::azure_identity::{Bounds, Facts, Stated, Trust, decide};
use crate::acl::model::id::Id;
use crate::acl::model::links::Links;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::secret::PlainSecret;
use crate::acl::model::token::LoginOrigin;
use crate::acl::store::Freshness;
use crate::clock::Clock;

pub use error::LoginError;
pub use stored_method::StoredLogin;

/// How an auth method verifies and what it gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whom it trusts.
    pub trust: Trust,
    /// Where the issuer's keys are.
    pub keys: issuer_keys::Options,
    /// What it gives to whom, by the name that a login asks for.
    pub roles: BTreeMap<String, RoleOptions>,
}

/// What a login role gives to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleOptions {
    /// Whom it lets in.
    pub bounds: Bounds,
    /// Names of the policies that its tokens link.
    pub policies: Vec<String>,
    /// How long its tokens live.
    pub ttl: Duration,
}

/// A login as it was asked for. Nothing in it is verified.
#[derive(Debug)]
pub struct Request {
    /// The role's name.
    pub role: Option<String>,
    /// The cloud identity's token.
    pub unverified_jwt: Option<SecretString>,
    /// What the caller says of itself beside it.
    pub unverified_fields: Stated,
}

/// What a login gave.
#[derive(Debug)]
pub struct Granted {
    /// The token.
    pub live: Live,
    /// Its secret.
    pub secret: PlainSecret,
    /// Names of its policies, as the options have them.
    pub policies: Vec<String>,
}

/// The auth methods of the configuration, by name, and what was made of those that are stored.
#[derive(Debug)]
pub struct Methods {
    configured: BTreeMap<String, Method>,
    judges: stored_method::Judges,
    directory: Arc<Directory>,
}

#[derive(Debug)]
struct Method {
    trust: Trust,
    keys: Keys,
    roles: BTreeMap<String, Role>,
}

#[derive(Debug)]
struct Role {
    bounds: Bounds,
    /// Names.
    policies: Vec<String>,
    /// Their ids, as they were in an epoch.
    linked: Mutex<Option<(Epoch, Vec<Id>)>>,
    ttl: Duration,
}

impl Methods {
    /// Sets the methods up. Nothing is fetched yet.
    ///
    /// # Errors
    /// The store failed.
    pub async fn new(
        options: &BTreeMap<String, Options>,
        directory: Arc<Directory>,
        clock: &Clock,
    ) -> Result<Self, ServiceError> {
        let mut methods = BTreeMap::new();
        for (name, options) in options {
            let keys = Keys::fetched(options.trust.issuer.clone(), options.keys.clone(), clock.clone());
            let mut roles = BTreeMap::new();
            for (role, options) in &options.roles {
                let mut policies: Vec<String> = Vec::new();
                for policy in &options.policies {
                    if !policies.contains(policy) {
                        policies.push(policy.clone());
                    }
                }
                let (bounds, ttl) = (options.bounds.clone(), options.ttl);
                let made = Role { bounds, policies, linked: Mutex::default(), ttl };
                match made.policies(&directory).await {
                    // Made by the first login after it.
                    Ok(_) | Err(ServiceError::Restoring) => {}
                    Err(error) => return Err(error),
                }
                roles.insert(role.clone(), made);
            }
            methods.insert(name.clone(), Method { trust: options.trust.clone(), keys, roles });
        }
        Ok(Self { configured: methods, judges: stored_method::Judges::new(clock.clone()), directory })
    }

    /// Logs in by the method of that name.
    ///
    /// # Errors
    /// Says whether the request, the identity or this side is at fault.
    pub async fn login(&self, method: &str, request: Request) -> Result<Granted, LoginError> {
        let outcome = self.judge(method, request).await;
        match &outcome {
            Ok(granted) => {
                let birth = granted.live.token.value.birth();
                let role = birth.login.as_ref().and_then(|login| login.role.as_deref());
                let principal = birth.login.as_ref().and_then(|login| login.facts.get("principal_id"));
                let accessor = birth.accessor_id;
                tracing::info!(event = "acl.login.ok", method, role, principal, %accessor, "logged in");
            }
            // Logged where it is answered.
            Err(LoginError::Service(_)) => {}
            // Who failed is not known: nothing that the caller says of itself is written down as if it were.
            Err(error) => tracing::warn!(event = "acl.login.refused", ?method, %error, "refused a login"),
        }
        outcome
    }

    async fn judge(&self, method: &str, request: Request) -> Result<Granted, LoginError> {
        let (name, method) = self.configured.get_key_value(method).ok_or(LoginError::NoSuchMethod)?;
        let unverified_jwt = request.unverified_jwt.ok_or(LoginError::Missing("jwt"))?;
        let asked = request.role.filter(|role| !role.is_empty()).ok_or(LoginError::Missing("role"))?;
        let (role_name, role) = method
            .roles
            .get_key_value(&asked)
            .ok_or_else(|| LoginError::NoSuchRole(asked.chars().take(128).collect()))?;

        let signed = verify::signed_claims(&unverified_jwt, &method.keys, &[Algorithm::Rs256], true).await?;
        let facts = decide(&signed, &method.trust, &role.bounds, &request.unverified_fields, self.directory.now())?;

        self.grant(name, role_name, role, facts).await
    }

    async fn grant(&self, method: &str, name: &str, role: &Role, facts: Facts) -> Result<Granted, LoginError> {
        let ids = role.policies(&self.directory).await?;
        let namespace = NamespaceName::default_one();
        let origin = LoginOrigin {
            auth_method: method.to_owned(),
            method_id: None,
            namespace: namespace.clone(),
            role: Some(name.to_owned()),
            facts,
        };
        let secret = PlainSecret::random();
        let make = async || {
            let home = self.directory.home(&namespace).await?;
            let now = self.directory.now();
            let new = NewToken {
                accessor: Id::random(),
                secret: secret.clone(),
                description: "token created via login".to_owned(),
                links: Links { policies: ids.clone(), ..Links::default() },
                roles: Vec::new(),
                local: true,
                create_time: now,
                expiration_time: Some(now.after(role.ttl)),
                login: Some(origin.clone()),
            };
            self.directory.make_token(&home, new, Changes::default()).await
        };
        let live = retrying(make).await?;
        Ok(Granted { live, secret, policies: role.policies.clone() })
    }
}

impl Role {
    /// The ids of its policies; those that are not there are made. In a store that was restored they are others.
    async fn policies(&self, directory: &Directory) -> Result<Vec<Id>, ServiceError> {
        let epoch = directory.epoch(Freshness::Linearizable).await?;
        let known = || self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, ids)) = known().as_ref().filter(|(then, _)| then.is(epoch)) {
            return Ok(ids.clone());
        }
        let mut ids = Vec::new();
        for policy in &self.policies {
            ids.push(directory.ensure_policy(policy).await?);
        }
        *known() = Some((epoch, ids.clone()));
        Ok(ids)
    }
}
