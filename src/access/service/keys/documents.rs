//! The documents that tell an issuer's keys.

use std::collections::HashMap;
use std::time::Duration;

use http::Method;
use jsonwebtoken::DecodingKey;
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::{Options, Source};
use crate::http::client;

impl Options {
    /// Fetches the keys of `issuer`: those that RS256 signatures are checked with, by their ids.
    pub(super) async fn fetch(&self, issuer: &str) -> Result<HashMap<String, DecodingKey>, FetchError> {
        let jwks = match &self.source {
            Source::Jwks(url) => url.clone(),
            Source::Discovery(url) => {
                let found: Discovery = self.document(url).await?;
                if found.issuer != issuer {
                    return Err(FetchError::Issuer { found: found.issuer, wanted: issuer.to_owned() });
                }
                Url::parse(&found.jwks_uri).map_err(|_| FetchError::NoUrl)?
            }
        };
        let set: KeySet = self.document(&jwks).await?;
        let keys: HashMap<_, _> = set.keys.iter().filter_map(usable).collect();
        if keys.is_empty() { Err(FetchError::NoKeys) } else { Ok(keys) }
    }

    async fn document<T: serde::de::DeserializeOwned>(&self, url: &Url) -> Result<T, FetchError> {
        let client = client::Options {
            address: client::Address::Url(url.clone()),
            tls: client::Tls { ca_file: self.ca_file.clone(), ..client::Tls::default() },
            proxy: client::Proxy::Environment,
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(10),
        };
        // Built anew each time: at most once a minute, and the CA file may have been replaced.
        let client = client.build()?;
        let answer = client.send(client.request(Method::GET, "")).await?;
        if answer.status != http::StatusCode::OK {
            return Err(FetchError::Status { server: client.server().to_owned(), status: answer.status.as_u16() });
        }
        serde_json::from_slice(&answer.body).map_err(|_| FetchError::Form { server: client.server().to_owned() })
    }
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// A key that RS256 signatures are checked with, by its id. Others in the set are none of our concern.
fn usable(key: &Value) -> Option<(String, DecodingKey)> {
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    let fits = text("kty") == Some("RSA")
        && text("use").is_none_or(|usage| usage == "sig")
        && text("alg").is_none_or(|algorithm| algorithm == "RS256");
    let key = DecodingKey::from_rsa_components(text("n")?, text("e")?).ok()?;
    fits.then_some((text("kid")?.to_owned(), key))
}

/// Why the keys could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{}", cause(.0))]
    Build(#[from] client::BuildError),
    #[error("{0}")]
    Transport(#[from] client::TransportError),
    #[error("{server} answers with HTTP {status}")]
    Status { server: String, status: u16 },
    #[error("{server} answers with something else than a JSON document of the kind")]
    Form { server: String },
    #[error("the discovery document is of issuer {found:?}, expected {wanted:?}")]
    Issuer { found: String, wanted: String },
    #[error("the discovery document's jwks_uri is no URL")]
    NoUrl,
    #[error("the key set holds no RSA key with an id for RS256")]
    NoKeys,
}

fn cause(error: &client::BuildError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
