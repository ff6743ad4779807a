//! A small issuer of cloud identities: real keys, real signatures, a discovery document, a key set and fault injection.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512, RsaEncoding};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use keyward_credentials::jwt::signing_input;
use keyward_http::server::{Endpoint, IncomingBody, Listener, ListenerLimits, Peer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) const AUDIENCE: &str = "https://management.example/";
pub(crate) const PRINCIPAL: &str = "33333333-3333-3333-3333-333333333333";
pub(crate) const MACHINE: &str =
    "/subscriptions/sub-1/resourcegroups/group-1/providers/Microsoft.Compute/virtualMachines/web-1";

/// A key that signs, and the id it goes by.
pub(crate) struct Key {
    pub(crate) id: String,
    pair: Arc<KeyPair>,
}

/// Making one takes long.
static SHARED: LazyLock<Arc<KeyPair>> = LazyLock::new(|| Arc::new(KeyPair::generate(KeySize::Rsa2048).unwrap()));

impl Key {
    pub(crate) fn new(id: &str) -> Self {
        Self { id: id.to_owned(), pair: Arc::new(KeyPair::generate(KeySize::Rsa2048).unwrap()) }
    }

    /// The one that all tests may use which do not ask for another.
    pub(crate) fn shared(id: &str) -> Self {
        Self { id: id.to_owned(), pair: Arc::clone(&SHARED) }
    }

    pub(crate) fn jwk(&self) -> Value {
        let public = self.pair.public_key();
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let modulus = number(public.modulus().big_endian_without_leading_zero());
        let exponent = number(public.exponent().big_endian_without_leading_zero());
        json!({"kty": "RSA", "use": "sig", "kid": self.id, "n": modulus, "e": exponent})
    }

    /// The public key in PEM.
    pub(crate) fn pem(&self) -> String {
        pem(self.pair.public_key().as_der().unwrap().as_ref())
    }

    /// Signs with RS256, whatever algorithm the header names.
    pub(crate) fn sign_as(&self, header: &Value, claims: &Value) -> String {
        self.signed(&signing_input(header, claims), false)
    }

    /// Signs with RS512, and names it in the header.
    pub(crate) fn sign_rs512(&self, claims: &Value) -> String {
        self.signed(&signing_input(&json!({"alg": "RS512", "kid": self.id}), claims), true)
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_as(&json!({"typ": "JWT", "alg": "RS256", "kid": self.id}), claims)
    }

    fn signed(&self, text: &str, sha512: bool) -> String {
        self.signed_with(text, if sha512 { &RSA_PKCS1_SHA512 } else { &RSA_PKCS1_SHA256 })
    }

    /// Signs with the given function.
    pub(crate) fn signed_with(&self, text: &str, how: &'static dyn RsaEncoding) -> String {
        let mut signature = vec![0; self.pair.public_modulus_len()];
        self.pair.sign(how, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// A public key in PEM.
pub(crate) fn pem(der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
}

/// The issuer. It stops when it is dropped.
pub(crate) struct Issuer {
    pub(crate) url: String,
    pub(crate) key: Key,
    pub(crate) faults: Arc<IssuerFaults>,
    _serving: JoinSet<()>,
}

#[derive(Default)]
pub(crate) struct IssuerFaults {
    /// The keys that the set holds.
    pub(crate) keys: Mutex<Vec<Value>>,
    /// True if the key set's endpoint answers with 500.
    pub(crate) failing: AtomicBool,
    /// The issuer that the discovery document names; its own if empty.
    pub(crate) claimed: Mutex<String>,
    /// Times that the key set was fetched.
    pub(crate) fetches: AtomicUsize,
}

impl IssuerFaults {
    fn respond(&self, path: &str, own: &str) -> (StatusCode, Value) {
        match path {
            "/tenant/.well-known/openid-configuration" => {
                let claimed = self.claimed.lock();
                let issuer = if claimed.is_empty() { own } else { claimed.as_str() };
                (StatusCode::OK, json!({"issuer": issuer, "jwks_uri": format!("{own}keys")}))
            }
            "/tenant/keys" => {
                self.fetches.fetch_add(1, Ordering::Relaxed);
                if self.failing.load(Ordering::Relaxed) {
                    return (StatusCode::INTERNAL_SERVER_ERROR, Value::Null);
                }
                (StatusCode::OK, json!({"keys": *self.keys.lock()}))
            }
            _ => (StatusCode::NOT_FOUND, Value::Null),
        }
    }
}

impl Issuer {
    pub(crate) fn start() -> Self {
        let listener = Listener::bind(&Endpoint::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let url = format!("http://{}/tenant/", listener.tcp_address().unwrap());
        let key = Key::shared("key-1");
        let faults = Arc::new(IssuerFaults { keys: Mutex::new(vec![key.jwk()]), ..IssuerFaults::default() });
        let (shared, own) = (Arc::clone(&faults), url.clone());
        let respond = move |_: Peer, request: Request<IncomingBody>| {
            let (status, body) = shared.respond(request.uri().path(), &own);
            let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
            *response.status_mut() = status;
            std::future::ready(response)
        };
        let mut serving = JoinSet::new();
        serving.spawn(listener.serve(respond, ListenerLimits::default(), CancellationToken::new()));
        Self { url, key, faults, _serving: serving }
    }

    pub(crate) fn fetches(&self) -> usize {
        self.faults.fetches.load(Ordering::Relaxed)
    }

    /// Claims of a machine's own identity, valid for an hour from `now`.
    pub(crate) fn claims(&self, now: SystemTime) -> Value {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        json!({
            "iss": self.url, "aud": AUDIENCE, "exp": now + 3600, "nbf": now - 300, "iat": now - 300,
            "oid": PRINCIPAL, "sub": PRINCIPAL, "tid": "tenant", "appid": "app-1", "xms_mirid": MACHINE,
        })
    }
}
