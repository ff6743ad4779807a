//! Login: a cloud identity's token, verified, becomes a token of ours.

mod verify;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use super::keys::{self, KeyError, Keys};
use super::policies::Policies;
use super::tokens::{Live, NewToken, ServiceError, Tokens};
use crate::access::model::DEFAULT_NAMESPACE;
use crate::access::model::cloud::{Bounds, Facts, Refusal, Stated, Trust, decide};
use crate::access::model::id::Id;
use crate::access::model::secret::PlainSecret;
use crate::access::model::token::{Links, LoginOrigin};
use crate::clock::Clock;

/// How an auth method verifies and what it gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whom it trusts.
    pub trust: Trust,
    /// Where the issuer's keys are.
    pub keys: keys::Options,
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
    pub token: Live,
    /// Its secret.
    pub secret: PlainSecret,
    /// Names of its policies, as the options have them.
    pub policies: Vec<String>,
}

/// The auth methods, by name.
#[derive(Debug)]
pub struct Methods {
    methods: BTreeMap<String, Method>,
    tokens: Arc<Tokens>,
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
    policies: Vec<(Id, String)>,
    ttl: Duration,
}

impl Methods {
    /// Sets the methods up; also gives what fetches their keys, to be run.
    ///
    /// # Errors
    /// The store failed.
    pub async fn new(
        options: &BTreeMap<String, Options>,
        tokens: Arc<Tokens>,
        policies: &Policies,
        clock: &Clock,
    ) -> Result<(Self, Vec<keys::Fetcher>), ServiceError> {
        let mut methods = BTreeMap::new();
        let mut fetchers = Vec::new();
        for (name, options) in options {
            let (keys, fetcher) = Keys::new(options.trust.issuer.clone(), options.keys.clone(), clock.clone());
            let mut roles = BTreeMap::new();
            for (role, options) in &options.roles {
                let mut linked = Vec::new();
                for policy in &options.policies {
                    let link = (policies.ensure(DEFAULT_NAMESPACE, policy).await?, policy.clone());
                    if !linked.contains(&link) {
                        linked.push(link);
                    }
                }
                let role_of = Role { bounds: options.bounds.clone(), policies: linked, ttl: options.ttl };
                roles.insert(role.clone(), role_of);
            }
            methods.insert(name.clone(), Method { trust: options.trust.clone(), keys, roles });
            fetchers.push(fetcher);
        }
        Ok((Self { methods, tokens }, fetchers))
    }

    /// Logs in by the method of that name.
    ///
    /// # Errors
    /// Says whether the request, the identity or this side is at fault.
    pub async fn login(&self, method: &str, request: Request) -> Result<Granted, LoginError> {
        let outcome = self.judge(method, request).await;
        match &outcome {
            Ok(granted) => {
                let birth = granted.token.record.birth();
                let role = birth.login.as_ref().map(|login| login.role.as_str());
                let principal = birth.login.as_ref().and_then(|login| login.facts.get("principal_id"));
                let accessor = birth.accessor_id;
                tracing::info!(event = "access.login.ok", method, role, principal, %accessor, "logged in");
            }
            // Logged where it is answered.
            Err(LoginError::Service(_)) => {}
            // Who failed is not known: nothing that the caller says of itself is written down as if it were.
            Err(error) => tracing::warn!(event = "access.login.refused", ?method, %error, "refused a login"),
        }
        outcome
    }

    async fn judge(&self, method: &str, request: Request) -> Result<Granted, LoginError> {
        let (name, method) = self.methods.get_key_value(method).ok_or(LoginError::NoSuchMethod)?;
        let unverified_jwt = request.unverified_jwt.ok_or(LoginError::Missing("jwt"))?;
        let asked = request.role.filter(|role| !role.is_empty()).ok_or(LoginError::Missing("role"))?;
        let (role_name, role) = method
            .roles
            .get_key_value(&asked)
            .ok_or_else(|| LoginError::NoSuchRole(asked.chars().take(128).collect()))?;

        let signed = verify::signed_claims(&unverified_jwt, &method.keys).await?;
        let facts = decide(&signed, &method.trust, &role.bounds, &request.unverified_fields, self.tokens.now())?;

        self.grant(name, role_name, role, facts).await
    }

    async fn grant(&self, method: &str, name: &str, role: &Role, facts: Facts) -> Result<Granted, LoginError> {
        let (ids, names) = role.policies.iter().cloned().unzip();
        let new = NewToken {
            description: "token created via login".to_owned(),
            links: Links { policies: ids, roles: Vec::new() },
            namespace: DEFAULT_NAMESPACE.to_owned(),
            local: true,
            ttl: Some(role.ttl),
            login: Some(LoginOrigin { auth_method: method.to_owned(), role: name.to_owned(), facts }),
        };
        let (token, secret) = self.tokens.create(new).await?;
        Ok(Granted { token, secret, policies: names })
    }
}

/// Why a login gave no token. Holds neither token nor secret.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// No auth method of that name.
    #[error("no such auth method")]
    NoSuchMethod,
    /// The request lacks a field.
    #[error("{0} is required")]
    Missing(&'static str),
    /// No role of that name.
    #[error("invalid role name {0:?}")]
    NoSuchRole(String),
    /// No token.
    #[error("malformed jwt")]
    Malformed,
    /// Signed by another algorithm, or not at all.
    #[error("id token signed with unsupported algorithm, expected \"RS256\" got {0:?}")]
    Algorithm(String),
    /// A token that does not say which key signed it.
    #[error("failed to verify signature: the token names no key (kid)")]
    NoKeyId,
    /// No such key, or no keys.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The signature is wrong.
    #[error("failed to verify signature")]
    Signature,
    /// The signature holds, and the claims have other types than such tokens have.
    #[error("malformed jwt: its claims are not of the types that they should be")]
    Claims,
    /// The role does not let this identity in.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// This side failed.
    #[error(transparent)]
    Service(#[from] ServiceError),
}
