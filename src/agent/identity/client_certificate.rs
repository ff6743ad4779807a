//! A service principal by its certificate: an assertion signed with its key
//! (learn.microsoft.com, "Application authentication certificate credentials").

use std::path::Path;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::{self, SystemRandom};
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PSS_SHA256;
use azure_core::http::ClientMethodOptions;
use azure_identity::ClientAssertion;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::SecretString;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::chain::{Certificate, Principal};
use super::failure::Failure;
use super::sdk;
use super::transport::Transport;
use super::workload;
use crate::jwt;

/// Reads the certificate, signs an assertion at the time `now`, and exchanges it for a token of this scope.
pub(super) async fn token(
    transport: &Transport,
    who: &Principal,
    certificate: &Certificate,
    scope: &str,
    now: SystemTime,
) -> Result<SecretString, Failure> {
    let signer = Signer::read(&certificate.path)?;
    let assertion = signer.assertion(who, certificate.send_chain, now)?;
    workload::exchange(sdk::Client::new(transport.clone()), who, Signed(assertion.to_string()), scope).await
}

struct Signed(String);

impl std::fmt::Debug for Signed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signed")
    }
}

#[async_trait]
impl ClientAssertion for Signed {
    async fn secret(&self, _: Option<ClientMethodOptions<'_>>) -> azure_core::Result<String> {
        Ok(self.0.clone())
    }
}

/// A certificate, its chain and its key.
struct Signer {
    key: KeyPair,
    chain: Vec<CertificateDer<'static>>,
}

impl Signer {
    fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let pem = std::fs::read(path).map_err(|error| Failure::setting(format!("cannot read {name}: {error}")))?;
        Self::parse(&Zeroizing::new(pem)).map_err(|why| Failure::Setting {
            message: format!("{name} {why}"),
            hint: Some(
                "give a PEM file with the certificate and its RSA key, without a password; \
                 `openssl pkcs12 -in FILE -nodes` makes one of a PKCS#12 file",
            ),
        })
    }

    fn parse(pem: &[u8]) -> Result<Self, &'static str> {
        // A DER sequence, which no PEM text begins with.
        if pem.first() == Some(&0x30) {
            return Err("is a PKCS#12 file, which is not supported");
        }
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or("holds no PEM certificate")?;
        let encrypted = pem.windows(ENCRYPTED.len()).any(|window| window == ENCRYPTED);
        let no_key = if encrypted { "holds a key with a password" } else { "holds no PEM private key" };
        let key = match PrivateKeyDer::from_pem_slice(pem).map_err(|_| no_key)? {
            PrivateKeyDer::Pkcs8(key) => KeyPair::from_pkcs8(key.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(key) => KeyPair::from_der(key.secret_pkcs1_der()),
            _ => return Err("holds a key that is not RSA"),
        };
        Ok(Self { key: key.map_err(|_| "holds a key that is not RSA, or too short a one")?, chain })
    }

    /// An assertion of who asks, good for ten minutes.
    fn assertion(&self, who: &Principal, send_chain: bool, now: SystemTime) -> Result<Zeroizing<String>, Failure> {
        let no_random = |_| Failure::setting("the system gives no random numbers");
        let mut id = [0_u8; 16];
        rand::fill(&mut id).map_err(no_random)?;
        let leaf = self.chain.first().map(AsRef::as_ref).unwrap_or_default();
        let mut header = json!({
            "alg": "PS256", "typ": "JWT", "x5t#S256": URL_SAFE_NO_PAD.encode(digest(&SHA256, leaf)),
        });
        if send_chain {
            header["x5c"] = self.chain.iter().map(|certificate| STANDARD.encode(certificate)).collect::<Value>();
        }
        let start = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let claims = json!({
            "aud": format!("{}{}/oauth2/v2.0/token", who.authority, who.tenant), "iss": who.client_id,
            "sub": who.client_id, "jti": URL_SAFE_NO_PAD.encode(id), "nbf": start, "iat": start, "exp": start + 600,
        });
        let text = jwt::signing_input(&header, &claims);
        let mut signature = vec![0; self.key.public_modulus_len()];
        self.key
            .sign(&RSA_PSS_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .map_err(|_| Failure::setting("the certificate's key cannot sign"))?;
        Ok(Zeroizing::new(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))))
    }
}

const ENCRYPTED: &[u8] = b"ENCRYPTED";
