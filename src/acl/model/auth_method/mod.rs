//! Auth methods: how a token is got by those who prove who they are.

mod config;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use config::{Algorithm, ConfigError, KeySource, MethodConfig, Whom};

use super::go_duration::GoDuration;
use super::id::Id;
use super::names::NamespaceName;
use super::token::{MAX_TTL, MIN_TTL};

/// An auth method as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuthMethodRecord {
    /// Which one it is: one that is made anew under the same name is another.
    pub id: Id,
    /// Its name, unique in its namespace.
    pub name: String,
    /// The namespace it lives in, and the tokens that it makes.
    pub namespace: NamespaceName,
    /// Its type, which it keeps.
    pub kind: MethodType,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// Free text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// How long its tokens live; without end if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_token_ttl: Option<Duration>,
    /// Where its tokens count, if that was said: in this datacenter otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locality: Option<Locality>,
    /// What its type asks for, as it was written. [`MethodConfig::read`] has read it.
    pub config: Map<String, Value>,
}

impl AuthMethodRecord {
    /// Tells if its tokens count in this datacenter only.
    pub fn makes_local_tokens(&self) -> bool {
        self.locality != Some(Locality::Global)
    }
}

/// What a proof looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MethodType {
    /// A token of a cloud identity.
    Cloud,
    /// A signed token of any issuer.
    Jwt,
}

impl MethodType {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cloud => "cloud",
            Self::Jwt => "jwt",
        }
    }

    /// The type of that name.
    pub fn named(text: &str) -> Option<Self> {
        [Self::Cloud, Self::Jwt].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Where the tokens of a login count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Locality {
    /// In this datacenter.
    Local,
    /// In all.
    Global,
}

impl Locality {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Global => "global",
        }
    }

    /// The one of that name.
    pub fn named(text: &str) -> Option<Self> {
        match text {
            "local" => Some(Self::Local),
            "global" => Some(Self::Global),
            _ => None,
        }
    }
}

/// The life that a method gives to its tokens; zero is none.
///
/// # Errors
/// Tokens cannot live so long, or so short.
pub fn max_token_ttl(span: GoDuration) -> Result<Option<Duration>, MaxTtlError> {
    match span.span() {
        Some(Duration::ZERO) => Ok(None),
        Some(ttl) if ttl > MAX_TTL => Err(MaxTtlError::More(span, GoDuration::of(MAX_TTL))),
        Some(ttl) if ttl >= MIN_TTL => Ok(Some(ttl)),
        _ => Err(MaxTtlError::Less(span, GoDuration::of(MIN_TTL))),
    }
}

/// Why a method's tokens cannot live so long, in the words that clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MaxTtlError {
    /// Too short.
    #[error("MaxTokenTTL {0} cannot be less than {1}")]
    Less(GoDuration, GoDuration),
    /// Too long.
    #[error("MaxTokenTTL {0} cannot be more than {1}")]
    More(GoDuration, GoDuration),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_a_login_live_a_minute_to_a_day_or_without_end() {
        let check = |text: &str, wanted: Result<Option<u64>, &str>| {
            let found = max_token_ttl(text.parse().unwrap()).map_err(|error| error.to_string());
            assert_eq!(found, wanted.map(|ttl| ttl.map(Duration::from_secs)).map_err(str::to_owned), "{text}");
        };
        check("0", Ok(None));
        check("1m", Ok(Some(60)));
        check("24h", Ok(Some(86_400)));
        check("1ms", Err("MaxTokenTTL 1ms cannot be less than 1m0s"));
        check("-5m", Err("MaxTokenTTL -5m0s cannot be less than 1m0s"));
        check("25h", Err("MaxTokenTTL 25h0m0s cannot be more than 24h0m0s"));
    }
}
