//! Configuration of an auth method: accepted identities, keys, and claim mappings.

mod oidc;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};
use url::Url;

use super::MethodType;
use crate::model::azure_identity::FACT_NAMES;
use crate::model::go_duration::GoDuration;
use crate::model::jwks_url::parse_jwks_url;
use crate::model::jwt_rules::JwtRules;
use crate::model::oidc::OidcSettings;
use crate::model::verified_claims::VerifiedClaims;

/// Parsed configuration of an auth method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MethodConfig {
    /// Accepted identities.
    pub accepts: AcceptedIdentity,
    /// Source of the issuer's keys.
    pub keys: KeySource,
    /// Accepted signature algorithms.
    pub algorithms: Vec<Algorithm>,
}

/// Identities that a method accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AcceptedIdentity {
    /// Azure managed identities.
    Cloud {
        /// Issuer, compared byte by byte.
        issuer: String,
        /// Accepted audiences, compared byte by byte.
        audiences: Vec<String>,
    },
    /// JWTs that meet the rules.
    Jwt(JwtRules),
    /// ID tokens that a login of this server has got from the provider.
    Oidc(OidcSettings),
}

/// Source of signature keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// `OpenID` discovery document.
    Discovery {
        /// URL of the document.
        url: Url,
        /// Issuer that the document must name.
        issuer: String,
        /// CA certificates in PEM to use instead of the system store.
        ca_certificates: Option<String>,
    },
    /// JSON Web Key Set.
    Jwks {
        /// URL of the set.
        url: Url,
        /// CA certificates in PEM to use instead of the system store.
        ca_certificates: Option<String>,
    },
    /// Public keys in PEM.
    Fixed(Vec<String>),
}

/// Signature algorithm. Only asymmetric ones: a shared secret would let every verifier sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// RSA, PKCS #1 with SHA-256.
    Rs256,
    /// RSA, PKCS #1 with SHA-384.
    Rs384,
    /// RSA, PKCS #1 with SHA-512.
    Rs512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// RSA, PSS with SHA-256.
    Ps256,
}

impl Algorithm {
    const ALL: [Self; 6] = [Self::Rs256, Self::Rs384, Self::Rs512, Self::Es256, Self::Es384, Self::Ps256];

    /// Returns the `alg` value of a JWT header.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Ps256 => "PS256",
        }
    }

    /// Parses an `alg` value.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == text)
    }
}

/// Error of a configuration, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(String);

const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Most entries of a list or map in the configuration.
const MAX_ENTRIES: usize = 64;

impl MethodConfig {
    /// Parses the configuration of a method type. Keys are case-insensitive. Unknown and conflicting keys are errors.
    pub(crate) fn read(kind: MethodType, written: &Map<String, Value>) -> Result<Self, ConfigError> {
        let mut fields = Fields::new(written)?;
        if kind == MethodType::Oidc {
            return fields.into_oidc();
        }
        let issuer = fields.text("BoundIssuer")?;
        let audiences = fields.texts("BoundAudiences")?;
        let keys = fields.keys(kind, issuer.as_deref())?;
        let (accepts, algorithms) = match kind {
            MethodType::Cloud => {
                let issuer = issuer.ok_or_else(|| missing("BoundIssuer"))?;
                if audiences.is_empty() {
                    return Err(missing("BoundAudiences"));
                }
                (AcceptedIdentity::Cloud { issuer, audiences }, vec![Algorithm::Rs256])
            }
            MethodType::Jwt | MethodType::Oidc => {
                let issuer = issuer.or_else(|| match &keys {
                    KeySource::Discovery { issuer, .. } => Some(issuer.clone()),
                    _ => None,
                });
                let rules = JwtRules {
                    issuer,
                    audiences,
                    values: fields.mappings("ClaimMappings")?,
                    lists: fields.mappings("ListClaimMappings")?,
                    expiration_leeway: fields.leeway("ExpirationLeeway", Duration::from_secs(150))?,
                    not_before_leeway: fields.leeway("NotBeforeLeeway", Duration::from_secs(150))?,
                    clock_skew: fields.leeway("ClockSkewLeeway", Duration::from_mins(1))?,
                };
                (AcceptedIdentity::Jwt(rules), fields.algorithms()?)
            }
        };
        fields.finish()?;
        Ok(Self { accepts, keys, algorithms })
    }

    /// Returns the names that selectors and bind names may use.
    pub(crate) fn claim_names(&self) -> VerifiedClaims {
        match &self.accepts {
            AcceptedIdentity::Cloud { .. } => VerifiedClaims::empty(FACT_NAMES, []),
            AcceptedIdentity::Jwt(rules) | AcceptedIdentity::Oidc(OidcSettings { rules, .. }) => rules.claim_names(),
        }
    }
}

fn missing(name: &str) -> ConfigError {
    ConfigError(format!("Config {name} is required"))
}

/// Unread configuration fields by lower-case key, with the key as written.
struct Fields<'a>(BTreeMap<String, (&'a str, &'a Value)>);

impl<'a> Fields<'a> {
    fn new(written: &'a Map<String, Value>) -> Result<Self, ConfigError> {
        let mut fields = BTreeMap::new();
        for (name, value) in written.iter().filter(|(_, value)| !value.is_null()) {
            if fields.insert(name.to_ascii_lowercase(), (name.as_str(), value)).is_some() {
                return Err(ConfigError(format!("Config {} is given twice", quote(name))));
            }
        }
        Ok(Self(fields))
    }

    fn take(&mut self, name: &str) -> Option<&'a Value> {
        self.0.remove(&name.to_ascii_lowercase()).map(|(_, value)| value)
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, ConfigError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let text = weak_text(weak_single(value));
        let text = text.ok_or_else(|| ConfigError(format!("Config {name} must be a string")))?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    fn texts(&mut self, name: &str) -> Result<Vec<String>, ConfigError> {
        let fail = || ConfigError(format!("Config {name} must be a list of at most {MAX_ENTRIES} non-empty strings"));
        let Some(value) = self.take(name) else { return Ok(Vec::new()) };
        // A single value is a list of one.
        let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        if list.len() > MAX_ENTRIES {
            return Err(fail());
        }
        list.iter().map(|value| weak_text(value).filter(|text| !text.is_empty()).ok_or_else(fail)).collect()
    }

    fn keys(&mut self, kind: MethodType, issuer: Option<&str>) -> Result<KeySource, ConfigError> {
        let discovery = self.text("OIDCDiscoveryURL")?;
        let discovery_ca_certificates = self.text("OIDCDiscoveryCACert")?;
        let jwks = self.text("JWKSURL")?;
        let jwks_ca_certificates = self.text("JWKSCACert")?;
        let fixed = if kind == MethodType::Jwt { self.texts("JWTValidationPubKeys")? } else { Vec::new() };
        let reject_ca_certificates = |ca_certificates: &Option<String>, name: &str, of: &str| match ca_certificates {
            Some(_) => Err(ConfigError(format!("Config {name} is only allowed with {of}"))),
            None => Ok(()),
        };
        if discovery.is_none() {
            reject_ca_certificates(&discovery_ca_certificates, "OIDCDiscoveryCACert", "OIDCDiscoveryURL")?;
        }
        if jwks.is_none() {
            reject_ca_certificates(&jwks_ca_certificates, "JWKSCACert", "JWKSURL")?;
        }
        match (discovery, jwks, fixed.is_empty()) {
            (Some(text), None, true) => discovery_source(&text, issuer, discovery_ca_certificates),
            (None, Some(text), true) => {
                Ok(KeySource::Jwks { url: url("JWKSURL", &text)?, ca_certificates: jwks_ca_certificates })
            }
            (None, None, false) => Ok(KeySource::Fixed(fixed)),
            _ => {
                let sources = match kind {
                    MethodType::Jwt | MethodType::Oidc => "OIDCDiscoveryURL, JWKSURL and JWTValidationPubKeys",
                    MethodType::Cloud => "OIDCDiscoveryURL and JWKSURL",
                };
                Err(ConfigError(format!("Config must have exactly one of {sources}")))
            }
        }
    }

    fn algorithms(&mut self) -> Result<Vec<Algorithm>, ConfigError> {
        let names = self.texts("JWTSupportedAlgs")?;
        if names.is_empty() {
            return Ok(vec![Algorithm::Rs256]);
        }
        let parse = |name: &String| {
            let all = Algorithm::ALL.map(Algorithm::as_str).join(", ");
            let text = || format!("Config JWTSupportedAlgs has {}, which is none of {all}", quote(name));
            Algorithm::parse(name).ok_or_else(|| ConfigError(text()))
        };
        names.iter().map(parse).collect()
    }

    /// Reads a map of claim names to value names; each value name must be unique.
    fn mappings(&mut self, name: &str) -> Result<BTreeMap<String, String>, ConfigError> {
        let fail = |reason: &str| ConfigError(format!("Config {name} {reason}"));
        let Some(value) = self.take(name) else { return Ok(BTreeMap::new()) };
        let map = weak_map(value).filter(|map| map.len() <= MAX_ENTRIES);
        let map = map.ok_or_else(|| fail("must be a map of at most 64 names of claims to names"))?;
        let mut mappings: BTreeMap<String, String> = BTreeMap::new();
        for (claim, value) in &map {
            let target = value.as_str().unwrap_or_default();
            let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if !target.starts_with(|first: char| first.is_ascii_alphabetic()) || !target.bytes().all(inner) {
                return Err(fail(&format!("maps {} to an invalid name; use letters, digits and _", quote(claim))));
            }
            if mappings.values().any(|other| other == target) {
                return Err(fail(&format!("maps two claims to {}", quote(target))));
            }
            mappings.insert(claim.clone(), target.to_owned());
        }
        Ok(mappings)
    }

    /// Reads a leeway as a Go duration or in nanoseconds. Zero selects the default and a negative value disables it, as
    /// in Consul.
    fn leeway(&mut self, name: &str, default: Duration) -> Result<Duration, ConfigError> {
        let fail = || ConfigError(format!("Config {name} must be a duration, such as \"150s\""));
        let span = match self.take(name) {
            None => GoDuration(0),
            Some(value) => match weak_single(value) {
                // In Consul a string of digits is a number, too: of nanoseconds.
                Value::String(text) => match text.parse() {
                    Ok(nanoseconds) => GoDuration(nanoseconds),
                    Err(_) => text.parse().map_err(|_| fail())?,
                },
                value => GoDuration(value.as_i64().ok_or_else(fail)?),
            },
        };
        let span = span.to_duration().map_or(Duration::ZERO, |span| if span.is_zero() { default } else { span });
        if span > MAX_LEEWAY { Err(ConfigError(format!("Config {name} cannot be more than 1h0m0s"))) } else { Ok(span) }
    }

    fn finish(mut self) -> Result<(), ConfigError> {
        // Consul's Go client writes the keys of both types, with empty values for those of the other.
        self.0.retain(|name, (_, value)| !is_empty(value) || !TYPED_KEYS.contains(&name.as_str()));
        match self.0.values().next() {
            None => Ok(()),
            Some((name, _)) => Err(ConfigError(format!("Config {} is unknown for this type", quote(name)))),
        }
    }
}

/// Keys of Consul that belong to `jwt` or `oidc` alone, in lower case.
const TYPED_KEYS: [&str; 12] = [
    "allowedredirecturis",
    "boundissuer",
    "expirationleeway",
    "jwkscacert",
    "jwksurl",
    "jwtvalidationpubkeys",
    "notbeforeleeway",
    "oidcacrvalues",
    "oidcclientid",
    "oidcclientsecret",
    "oidcscopes",
    "verboseoidclogging",
];

/// Returns true for the empty value of its type.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0s",
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Returns the value of a list of one, which tools that read HCL write for a block.
fn weak_single(value: &Value) -> &Value {
    match value.as_array().map(Vec::as_slice) {
        Some([single]) => single,
        _ => value,
    }
}

/// Returns a string as Consul decodes it: a number by its digits, a bool as 1 or 0.
fn weak_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(u8::from(*flag).to_string()),
        _ => None,
    }
}

/// Returns a map as Consul decodes it: a list of maps is one map, whose later keys count.
fn weak_map(value: &Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map.clone()),
        Value::Array(maps) => maps.iter().map(weak_map).try_fold(Map::new(), |mut all, map| {
            all.extend(map?);
            Some(all)
        }),
        _ => None,
    }
}

/// Longest leeway; more would make a token's times meaningless.
const MAX_LEEWAY: Duration = Duration::from_hours(1);

/// Builds the source of keys that a discovery document names. Its issuer is its URL, unless `issuer` is another.
fn discovery_source(
    text: &str,
    issuer: Option<&str>,
    ca_certificates: Option<String>,
) -> Result<KeySource, ConfigError> {
    let base = text.strip_suffix(DISCOVERY).unwrap_or(text);
    let document = format!("{}{DISCOVERY}", base.strip_suffix('/').unwrap_or(base));
    let url = url("OIDCDiscoveryURL", &document)?;
    Ok(KeySource::Discovery { url, issuer: issuer.unwrap_or(base).to_owned(), ca_certificates })
}

fn url(name: &str, text: &str) -> Result<Url, ConfigError> {
    parse_jwks_url(text).map_err(|reason| ConfigError(format!("Config {name} {reason}")))
}

fn quote(text: &str) -> String {
    format!("{:?}", text.chars().take(128).collect::<String>())
}

#[cfg(test)]
mod tests;
