//! A small `OpenID` provider: codes that count once, PKCE, real signatures, and fault injection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use keyward_http::server::{Endpoint, IncomingBody, Listener, ListenerLimits, Peer, ResponseFuture};
use keyward_http::tls::ServerTls;
use parking_lot::Mutex;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::issuer::Key;

/// Client id of every method that uses it.
pub(crate) const CLIENT: &str = "keyward";

/// Redirect URI of the methods of tests that serve none.
pub(crate) const REDIRECT: &str = "http://localhost:8550/oidc/callback";

/// The provider. It stops when it is dropped.
pub(crate) struct OpenIdProvider {
    /// Its issuer, with a path and without a slash at its end.
    pub(crate) url: String,
    pub(crate) key: Key,
    pub(crate) faults: Arc<ProviderFaults>,
    _serving: JoinSet<()>,
}

/// Answer of the token endpoint.
#[derive(Default)]
pub(crate) enum TokenAnswer {
    /// As a provider answers.
    #[default]
    Usual,
    /// This status and body, whatever the request is.
    Fixed(u16, String),
    /// None, until the caller goes.
    Never,
}

#[derive(Default)]
pub(crate) struct ProviderFaults {
    /// Fields of the discovery document that differ; `null` for absent ones.
    pub(crate) discovery: Mutex<BTreeMap<&'static str, Value>>,
    /// Claims of ID tokens that differ; `null` for absent ones.
    pub(crate) claims: Mutex<BTreeMap<&'static str, Value>>,
    /// ID token to return instead of a signed one.
    pub(crate) id_token: Mutex<Option<String>>,
    pub(crate) answer: Mutex<TokenAnswer>,
    /// Requests of authorization by their code, which is removed by its use.
    codes: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
    /// Forms that the token endpoint has received.
    pub(crate) exchanges: Mutex<Vec<BTreeMap<String, String>>>,
}

fn pairs(text: &str) -> BTreeMap<String, String> {
    Url::parse(&format!("http://form/?{text}")).unwrap().query_pairs().into_owned().collect()
}

fn overridden(mut value: Value, changes: &BTreeMap<&'static str, Value>) -> Value {
    for (name, change) in changes {
        value[*name] = change.clone();
    }
    value.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    value
}

impl ProviderFaults {
    fn discovery(&self, own: &str) -> Value {
        let document = json!({
            "issuer": own, "jwks_uri": format!("{own}/keys/"),
            "authorization_endpoint": format!("{own}/authorize?tenant=a"), "token_endpoint": format!("{own}/token/?tenant=a"),
            "code_challenge_methods_supported": ["S256"],
        });
        overridden(document, &self.discovery.lock())
    }

    /// Exchanges a code as RFC 6749, 4.1.3 and RFC 7636, 4.6 say.
    fn exchange(&self, form: &BTreeMap<String, String>, own: &str, key: &Key) -> (u16, Value) {
        self.exchanges.lock().push(form.clone());
        let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        let asked = self.codes.lock().remove(field("code"));
        let refused = |text: &str| (400, json!({"error": "invalid_grant", "error_description": text}));
        let Some(asked) = asked else { return refused("unknown code") };
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, field("code_verifier").as_bytes()));
        if field("grant_type") != "authorization_code" || form.contains_key("client_secret") {
            return (400, json!({"error": "unsupported_grant_type"}));
        }
        for (name, found) in [
            ("client_id", field("client_id")),
            ("redirect_uri", field("redirect_uri")),
            ("code_challenge", challenge.as_str()),
        ] {
            if asked[name] != found {
                return refused(&format!("{name} differs"));
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let claims = json!({
            "iss": own, "sub": "7", "aud": CLIENT, "exp": now + 300, "iat": now, "nonce": asked["nonce"],
            "name": "Alice", "groups": ["ops", "dev"],
        });
        let token = key.sign(&overridden(claims, &self.claims.lock()));
        let token = self.id_token.lock().clone().unwrap_or(token);
        (
            200,
            json!({"access_token": "access-canary", "refresh_token": "refresh-canary", "token_type": "Bearer", "id_token": token}),
        )
    }
}

fn respond(status: u16, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

impl OpenIdProvider {
    pub(crate) fn start() -> Self {
        Self::serve(None)
    }

    /// Serves over TLS, if it is given.
    pub(crate) fn serve(tls: Option<ServerTls>) -> Self {
        let listener = Listener::bind(&Endpoint::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}/realm", listener.tcp_address().unwrap());
        let faults = Arc::new(ProviderFaults::default());
        let (shared, own) = (Arc::clone(&faults), url.clone());
        let service = move |_: Peer, request: Request<IncomingBody>| {
            let (faults, own, key) = (Arc::clone(&shared), own.clone(), Key::shared("key-1"));
            ResponseFuture::waiting(async move {
                let (head, body) = request.into_parts();
                match head.uri.path() {
                    "/realm/.well-known/openid-configuration" => respond(200, faults.discovery(&own).to_string()),
                    // As it is written: with its slash.
                    "/realm/keys/" => respond(200, json!({"keys": [key.jwk()]}).to_string()),
                    "/realm/token/" if head.uri.query() == Some("tenant=a") => {
                        let body = body.collect().await.unwrap().to_bytes();
                        let usual = faults.exchange(&pairs(std::str::from_utf8(&body).unwrap()), &own, &key);
                        let fixed = match &*faults.answer.lock() {
                            TokenAnswer::Usual => Some((usual.0, usual.1.to_string())),
                            TokenAnswer::Fixed(status, body) => Some((*status, body.clone())),
                            TokenAnswer::Never => None,
                        };
                        match fixed {
                            Some((status, body)) => respond(status, body),
                            None => std::future::pending().await,
                        }
                    }
                    _ => respond(404, "null".to_owned()),
                }
            })
        };
        let mut serving = JoinSet::new();
        let limits = ListenerLimits { tls, ..ListenerLimits::default() };
        serving.spawn(listener.serve(service, limits, CancellationToken::new()));
        Self { url, key: Key::shared("key-1"), faults, _serving: serving }
    }

    /// Configuration of an auth method that uses it.
    pub(crate) fn config(&self) -> Value {
        json!({
            "OIDCDiscoveryURL": self.url, "OIDCClientID": CLIENT, "AllowedRedirectURIs": [REDIRECT],
            "ClaimMappings": {"name": "name"}, "ListClaimMappings": {"groups": "groups"},
        })
    }

    /// Logs a person in as the browser's page does: returns the code and the state with which the browser goes back.
    pub(crate) fn authorize(&self, auth_url: &str) -> (String, String) {
        let (page, query) = auth_url.split_once('?').unwrap();
        assert_eq!(page, format!("{}/authorize", self.url));
        let asked = pairs(query);
        for (name, expected) in
            [("tenant", "a"), ("response_type", "code"), ("client_id", CLIENT), ("code_challenge_method", "S256")]
        {
            assert_eq!(asked[name], expected, "{name} in {auth_url}");
        }
        assert!(asked["scope"].split(' ').any(|scope| scope == "openid"), "{auth_url}");
        let code = format!("code-{}", uuid::Uuid::new_v4());
        let state = asked["state"].clone();
        self.faults.codes.lock().insert(code.clone(), asked);
        (code, state)
    }
}
