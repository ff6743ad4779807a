//! Discovery documents and key sets of issuers.

use http::Method;
use jsonwebtoken::DecodingKey;
use keyward_http::client;
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::{IssuerKey, IssuerKeyOptions, KeyDocument, KeyType};
use crate::model::jwks_url::{JwksUrlError, parse_jwks_url};
use crate::model::oidc::DiscoveredEndpoints;

impl IssuerKeyOptions {
    /// Fetches the signature keys of `issuer`, and the endpoints if a discovery document names the keys.
    pub(super) async fn fetch(&self, issuer: &str) -> Result<FetchedDocuments, FetchError> {
        let mut endpoints = DiscoveredEndpoints::default();
        let jwks = match &self.source {
            KeyDocument::Jwks(url) => url.clone(),
            KeyDocument::Discovery(url) => {
                let document: Discovery = self.document(url).await?;
                // OpenID Connect Discovery 1.0, 4.3: another issuer's document, and its keys, are not used.
                if document.issuer != issuer {
                    return Err(FetchError::Issuer { found: document.issuer, expected: issuer.to_owned() });
                }
                endpoints = document.endpoints;
                endpoints.may_be_plain = url.scheme() == "http";
                // Anyone on the path to an `http` URL could replace the keys.
                let keys = parse_jwks_url(&document.jwks_uri).map_err(FetchError::KeysUrl)?;
                // Another host's document must not send this server to a service of its own machine.
                if keys.scheme() == "http" && !endpoints.may_be_plain {
                    return Err(FetchError::PlainKeysUrl);
                }
                keys
            }
        };
        let set: JwkSet = self.document(&jwks).await?;
        let keys = set.signing_keys();
        if keys.is_empty() { Err(FetchError::NoKeys) } else { Ok(FetchedDocuments { keys, endpoints }) }
    }

    async fn document<T: serde::de::DeserializeOwned>(&self, url: &Url) -> Result<T, FetchError> {
        // A new client for each fetch: at most one a minute, and the CA file may have been replaced.
        let client = self.ca_certificates.client_options(url.clone()).build()?;
        let response = client.send(client.request_to_address(Method::GET)).await?;
        if response.status != http::StatusCode::OK {
            return Err(FetchError::Status { server: client.server().to_owned(), status: response.status.as_u16() });
        }
        parse_object(&response.body).ok_or_else(|| FetchError::Malformed { server: client.server().to_owned() })
    }
}

/// Parses a JSON object. For serde, an array of the fields' values would do as well.
pub(crate) fn parse_object<T: serde::de::DeserializeOwned>(document: &[u8]) -> Option<T> {
    document.trim_ascii_start().starts_with(b"{").then(|| serde_json::from_slice(document).ok())?
}

/// Content of an issuer's documents.
pub(super) struct FetchedDocuments {
    pub(super) keys: Vec<IssuerKey>,
    pub(super) endpoints: DiscoveredEndpoints,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
    #[serde(flatten)]
    endpoints: DiscoveredEndpoints,
}

#[derive(Deserialize)]
pub(super) struct JwkSet {
    keys: Vec<Value>,
}

impl JwkSet {
    pub(super) fn signing_keys(&self) -> Vec<IssuerKey> {
        self.keys.iter().filter_map(parse_signing_key).collect()
    }
}

/// Parses a signature key of a JWK set; `None` for other keys. A key whose `use`, `alg` or `kid` is not a string is
/// skipped: without the restriction it would verify more than its issuer allows.
fn parse_signing_key(key: &Value) -> Option<IssuerKey> {
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    let optional = |name: &str| match key.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(value) => value.as_str().map(Some),
    };
    // RFC 7517, 4.2: the other registered use, `enc`, is for encryption. A bundle of SPIFFE marks its keys of tokens, beside those of
    // certificates (spiffe.io, "SPIFFE Trust Domain and Bundle", 4.2.2).
    optional("use")?.is_none_or(|usage| ["sig", "jwt-svid"].contains(&usage)).then_some(())?;
    let (key_type, decoding) = match (text("kty")?, text("crv")) {
        ("RSA", _) => (KeyType::Rsa, DecodingKey::from_rsa_components(text("n")?, text("e")?)),
        ("EC", Some("P-256")) => (KeyType::P256, DecodingKey::from_ec_components(text("x")?, text("y")?)),
        ("EC", Some("P-384")) => (KeyType::P384, DecodingKey::from_ec_components(text("x")?, text("y")?)),
        _ => return None,
    };
    let [id, algorithm] = [optional("kid")?, optional("alg")?].map(|text| text.map(str::to_owned));
    Some(IssuerKey { id, algorithm, key_type, key: decoding.ok()? })
}

/// Error of a fetch.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{}", cause(.0))]
    Build(#[from] client::BuildError),
    #[error("{0}")]
    Transport(#[from] client::TransportError),
    #[error("{server} returned HTTP {status}")]
    Status { server: String, status: u16 },
    #[error("{server} did not return a valid JSON document")]
    Malformed { server: String },
    #[error("the discovery document is of issuer {found:?}, expected {expected:?}")]
    Issuer { found: String, expected: String },
    #[error("the discovery document's jwks_uri {0}")]
    KeysUrl(JwksUrlError),
    #[error("the discovery document's jwks_uri must be https, as the document's own URL is")]
    PlainKeysUrl,
    #[error("the key set has no RSA, P-256 or P-384 signature key")]
    NoKeys,
}

fn cause(error: &client::BuildError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_serves_for_tokens_unless_it_says_otherwise() {
        let check = |usage: Value, expected: bool| {
            let mut key = json!({
                "kty": "EC", "crv": "P-256", "kid": "a",
                "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
            });
            key["use"] = usage;
            assert_eq!(parse_signing_key(&key).is_some(), expected, "{key}");
        };
        for usage in [Value::Null, json!("sig"), json!("jwt-svid")] {
            check(usage, true);
        }
        for usage in [json!("enc"), json!("x509-svid"), json!(""), json!(["sig"])] {
            check(usage, false);
        }
    }
}
