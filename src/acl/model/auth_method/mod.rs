//! Auth method records: exchange of a verified identity for a token.

mod config;
mod token_name;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use config::{AcceptedIdentity, Algorithm, KeySource, MethodConfig};
pub(crate) use token_name::TokenNameFormat;

use super::go_duration::GoDuration;
use super::id::Id;
use super::names::NamespaceName;
use super::token::{MAX_TTL, MIN_TTL};

/// An auth method as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AuthMethodRecord {
    /// Unique id; a new method with the same name has another one.
    pub id: Id,
    /// Name, unique within the namespace.
    pub name: String,
    /// Namespace of the method and of its tokens.
    pub namespace: NamespaceName,
    /// Type; immutable.
    pub kind: MethodType,
    /// Display name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// Description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Lifetime of its tokens; `None` for no expiration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_token_ttl: Option<Duration>,
    /// Locality of its tokens; `None` means local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locality: Option<Locality>,
    /// Rules for the namespace of its tokens, of which the first that matches applies; only for a method in `default`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespace_rules: Vec<NamespaceRule>,
    /// Description of its tokens, validated by [`TokenNameFormat::parse`]; empty for the usual one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token_name_format: String,
    /// Configuration of the type as written, validated by [`MethodConfig::read`].
    pub config: Map<String, Value>,
}

impl AuthMethodRecord {
    /// Returns true if its tokens are valid in this datacenter only.
    pub(crate) fn makes_local_tokens(&self) -> bool {
        self.locality != Some(Locality::Global)
    }
}

/// Rule of an auth method that decides in which namespace a login gets its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamespaceRule {
    /// Selector of logins; empty for all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// Name of the namespace, with placeholders for claims.
    pub bind_namespace: String,
}

/// Type of an auth method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MethodType {
    /// Token of an Azure managed identity.
    Cloud,
    /// JWT of any issuer.
    Jwt,
    /// Login of a person at an `OpenID` provider, in a browser.
    Oidc,
}

impl MethodType {
    /// Returns the name in requests and responses.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Cloud => "cloud",
            Self::Jwt => "jwt",
            Self::Oidc => "oidc",
        }
    }

    /// Parses a type name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Cloud, Self::Jwt, Self::Oidc].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Scope of the tokens of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Locality {
    /// This datacenter.
    Local,
    /// All datacenters.
    Global,
}

impl Locality {
    /// Returns the name in requests and responses.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Global => "global",
        }
    }

    /// Parses a locality name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "local" => Some(Self::Local),
            "global" => Some(Self::Global),
            _ => None,
        }
    }
}

/// Converts a requested token lifetime; zero means no expiration.
pub(crate) fn max_token_ttl(span: GoDuration) -> Result<Option<Duration>, MaxTtlError> {
    match span.to_duration() {
        Some(Duration::ZERO) => Ok(None),
        Some(ttl) if ttl > MAX_TTL => Err(MaxTtlError::TooLong(span, GoDuration::from_duration(MAX_TTL))),
        Some(ttl) if ttl >= MIN_TTL => Ok(Some(ttl)),
        _ => Err(MaxTtlError::TooShort(span, GoDuration::from_duration(MIN_TTL))),
    }
}

/// Error of a token lifetime, in Consul's wording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MaxTtlError {
    /// Too short.
    #[error("MaxTokenTTL {0} cannot be less than {1}")]
    TooShort(GoDuration, GoDuration),
    /// Too long.
    #[error("MaxTokenTTL {0} cannot be more than {1}")]
    TooLong(GoDuration, GoDuration),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_a_login_live_a_minute_to_a_day_or_without_end() {
        let check = |text: &str, expected: Result<Option<u64>, &str>| {
            let found = max_token_ttl(text.parse().unwrap()).map_err(|error| error.to_string());
            assert_eq!(found, expected.map(|ttl| ttl.map(Duration::from_secs)).map_err(str::to_owned), "{text}");
        };
        check("0", Ok(None));
        check("1m", Ok(Some(60)));
        check("24h", Ok(Some(86_400)));
        check("1ms", Err("MaxTokenTTL 1ms cannot be less than 1m0s"));
        check("-5m", Err("MaxTokenTTL -5m0s cannot be less than 1m0s"));
        check("25h", Err("MaxTokenTTL 25h0m0s cannot be more than 24h0m0s"));
    }
}
