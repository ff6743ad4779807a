//! Format of the descriptions of tokens that logins create.

use std::collections::BTreeMap;

use crate::model::verified_claims::VerifiedClaims;

/// Format with the placeholders `${auth_method}`, `${identity.NAME}` and `${meta.KEY}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenNameFormat(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    AuthMethod,
    Identity(String),
    Meta(String),
}

/// Error of a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenNameError {
    /// The format is too long.
    #[error("it is longer than {MAX_FORMAT} bytes")]
    TooLong,
    /// A placeholder is unclosed or unknown.
    #[error("{0:?} is none of ${{auth_method}}, ${{identity.NAME}} and ${{meta.KEY}}")]
    Placeholder(String),
    /// Consul evaluates the text as a template of Go, which no documented format needs.
    #[error("{{{{ begins a template of Go, which is not evaluated")]
    Template,
    /// The method does not map the claim.
    #[error("${{identity.{name}}} is unknown; available: {available}")]
    Unknown {
        /// Name in the placeholder.
        name: String,
        /// Names that the auth method maps.
        available: String,
    },
}

/// Longest accepted format, in bytes.
const MAX_FORMAT: usize = 512;

/// Most characters of an inserted value. The issuer or the caller decides how long it is.
const MAX_VALUE_CHARS: usize = 256;

impl TokenNameFormat {
    /// Parses a format; `claim_names` holds the names that it may use.
    pub(crate) fn parse(text: &str, claim_names: &VerifiedClaims) -> Result<Self, TokenNameError> {
        if text.len() > MAX_FORMAT {
            return Err(TokenNameError::TooLong);
        }
        if text.contains("{{") {
            return Err(TokenNameError::Template);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            parts.push(Part::Text(before.to_owned()));
            let (name, after) =
                after.split_once('}').ok_or_else(|| TokenNameError::Placeholder(format!("${{{after}")))?;
            parts.push(match name.split_once('.') {
                None if name == "auth_method" => Part::AuthMethod,
                Some(("identity", name)) => Part::Identity(mapped_name(name, claim_names)?),
                Some(("meta", key)) if !key.is_empty() => Part::Meta(key.to_owned()),
                _ => return Err(TokenNameError::Placeholder(format!("${{{name}}}"))),
            });
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
    }

    /// Formats the description of a login's token. What the login lacks is left out.
    pub(crate) fn format(&self, method: &str, claims: &VerifiedClaims, meta: &BTreeMap<String, String>) -> String {
        let mut text = String::new();
        for part in &self.0 {
            let value = match part {
                Part::Text(literal) => {
                    text.push_str(literal);
                    continue;
                }
                Part::AuthMethod => Some(method),
                Part::Identity(name) => claims.values.get(name).and_then(Option::as_deref),
                Part::Meta(key) => meta.get(key).map(String::as_str),
            };
            text.extend(value.unwrap_or_default().chars().take(MAX_VALUE_CHARS));
        }
        text
    }
}

/// Returns the name of a mapped claim, which may be written as selectors write it: `value.NAME`.
fn mapped_name(name: &str, claim_names: &VerifiedClaims) -> Result<String, TokenNameError> {
    let bare = name.strip_prefix("value.").unwrap_or(name);
    if claim_names.values.contains_key(bare) {
        return Ok(bare.to_owned());
    }
    let name = name.chars().take(128).collect();
    Err(TokenNameError::Unknown { name, available: claim_names.describe_names() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim_names() -> VerifiedClaims {
        VerifiedClaims::empty(["name", "team"], ["groups"])
    }

    #[test]
    fn a_format_inserts_the_method_claims_and_metadata() {
        let mut claims = claim_names();
        claims.values.insert("name".into(), Some("Web-1".into()));
        let meta = BTreeMap::from([("env".to_owned(), "production".to_owned()), ("long".to_owned(), "x".repeat(999))]);
        let check = |text: &str, expected: &str| {
            let format = TokenNameFormat::parse(text, &claim_names()).unwrap();
            assert_eq!(format.format("k8s", &claims, &meta), expected, "{text}");
        };
        check("Token from ${auth_method}", "Token from k8s");
        check("${auth_method}/${identity.name}/${identity.value.name}", "k8s/Web-1/Web-1");
        check("${auth_method} - ${meta.env}", "k8s - production");
        check("${identity.team}-${meta.other}-", "--");
        check("a $ b } c", "a $ b } c");
        check("${meta.long}", &"x".repeat(256));
    }

    #[test]
    fn an_unknown_placeholder_is_refused() {
        let check = |text: &str, expected: &str| {
            let error = TokenNameFormat::parse(text, &claim_names()).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        };
        check("${auth_method", "\"${auth_method\" is none of ${auth_method}, ${identity.NAME} and ${meta.KEY}");
        check("${}", "is none of");
        check("${meta.}", "is none of");
        check("${auth_method_type}", "is none of");
        check("${identity.other}", "${identity.other} is unknown; available: value.name, value.team, list.groups");
        check("${identity.groups}", "is unknown");
        check("{{.auth_method}}", "template of Go");
        check(&"x".repeat(513), "longer than 512 bytes");
    }
}
