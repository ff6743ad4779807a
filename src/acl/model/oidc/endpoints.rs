//! Endpoints of a provider, as its discovery document names them.

use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::error::OidcError;
use crate::model::jwks_url::parse_endpoint_url;

/// Fields of a discovery document that only a login by OIDC needs, unverified: other auth methods must not fail by them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct DiscoveredEndpoints {
    authorization_endpoint: Option<Value>,
    token_endpoint: Option<Value>,
    code_challenge_methods_supported: Option<Value>,
    authorization_response_iss_parameter_supported: Option<Value>,
    /// Endpoints may be `http` on loopback: the document's own URL is. Another host's document must not send this server to
    /// a service of its own machine.
    #[serde(skip)]
    pub(crate) may_be_plain: bool,
}

/// Endpoints of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProviderEndpoints {
    /// Page to which the browser goes.
    pub(crate) authorization: Url,
    /// Endpoint that exchanges a code for an ID token.
    pub(crate) token: Url,
    /// Each answer of the provider names its issuer (RFC 9207, 3).
    pub(crate) names_issuer: bool,
}

/// Method of the code challenge (RFC 7636, 4.2).
pub(super) const CHALLENGE_METHOD: &str = "S256";

impl ProviderEndpoints {
    /// Verifies the endpoints of a discovery document.
    pub(crate) fn parse(discovered: &DiscoveredEndpoints) -> Result<Self, OidcError> {
        // Providers that omit the list may support the method all the same: Microsoft Entra ID does.
        if let Some(Value::Array(methods)) = &discovered.code_challenge_methods_supported
            && !methods.iter().any(|method| method == CHALLENGE_METHOD)
        {
            return Err(OidcError::Discovery("it offers no PKCE with S256".to_owned()));
        }
        let parse = |name: &str, value: &Option<Value>| {
            let text = value.as_ref().and_then(Value::as_str);
            let text = text.ok_or_else(|| OidcError::Discovery(format!("it names no {name}")))?;
            let url = parse_endpoint_url(text).map_err(|error| OidcError::Discovery(format!("its {name} {error}")))?;
            if url.scheme() == "http" && !discovered.may_be_plain {
                return Err(OidcError::Discovery(format!("its {name} must be https, as the document's own URL is")));
            }
            Ok(url)
        };
        Ok(Self {
            authorization: parse("authorization_endpoint", &discovered.authorization_endpoint)?,
            token: parse("token_endpoint", &discovered.token_endpoint)?,
            names_issuer: discovered.authorization_response_iss_parameter_supported == Some(Value::Bool(true)),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_endpoints_must_be_named_and_secure() {
        let parse = |document: Value| {
            let mut discovered: DiscoveredEndpoints = serde_json::from_value(document).unwrap();
            discovered.may_be_plain = true;
            ProviderEndpoints::parse(&discovered).map_err(|error| error.to_string())
        };
        let with = |name: &str, value: Value| {
            let mut document = json!({
                "authorization_endpoint": "https://login.example/authorize?p=people",
                "token_endpoint": "http://127.0.0.1:1/token/",
                "code_challenge_methods_supported": ["plain", "S256"],
            });
            document[name] = value;
            parse(document)
        };
        let found = with("issuer", json!("x")).unwrap();
        assert_eq!(found.authorization.as_str(), "https://login.example/authorize?p=people");
        assert_eq!(found.token.as_str(), "http://127.0.0.1:1/token/");
        assert!(with("code_challenge_methods_supported", Value::Null).is_ok());
        let check = |name: &str, value: Value, expected: &str| {
            let error = with(name, value).unwrap_err();
            assert!(error.ends_with(expected), "{error}");
        };
        check("code_challenge_methods_supported", json!(["plain"]), ": it offers no PKCE with S256");
        for name in ["authorization_endpoint", "token_endpoint"] {
            check(name, Value::Null, &format!("it names no {name}"));
            check(name, json!(["https://a"]), &format!("it names no {name}"));
            check(name, json!("https://u@a"), &format!("its {name} must not contain a user or a fragment"));
            check(name, json!("http://login.example/"), &format!("its {name} must be https, or http on loopback"));
        }
        assert!(!found.names_issuer);
        let supported = "authorization_response_iss_parameter_supported";
        for (value, expected) in [(json!(true), true), (json!(false), false), (json!("true"), false)] {
            assert_eq!(with(supported, value).unwrap().names_issuer, expected);
        }
    }

    #[test]
    fn a_document_that_came_over_tls_names_no_endpoint_without_it() {
        let secure = json!("https://login.example/");
        for (authorization, token, reason) in [
            (&secure, &json!("http://127.0.0.1:8200/v1/sys/seal"), "its token_endpoint must be https, as"),
            (&json!("http://localhost:1/"), &secure, "its authorization_endpoint must be https, as"),
        ] {
            // A document cannot say how it came.
            let document = json!({
                "authorization_endpoint": authorization, "token_endpoint": token, "may_be_plain": true,
            });
            let discovered: DiscoveredEndpoints = serde_json::from_value(document).unwrap();
            let error = ProviderEndpoints::parse(&discovered).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
