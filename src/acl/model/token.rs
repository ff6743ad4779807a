//! ACL tokens.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::content_hash::content_hash;
use super::id::Id;
use super::links::Links;
use super::names::NamespaceName;
use super::secret::{SealedSecret, SecretHash};
use super::timestamp::Timestamp;

/// The shortest life that a token may be created with.
pub const MIN_TTL: Duration = Duration::from_mins(1);

/// The longest life that a token may be created with.
pub const MAX_TTL: Duration = Duration::from_hours(24);

/// A token as it is stored. Its create and modify index are the store's own and not part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenRecord {
    birth: Birth,
    /// Free text.
    #[serde(default)]
    pub description: String,
    /// What it may do, by links.
    #[serde(default)]
    pub links: Links,
    /// The roles that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Id>,
}

/// What a token is born with and keeps: there is no way to change it in a record, but for the key that its secret is
/// under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Birth {
    /// Names the token in paths and logs.
    pub accessor_id: Id,
    /// Finds the token by the secret that a caller presents.
    pub secret_hash: SecretHash,
    /// The secret, for those who may read it.
    pub sealed_secret: SealedSecret,
    /// The namespace it lives in.
    pub namespace: NamespaceName,
    /// Whether it counts in this datacenter only.
    pub local: bool,
    /// When it was made.
    pub create_time: Timestamp,
    /// When it ends; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiration_time: Option<Timestamp>,
    /// The login that made it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<LoginOrigin>,
}

/// Which login a token came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginOrigin {
    /// The auth method.
    pub auth_method: String,
    /// Which method it was: one that is deleted and made anew under the same name is another. Absent for a method of
    /// the configuration file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method_id: Option<Id>,
    /// The namespace that the method lives in.
    pub namespace: NamespaceName,
    /// The login role that was asked for, where the method has such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What the signed claims said of the caller.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
}

/// The token that a request without one counts as. It is stored like any other and may be given links.
pub const ANONYMOUS: Id = Id::special(2);

/// The secret that names it.
pub const ANONYMOUS_SECRET: &str = "anonymous";

impl TokenRecord {
    /// A record as it is first written.
    pub fn born(birth: Birth, description: String, links: Links, roles: Vec<Id>) -> Self {
        Self { birth, description, links, roles }
    }

    /// What it was born with.
    pub fn birth(&self) -> &Birth {
        &self.birth
    }

    /// The same token with its secret found and sealed by another key.
    #[must_use]
    pub fn resealed(mut self, secret_hash: SecretHash, sealed_secret: SealedSecret) -> Self {
        self.birth.secret_hash = secret_hash;
        self.birth.sealed_secret = sealed_secret;
        self
    }

    /// Whether it counts as revoked at `now`, destroyed already or not.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.birth.expiration_time.is_some_and(|end| end <= now)
    }

    /// How long it still counts at `now`; `None` for one without an end.
    pub fn remaining(&self, now: Timestamp) -> Option<Duration> {
        self.birth.expiration_time.map(|end| end.since(now))
    }

    /// The hash of what may change in it, and of whether it is local.
    pub fn content_hash(&self) -> String {
        let locality = if self.birth.local { "local" } else { "global" };
        let links = self.links.hashed(&self.roles);
        content_hash([self.description.clone(), locality.to_owned()].into_iter().chain(links))
    }

    /// The auth method whose login made it.
    pub fn auth_method(&self) -> Option<&str> {
        self.birth.login.as_ref().map(|login| login.auth_method.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_token_ends_at_its_expiration_time_and_one_without_never() {
        let created = Timestamp::of(UNIX_EPOCH + Duration::from_secs(1000));
        let check = |ttl: Option<u64>, after: u64, expired: bool, remaining: Option<u64>| {
            let birth = Birth {
                accessor_id: Id::random(),
                secret_hash: SecretHash::new([0; 32]),
                sealed_secret: SealedSecret { key_id: String::new(), sealed: String::new() },
                namespace: NamespaceName::default_one(),
                local: true,
                create_time: created,
                expiration_time: ttl.map(|ttl| created.after(Duration::from_secs(ttl))),
                login: None,
            };
            let token = TokenRecord::born(birth, String::new(), Links::default(), Vec::new());
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
