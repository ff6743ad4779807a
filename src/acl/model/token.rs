//! Token records.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::content_hash::content_hash;
use super::id::Id;
use super::links::Links;
use super::names::NamespaceName;
use super::secret::{SealedSecret, SecretHash};
use super::timestamp::Timestamp;

/// Shortest lifetime of a new token.
pub const MIN_TTL: Duration = Duration::from_mins(1);

/// Longest lifetime of a new token.
pub const MAX_TTL: Duration = Duration::from_hours(24);

/// A token as stored. Its create and modify index are the store's revisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TokenRecord {
    immutable: ImmutableFields,
    /// Description.
    #[serde(default)]
    pub description: String,
    /// Links.
    #[serde(default)]
    pub links: Links,
    /// Role ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Id>,
}

/// Fields set at creation. Nothing in a record can change them, except re-encryption with another key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImmutableFields {
    /// Public id of the token, used in paths and logs.
    pub accessor_id: Id,
    /// Keyed hash of the secret.
    pub secret_hash: SecretHash,
    /// Encrypted secret.
    pub sealed_secret: SealedSecret,
    /// Namespace.
    pub namespace: NamespaceName,
    /// Valid in this datacenter only.
    pub local: bool,
    /// Creation time.
    pub create_time: Timestamp,
    /// Expiration time; `None` for no expiration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiration_time: Option<Timestamp>,
    /// Login that created it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<LoginOrigin>,
}

/// Origin of a login token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoginOrigin {
    /// Name of the auth method.
    pub auth_method: String,
    /// Id of the method; a new method with the same name has another one. `None` for a method of the configuration
    /// file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method_id: Option<Id>,
    /// Namespace of the method.
    pub namespace: NamespaceName,
    /// Login role, for methods of the configuration file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Identity facts copied onto the token at login.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
}

/// Token of requests without a secret. It is stored like any other and can have links.
pub(crate) const ANONYMOUS: Id = Id::reserved(2);

/// Secret of the anonymous token.
pub(crate) const ANONYMOUS_SECRET: &str = "anonymous";

impl TokenRecord {
    /// Creates the record of a new token.
    pub(crate) fn new(immutable: ImmutableFields, description: String, links: Links, roles: Vec<Id>) -> Self {
        Self { immutable, description, links, roles }
    }

    /// Returns the immutable fields.
    pub(crate) fn immutable(&self) -> &ImmutableFields {
        &self.immutable
    }

    /// Returns the token with its secret hashed and encrypted by another key.
    #[must_use]
    pub(crate) fn with_secret(mut self, secret_hash: SecretHash, sealed_secret: SealedSecret) -> Self {
        self.immutable.secret_hash = secret_hash;
        self.immutable.sealed_secret = sealed_secret;
        self
    }

    /// Returns whether it has expired at `now`, deleted or not.
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.immutable.expiration_time.is_some_and(|end| end <= now)
    }

    /// Returns the remaining lifetime at `now`; `None` for no expiration.
    pub(crate) fn remaining(&self, now: Timestamp) -> Option<Duration> {
        self.immutable.expiration_time.map(|end| end.since(now))
    }

    /// Returns the hash of its mutable fields and its locality.
    pub(crate) fn content_hash(&self) -> String {
        let locality = if self.immutable.local { "local" } else { "global" };
        let links = self.links.hash_input(&self.roles);
        content_hash([self.description.clone(), locality.to_owned()].into_iter().chain(links))
    }

    /// Returns the auth method that created it.
    pub(crate) fn auth_method(&self) -> Option<&str> {
        self.immutable.login.as_ref().map(|login| login.auth_method.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_token_expires_at_its_expiration_time_or_never() {
        let created = Timestamp::from_system_time(UNIX_EPOCH + Duration::from_secs(1000));
        let check = |ttl: Option<u64>, after: u64, expired: bool, remaining: Option<u64>| {
            let immutable = ImmutableFields {
                accessor_id: Id::random(),
                secret_hash: SecretHash::new([0; 32]),
                sealed_secret: SealedSecret { key_id: String::new(), sealed: String::new() },
                namespace: NamespaceName::default_namespace(),
                local: true,
                create_time: created,
                expiration_time: ttl.map(|ttl| created.after(Duration::from_secs(ttl))),
                login: None,
            };
            let token = TokenRecord::new(immutable, String::new(), Links::default(), Vec::new());
            let now = created.after(Duration::from_secs(after));
            assert_eq!(token.is_expired(now), expired);
            assert_eq!(token.remaining(now), remaining.map(Duration::from_secs));
            let text = serde_json::to_string(&token).unwrap();
            assert_eq!(serde_json::from_str::<TokenRecord>(&text).unwrap(), token);
        };
        check(Some(60), 0, false, Some(60));
        check(Some(60), 59, false, Some(1));
        check(Some(60), 60, true, Some(0));
        check(Some(60), 90, true, Some(0));
        check(None, 1_000_000, false, None);
    }
}
