//! Login by an auth method that is stored.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use secrecy::SecretString;

use super::bind::Given;
use super::{LoginError, Methods, verify};
use crate::acl::model::auth_method::{AuthMethodRecord, KeySource, MethodConfig, Whom};
use crate::acl::model::azure_identity::{SignedClaims, identify};
use crate::acl::model::id::Id;
use crate::acl::model::jwt_claims::Claims;
use crate::acl::model::names::{NamespaceName, is_name};
use crate::acl::model::secret::PlainSecret;
use crate::acl::model::token::LoginOrigin;
use crate::acl::model::verified_claims::Known;
use crate::acl::service::acl_service::Directory;
use crate::acl::service::caller::Live;
use crate::acl::service::error::ServiceError;
use crate::acl::service::issuer_keys::{self, Authorities, Keys, Source, pem_keys};
use crate::acl::service::keys;
use crate::acl::service::repository::{Changes, Stored, retrying};
use crate::acl::service::tokens::NewToken;
use crate::acl::store::{Freshness, Revision, StoreError};
use crate::clock::Clock;

/// A login by a stored method as it was asked for. Nothing in it is verified.
#[derive(Debug)]
pub struct StoredLogin {
    /// The method's name.
    pub method: String,
    /// The identity's token.
    pub unverified_jwt: SecretString,
    /// What is written into the description of the token that it gives.
    pub meta: BTreeMap<String, String>,
}

impl Methods {
    /// Logs in by the stored method of that name in a namespace.
    ///
    /// # Errors
    /// Says whether the request, the identity or this side is at fault.
    pub async fn login_stored(
        &self,
        namespace: &NamespaceName,
        request: &StoredLogin,
    ) -> Result<(Live, PlainSecret), LoginError> {
        let outcome = self.judge_stored(namespace, request).await;
        let method = &request.method;
        match &outcome {
            Ok((live, _)) => {
                let birth = live.token.value.birth();
                let (accessor, namespace) = (birth.accessor_id, &birth.namespace);
                tracing::info!(event = "acl.login.ok", method, %namespace, %accessor, "logged in");
            }
            // Logged where it is answered.
            Err(LoginError::Service(_)) => {}
            Err(error) => tracing::warn!(event = "acl.login.refused", ?method, %error, "refused a login"),
        }
        outcome
    }

    async fn judge_stored(
        &self,
        namespace: &NamespaceName,
        request: &StoredLogin,
    ) -> Result<(Live, PlainSecret), LoginError> {
        let name = &request.method;
        let unknown = || LoginError::Unknown(name.chars().take(128).collect());
        let key = keys::auth_method(namespace, name);
        let found = if is_name(name) {
            self.directory.records.get::<AuthMethodRecord>(&key, Freshness::Linearizable).await?
        } else {
            None
        };
        let method = found.ok_or_else(unknown)?;
        let judge = self.judges.of(&method).map_err(LoginError::Service)?;
        let known = self.known(&judge, &request.unverified_jwt).await?;
        let record = &method.value;
        let given = self.directory.bind(record, &judge.config.blank(), &known).await?.ok_or(LoginError::NoBinding)?;

        let secret = PlainSecret::random();
        let made = retrying(|| self.make(&method, &given, &known, &request.meta, &secret)).await;
        match made {
            Ok(live) => Ok((live, secret)),
            // It was deleted, or its namespace was, while the identity was judged.
            Err(ServiceError::Missing(_)) => Err(unknown()),
            Err(error) => Err(error.into()),
        }
    }

    async fn known(&self, judge: &Judge, unverified_jwt: &SecretString) -> Result<Known, LoginError> {
        let (config, now) = (&judge.config, self.directory.now());
        match &config.whom {
            Whom::Cloud { issuer, audiences } => {
                let claims: SignedClaims =
                    verify::signed_claims(unverified_jwt, &judge.keys, &config.algorithms, true).await?;
                let mut known = config.blank();
                known.values.extend(identify(&claims, issuer, audiences, now)?.facts());
                Ok(known)
            }
            Whom::Jwt(rules) => {
                let claims: Claims =
                    verify::signed_claims(unverified_jwt, &judge.keys, &config.algorithms, false).await?;
                Ok(rules.judge(&claims, now)?)
            }
        }
    }

    async fn make(
        &self,
        method: &Stored<AuthMethodRecord>,
        given: &Given,
        known: &Known,
        meta: &BTreeMap<String, String>,
        secret: &PlainSecret,
    ) -> Result<Live, ServiceError> {
        let record = &method.value;
        let key = keys::auth_method(&record.namespace, &record.name);
        let stands = self.directory.records.get::<AuthMethodRecord>(&key, Freshness::Linearizable).await?;
        match stands {
            None => return Err(ServiceError::Missing(format!("auth method {:?} was deleted", record.name))),
            // Who may log in, and for what, may have changed: to be judged anew.
            Some(now) if now.modified != method.modified => return Err(ServiceError::Crowded),
            Some(_) => {}
        }
        let home = self.directory.home(&record.namespace).await?;
        let now = self.directory.now();
        let new = NewToken {
            accessor: Id::random(),
            secret: secret.clone(),
            description: described(meta)?,
            links: given.links.clone(),
            roles: given.roles.clone(),
            local: record.makes_local_tokens(),
            create_time: now,
            expiration_time: record.max_token_ttl.map(|ttl| now.after(ttl)),
            login: Some(LoginOrigin {
                auth_method: record.name.clone(),
                method_id: Some(record.id),
                namespace: record.namespace.clone(),
                role: None,
                facts: kept(known),
            }),
        };
        self.directory.make_token(&home, new, Changes::default().unchanged(&key, method.modified)).await
    }
}

impl Directory {
    /// Destroys the token with that secret, which a login must have made.
    ///
    /// # Errors
    /// It opens nothing, or no login made it.
    pub async fn log_out(&self, secret: &PlainSecret) -> Result<Live, ServiceError> {
        let live = self.live_by_secret(secret, Freshness::Linearizable).await?.ok_or(ServiceError::UnknownSecret)?;
        if live.token.value.birth().login.is_none() {
            return Err(ServiceError::Forbidden("Permission denied: token wasn't created via login".to_owned()));
        }
        self.destroy_token(&live.token.value).await?;
        Ok(live)
    }
}

fn described(meta: &BTreeMap<String, String>) -> Result<String, ServiceError> {
    const TEXT: &str = "token created via login";
    if meta.is_empty() {
        return Ok(TEXT.to_owned());
    }
    let meta = serde_json::to_string(meta).map_err(ServiceError::Encode)?;
    Ok(format!("{TEXT}: {meta}"))
}

/// Most characters of a value that a token keeps.
const KEPT: usize = 256;

/// What a token keeps of whom it was made for.
fn kept(known: &Known) -> BTreeMap<String, String> {
    let values = known.values.iter().filter(|(_, value)| !value.is_empty());
    values.map(|(name, value)| (name.clone(), value.chars().take(KEPT).collect())).collect()
}

/// What was made of stored methods.
#[derive(Debug)]
pub(super) struct Judges {
    judges: Mutex<HashMap<Id, Arc<Judge>>>,
    clock: Clock,
}

/// What was made of a method as it was at a revision: it keeps the keys that were fetched.
#[derive(Debug)]
struct Judge {
    at: Revision,
    config: MethodConfig,
    keys: Keys,
}

/// Methods that are kept. A full part is emptied: what is in use is back soon.
const JUDGES: usize = 1024;

impl Judges {
    pub(super) fn new(clock: Clock) -> Self {
        Self { judges: Mutex::default(), clock }
    }

    /// What was made of that method, or is now.
    fn of(&self, method: &Stored<AuthMethodRecord>) -> Result<Arc<Judge>, ServiceError> {
        let id = method.value.id;
        let mut judges = self.judges.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(judge) = judges.get(&id).filter(|judge| judge.at == method.modified) {
            return Ok(Arc::clone(judge));
        }
        let judge = Arc::new(self.make(method).ok_or_else(|| {
            // It was read when it was written.
            let key = keys::auth_method(&method.value.namespace, &method.value.name);
            StoreError::Unreadable { key: key.as_str().to_owned() }
        })?);
        if judges.len() >= JUDGES {
            judges.clear();
        }
        judges.insert(id, Arc::clone(&judge));
        Ok(judge)
    }

    fn make(&self, method: &Stored<AuthMethodRecord>) -> Option<Judge> {
        let record = &method.value;
        let config = MethodConfig::read(record.kind, &record.config).ok()?;
        let trusting = |pem: &Option<String>| pem.clone().map_or(Authorities::System, Authorities::Pem);
        let fetched = |issuer: String, source: Source, pem: &Option<String>| {
            let options = issuer_keys::Options { source, authorities: trusting(pem) };
            Keys::fetched(issuer, options, self.clock.clone())
        };
        let keys = match &config.keys {
            KeySource::Discovery { url, issuer, authorities } => {
                fetched(issuer.clone(), Source::Discovery(url.clone()), authorities)
            }
            KeySource::Jwks { url, authorities } => {
                fetched(record.name.clone(), Source::Jwks(url.clone()), authorities)
            }
            KeySource::Fixed(texts) => {
                let keys: Result<Vec<_>, _> = texts.iter().map(|text| pem_keys(text)).collect();
                Keys::fixed(keys.ok()?.concat())
            }
        };
        Some(Judge { at: method.modified, config, keys })
    }
}
