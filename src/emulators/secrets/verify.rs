//! Verification of login proofs with the checks, order and messages of the real auth method (go-oidc's verifier, then
//! the method's own check of `nbf`). The real server answers every failure with HTTP 500.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use keyward_http::client;
use serde_json::Value;
use tokio::sync::Mutex;
use url::Url;

use super::tokens::rfc3339;

/// Claims of a verified proof.
pub(super) type Claims = serde_json::Map<String, Value>;

/// Verifier for one issuer. Caches the issuer's keys; failures are not cached.
#[derive(Debug)]
pub(super) struct Verifier {
    client: client::Client,
    discovery: Url,
    audience: String,
    issuer: Mutex<Option<Issuer>>,
}

#[derive(Debug)]
struct Issuer {
    name: String,
    keys_path: String,
    keys: JwkSet,
}

impl Verifier {
    pub(super) fn new(discovery: &Url, ca_file: PathBuf, audience: &str) -> Result<Self, client::BuildError> {
        let mut origin = discovery.clone();
        origin.set_path("/");
        let options = client::ClientOptions {
            address: client::ServerAddress::Url(origin),
            tls: client::TlsOptions { ca_file: Some(ca_file), ..client::TlsOptions::default() },
            proxy: client::ProxyMode::Direct,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(10),
        };
        let discovery = discovery.clone();
        let audience = audience.to_owned();
        Ok(Self { client: options.build()?, discovery, audience, issuer: Mutex::new(None) })
    }

    /// Returns the claims, or the real server's error message.
    pub(super) async fn verify(&self, jwt: &str, now: SystemTime) -> Result<Claims, String> {
        let mut issuer = self.issuer.lock().await;
        let issuer = match &mut *issuer {
            Some(issuer) => issuer,
            empty => empty.insert(self.discover().await?),
        };
        let claims = claims(jwt)?;
        let iss = claims.get("iss").and_then(Value::as_str).unwrap_or_default();
        if iss != issuer.name {
            let expected = &issuer.name;
            return Err(format!("oidc: id token issued by a different provider, expected {expected:?} got {iss:?}"));
        }
        self.check_audience(&claims)?;
        let exp = time(&claims, "exp").unwrap_or(SystemTime::UNIX_EPOCH);
        if exp <= now {
            return Err(format!("oidc: token is expired (Token Expiry: {})", rfc3339(exp)));
        }
        let nbf = time(&claims, "nbf").unwrap_or(SystemTime::UNIX_EPOCH);
        if nbf > now + LEEWAY {
            let now = rfc3339(now);
            let nbf = rfc3339(nbf);
            return Err(format!("oidc: current time {now} before the nbf (not before) time: {nbf}"));
        }
        self.check_signature(jwt, issuer).await?;
        if nbf > now {
            return Err(format!("token is not yet valid (Token Not Before: {})", rfc3339(nbf)));
        }
        Ok(claims)
    }

    fn check_audience(&self, claims: &Claims) -> Result<(), String> {
        let audiences: Vec<&str> = match claims.get("aud") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if audiences.contains(&self.audience.as_str()) {
            return Ok(());
        }
        let quoted: Vec<String> = audiences.iter().map(|audience| format!("{audience:?}")).collect();
        Err(format!("oidc: expected audience {:?} got [{}]", self.audience, quoted.join(" ")))
    }

    async fn check_signature(&self, jwt: &str, issuer: &mut Issuer) -> Result<(), String> {
        let header = jsonwebtoken::decode_header(jwt).map_err(|error| format!("oidc: malformed jwt: {error}"))?;
        if header.alg != Algorithm::RS256 {
            let got = header.alg;
            return Err(format!(
                "oidc: id token signed with unsupported algorithm, expected [\"RS256\"] got \"{got:?}\""
            ));
        }
        let kid = header.kid.unwrap_or_default();
        if issuer.keys.find(&kid).is_none() {
            issuer.keys = self
                .get(&issuer.keys_path)
                .await
                .and_then(|keys| serde_json::from_value(keys).map_err(|error| error.to_string()))
                .map_err(|error| format!("failed to verify signature: fetching keys {error}"))?;
        }
        let mut rules = Validation::new(Algorithm::RS256);
        // Time, issuer and audience are checked above, in the real server's order.
        rules.required_spec_claims.clear();
        rules.validate_exp = false;
        rules.validate_aud = false;
        let good = issuer.keys.find(&kid).and_then(|key| DecodingKey::from_jwk(key).ok());
        let good = good.is_some_and(|key| jsonwebtoken::decode::<Claims>(jwt, &key, &rules).is_ok());
        if good { Ok(()) } else { Err("failed to verify signature: failed to verify id token signature".to_owned()) }
    }

    async fn discover(&self) -> Result<Issuer, String> {
        let document = self.get(self.discovery.path()).await?;
        let text = |name: &str| document.get(name).and_then(Value::as_str).map(str::to_owned);
        let keys = text("jwks_uri").and_then(|url| Url::parse(&url).ok());
        match (text("issuer"), keys) {
            (Some(name), Some(keys)) if keys.origin() == self.discovery.origin() => {
                Ok(Issuer { name, keys_path: keys.path().to_owned(), keys: JwkSet { keys: Vec::new() } })
            }
            _ => Err("unable to unmarshal discovery url: issuer or jwks_uri is missing".to_owned()),
        }
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        let response = self.client.send(self.client.request(Method::GET, path)).await;
        let response = response.map_err(|error| format!("dial tcp: {error}"))?;
        if !response.status.is_success() {
            return Err(format!("{}: {}", response.status, String::from_utf8_lossy(&response.body)));
        }
        serde_json::from_slice(&response.body).map_err(|error| format!("unable to unmarshal discovery url: {error}"))
    }
}

/// Tolerance of go-oidc for `nbf`; the auth method itself has none.
const LEEWAY: Duration = Duration::from_mins(5);

fn claims(jwt: &str) -> Result<Claims, String> {
    let parts: Vec<&str> = jwt.split('.').collect();
    let [_, claims, _] = parts.as_slice() else {
        return Err(format!("oidc: malformed jwt: oidc: malformed jwt, expected 3 parts got {}", parts.len()));
    };
    let claims = URL_SAFE_NO_PAD
        .decode(claims)
        .map_err(|error| format!("oidc: malformed jwt: oidc: malformed jwt payload: {error}"))?;
    serde_json::from_slice(&claims).map_err(|_| "oidc: failed to unmarshal claims".to_owned())
}

fn time(claims: &Claims, name: &str) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(claims.get(name)?.as_u64()?))
}
