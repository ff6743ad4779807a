//! A service principal by its certificate: an assertion signed with the certificate's key
//! (learn.microsoft.com, "Application authentication certificate credentials").

use std::ffi::CString;
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
use keyward_credentials::jwt;
use keyward_machine::os::{self, KeyFileError};
use keyward_machine::secret_string::SecretString;
use memchr::memmem;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use super::azure_sdk;
use super::error::AttemptError;
use super::source_selection::{Certificate, ServicePrincipal};
use super::transport::Transport;
use super::workload;

/// Reads the certificate, signs an assertion at the time `now`, and exchanges it for a token of this scope.
pub(super) async fn request_token(
    transport: &Transport,
    principal: &ServicePrincipal,
    certificate: &Certificate,
    scope: &str,
    now: SystemTime,
) -> Result<SecretString, AttemptError> {
    let file = certificate.clone();
    // Decrypting a key takes up to a second of CPU time by design.
    let reading = tokio::task::spawn_blocking(move || Signer::read(&file)).await;
    let signer =
        reading.map_err(|_| AttemptError::setting("the client certificate was not read: keyward is stopping"))??;
    let assertion = signer.assertion(principal, certificate.send_chain, now)?;
    workload::exchange(azure_sdk::SdkHttpClient::new(transport.clone()), principal, SignedAssertion(assertion), scope)
        .await
}

struct SignedAssertion(String);

impl std::fmt::Debug for SignedAssertion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignedAssertion")
    }
}

#[async_trait]
impl ClientAssertion for SignedAssertion {
    async fn secret(&self, _: Option<ClientMethodOptions<'_>>) -> azure_core::Result<String> {
        Ok(self.0.clone())
    }
}

/// A certificate, its chain and its key.
pub(super) struct Signer {
    key: KeyPair,
    chain: Vec<CertificateDer<'static>>,
}

impl Signer {
    fn read(certificate: &Certificate) -> Result<Self, AttemptError> {
        let name = certificate.path.display();
        let content = std::fs::read(&certificate.path)
            .map_err(|error| AttemptError::setting(format!("cannot read {name}: {error}")))?;
        let password = certificate.password.as_ref().map_or("", SecretString::expose_secret);
        Self::parse(&content, password).map_err(|reason| AttemptError::Setting {
            message: format!("{name} {reason}"),
            hint: Some(
                "use a PEM or PKCS#12 file with the certificate and its RSA key, and the password of an encrypted one in \
                 AZURE_CLIENT_CERTIFICATE_PASSWORD",
            ),
        })
    }

    pub(super) fn parse(content: &[u8], password: &str) -> Result<Self, &'static str> {
        const NOT_RSA: &str = "has a key that is not RSA or is too short";
        let password = CString::new(password).map_err(|_| "cannot have a password with a NUL byte")?;
        let password = password.as_c_str();
        let wrong_password =
            if password.is_empty() { "needs a password" } else { "cannot be decrypted with the password" };
        // A DER sequence; no PEM text begins with this byte.
        if content.first() == Some(&0x30) {
            let file = os::read_pkcs12(content, password).map_err(|error| match error {
                KeyFileError::WrongPassword => wrong_password,
                KeyFileError::Unreadable => "is not a PKCS#12 file with a private key, or is damaged",
            })?;
            let chain: Vec<_> = file.certificates.into_iter().map(CertificateDer::from).collect();
            let chain = Some(chain).filter(|chain| !chain.is_empty()).ok_or("holds no certificate")?;
            return Ok(Self { key: KeyPair::from_pkcs8(&file.key).map_err(|_| NOT_RSA)?, chain });
        }
        let chain: Result<Vec<_>, _> = certificate_blocks(content).map(CertificateDer::from_pem_slice).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or("holds no PEM certificate")?;
        let key = if ENCRYPTED.iter().any(|mark| memmem::find(content, mark).is_some()) {
            let key = os::decrypt_pem_key(content, password).map_err(|error| match error {
                KeyFileError::WrongPassword => wrong_password,
                KeyFileError::Unreadable => NOT_RSA,
            })?;
            KeyPair::from_pkcs8(&key)
        } else {
            match PrivateKeyDer::from_pem_slice(content).map_err(|_| "holds no PEM private key")? {
                PrivateKeyDer::Pkcs8(key) => KeyPair::from_pkcs8(key.secret_pkcs8_der()),
                PrivateKeyDer::Pkcs1(key) => KeyPair::from_der(key.secret_pkcs1_der()),
                _ => return Err("holds a key that is not RSA"),
            }
        };
        Ok(Self { key: key.map_err(|_| NOT_RSA)?, chain })
    }

    /// Signs a client assertion that is valid for ten minutes.
    fn assertion(
        &self,
        principal: &ServicePrincipal,
        send_chain: bool,
        now: SystemTime,
    ) -> Result<String, AttemptError> {
        let no_random = |_| AttemptError::setting("the system gives no random numbers");
        let mut id = [0_u8; 16];
        rand::fill(&mut id).map_err(no_random)?;
        let leaf = self.chain.first().map(AsRef::as_ref).unwrap_or_default();
        let mut header = json!({
            "alg": "PS256", "typ": "JWT", "x5t#S256": URL_SAFE_NO_PAD.encode(digest(&SHA256, leaf)),
        });
        // The chain lets Azure trust any certificate of this subject and issuer, not only one that was uploaded.
        if send_chain {
            header["x5c"] = self.chain.iter().map(|certificate| STANDARD.encode(certificate)).collect::<Value>();
        }
        let start = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let claims = json!({
            "aud": format!("{}{}/oauth2/v2.0/token", principal.authority, principal.tenant), "iss": principal.client_id,
            "sub": principal.client_id, "jti": URL_SAFE_NO_PAD.encode(id), "nbf": start, "iat": start, "exp": start + 600,
        });
        let text = jwt::signing_input(&header, &claims);
        let mut signature = vec![0; self.key.public_modulus_len()];
        self.key
            .sign(&RSA_PSS_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .map_err(|_| AttemptError::setting("the certificate's key cannot sign"))?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// Returns the certificate blocks of a PEM text, since the PEM reader stops at the header lines of an encrypted key.
fn certificate_blocks(pem: &[u8]) -> impl Iterator<Item = &[u8]> {
    const END: &[u8] = b"-----END CERTIFICATE-----";
    memmem::find_iter(pem, b"-----BEGIN CERTIFICATE-----").map(|start| {
        let end = memmem::find(&pem[start..], END).map_or(pem.len(), |end| start + end + END.len());
        &pem[start..end]
    })
}

/// Markers of an encrypted key in PEM: PKCS#8 (RFC 7468 11), and the older form of RFC 1421 4.6.1.1.
const ENCRYPTED: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];
