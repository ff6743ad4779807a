//! Auth methods of the configuration, ready for logins.

use std::collections::BTreeMap;
use std::time::Duration;

use keyward_machine::clock::Clock;
use parking_lot::Mutex;

use super::options::{LoginRoleOptions, MethodOptions, TokenMethodOptions};
use super::sts::StsClient;
use super::token_review::TokenReviewer;
use super::{ConfiguredLoginRequest, LoginError, signature};
use crate::model::auth_method::Algorithm;
use crate::model::aws_identity::{self, AwsBounds, AwsTrust};
use crate::model::azure_identity::{self, BoundClaims, IssuerConfig, VerifiedFacts};
use crate::model::google_identity::{self, GoogleBounds};
use crate::model::id::Id;
use crate::model::kubernetes_identity::KubernetesBounds;
use crate::model::timestamp::Timestamp;
use crate::service::acl_service::AclService;
use crate::service::error::ServiceError;
use crate::service::issuer_keys::IssuerKeys;
use crate::store::{Freshness, Revision};

/// An auth method of the configuration.
#[derive(Debug)]
pub(super) enum ConfiguredMethod {
    Azure(TokenMethod<BoundClaims>),
    Google(TokenMethod<GoogleBounds>),
    Aws { trust: AwsTrust, sts: StsClient, roles: Roles<AwsBounds> },
    Kubernetes { reviewer: TokenReviewer, roles: Roles<KubernetesBounds> },
}

/// Method that verifies signed tokens.
#[derive(Debug)]
pub(super) struct TokenMethod<B> {
    trust: IssuerConfig,
    keys: IssuerKeys,
    roles: Roles<B>,
}

type Roles<B> = BTreeMap<String, (B, LoginRole)>;

/// Tokens of a login role.
#[derive(Debug)]
pub(super) struct LoginRole {
    /// Policy names.
    pub(super) policies: Vec<String>,
    /// Policy ids, valid for one revision of the names of policies.
    linked: Mutex<Option<(Revision, Vec<Id>)>>,
    pub(super) ttl: Duration,
}

impl ConfiguredMethod {
    /// Creates the method. Keys are fetched, and STS and API servers called, at the first login.
    pub(super) fn new(options: &MethodOptions, clock: &Clock) -> Self {
        match options {
            MethodOptions::Azure(options) => Self::Azure(TokenMethod::new(options, clock)),
            MethodOptions::Google(options) => Self::Google(TokenMethod::new(options, clock)),
            MethodOptions::Aws(options) => Self::Aws {
                trust: options.trust.clone(),
                sts: StsClient::new(options.sts.clone()),
                roles: new_roles(&options.roles),
            },
            MethodOptions::Kubernetes(options) => {
                Self::Kubernetes { reviewer: TokenReviewer::new(options.api.clone()), roles: new_roles(&options.roles) }
            }
        }
    }

    /// Returns the login roles by name.
    pub(super) fn roles(&self) -> Vec<(&str, &LoginRole)> {
        match self {
            Self::Azure(method) => list(&method.roles),
            Self::Google(method) => list(&method.roles),
            Self::Aws { roles, .. } => list(roles),
            Self::Kubernetes { roles, .. } => list(roles),
        }
    }

    /// Verifies a login. Returns the role's name, the role and the facts.
    pub(super) async fn verify(
        &self,
        request: &ConfiguredLoginRequest,
        now: Timestamp,
    ) -> Result<(&str, &LoginRole, VerifiedFacts), LoginError> {
        // Azure and Google sign their tokens with RS256, and name the key in each.
        let algorithms = [Algorithm::Rs256];
        let jwt = || request.unverified_jwt.as_ref().ok_or(LoginError::Missing("jwt"));
        match self {
            Self::Azure(TokenMethod { trust, keys, roles }) => {
                let jwt = jwt()?;
                let (name, bounds, role) = find(roles, request.role.as_deref())?;
                let signed = signature::signed_claims(jwt, keys, &algorithms, true).await?;
                let facts = azure_identity::verify_login(&signed, trust, bounds, &request.unverified_fields, now)?;
                Ok((name, role, facts))
            }
            Self::Google(TokenMethod { trust, keys, roles }) => {
                let jwt = jwt()?;
                let (name, bounds, role) = find(roles, request.role.as_deref())?;
                let signed = signature::signed_claims(jwt, keys, &algorithms, true).await?;
                Ok((name, role, google_identity::verify_login(&signed, trust, bounds, now)?))
            }
            Self::Aws { trust, sts, roles } => {
                let (name, bounds, role) = find(roles, request.role.as_deref())?;
                let signed = trust.parse(&request.unverified_request, now)?;
                let answer = sts.call(&signed).await?;
                Ok((name, role, aws_identity::verify_login(&answer, &signed.endpoint, bounds)?))
            }
            Self::Kubernetes { reviewer, roles } => {
                let jwt = jwt()?;
                let (name, bounds, role) = find(roles, request.role.as_deref())?;
                let review = reviewer.review(jwt).await?;
                Ok((name, role, review.verify(&reviewer.options.audience, bounds)?))
            }
        }
    }
}

impl<B: Clone> TokenMethod<B> {
    fn new(options: &TokenMethodOptions<B>, clock: &Clock) -> Self {
        let keys = IssuerKeys::fetched(options.trust.issuer.clone(), options.keys.clone(), clock.clone());
        Self { trust: options.trust.clone(), keys, roles: new_roles(&options.roles) }
    }
}

fn new_roles<B: Clone>(options: &BTreeMap<String, LoginRoleOptions<B>>) -> Roles<B> {
    let role = |(name, options): (&String, &LoginRoleOptions<B>)| {
        let mut policies: Vec<String> = Vec::new();
        for policy in &options.policies {
            if !policies.contains(policy) {
                policies.push(policy.clone());
            }
        }
        (name.clone(), (options.bounds.clone(), LoginRole { policies, linked: Mutex::default(), ttl: options.ttl }))
    };
    options.iter().map(role).collect()
}

fn list<B>(roles: &Roles<B>) -> Vec<(&str, &LoginRole)> {
    roles.iter().map(|(name, (_, role))| (name.as_str(), role)).collect()
}

fn find<'a, B>(roles: &'a Roles<B>, requested: Option<&str>) -> Result<(&'a str, &'a B, &'a LoginRole), LoginError> {
    let requested = requested.filter(|role| !role.is_empty()).ok_or(LoginError::Missing("role"))?;
    let found = roles.get_key_value(requested);
    let (name, (bounds, role)) = found.ok_or_else(|| LoginError::NoSuchRole(requested.chars().take(128).collect()))?;
    Ok((name, bounds, role))
}

impl LoginRole {
    /// Returns the ids of the role's policies and creates missing ones. A rename, a policy that is created again, and a
    /// restore can lead from a name to another record, so the ids are cached per revision of the names.
    pub(super) async fn policies(&self, service: &AclService) -> Result<Vec<Id>, ServiceError> {
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
