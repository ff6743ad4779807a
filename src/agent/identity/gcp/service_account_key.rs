//! The private key of a service account, which signs tokens without a call
//! (cloud.google.com, "Create and delete service account keys").

use std::path::Path;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use keyward_credentials::jwt;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::identity::error::AttemptError;

/// A service account and its key.
pub(super) struct ServiceAccountKey {
    pub(super) email: String,
    key_id: String,
    key: KeyPair,
}

#[derive(Deserialize)]
struct Document {
    r#type: String,
    client_email: Option<String>,
    private_key_id: Option<String>,
    private_key: Option<String>,
}

impl ServiceAccountKey {
    /// Reads a key from its JSON file. Blocks.
    pub(super) fn read(file: &Path) -> Result<Self, AttemptError> {
        let text = secret::read_file(file).map_err(|error| AttemptError::NoAssertion(format_chain(&error)))?;
        Self::parse(text.expose_secret()).map_err(|reason| AttemptError::Setting {
            message: format!("{} {reason}", file.display()),
            hint: Some(
                "use the JSON key of a service account; on a machine of Google Cloud leave credentials_file out",
            ),
        })
    }

    /// Parses a key. Errors quote nothing of it but its type.
    fn parse(text: &str) -> Result<Self, String> {
        let document: Document =
            serde_json::from_str(text).map_err(|_| "is not the JSON of Google credentials".to_owned())?;
        if document.r#type != "service_account" {
            let kind: String = document.r#type.chars().filter(char::is_ascii_graphic).take(40).collect();
            return Err(format!("holds credentials of the type {kind}, not service_account"));
        }
        let (Some(email), Some(key_id), Some(pem)) =
            (document.client_email, document.private_key_id, document.private_key)
        else {
            return Err("lacks client_email, private_key_id or private_key".to_owned());
        };
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).ok();
        let key = key.and_then(|key| KeyPair::from_pkcs8(key.secret_pkcs8_der()).ok());
        Ok(Self { email, key_id, key: key.ok_or("holds no RSA key in PKCS#8")? })
    }

    /// Signs claims.
    pub(super) fn sign(&self, claims: &Value) -> Result<SecretString, AttemptError> {
        let text = jwt::signing_input(&json!({ "alg": "RS256", "typ": "JWT", "kid": self.key_id }), claims);
        let mut signature = vec![0; self.key.public_modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .map_err(|_| AttemptError::setting("the key of the service account cannot sign"))?;
        Ok(format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_key_is_refused_without_quoting_it() {
        let check = |text: &str, expected: &str| {
            let error = ServiceAccountKey::parse(text).err().unwrap();
            assert!(error.contains(expected) && !error.contains("canary"), "{error}");
        };
        check("canary", "is not the JSON of Google credentials");
        check(r#"{"type":"external_account"}"#, "the type external_account, not service_account");
        check(r#"{"type":"service_account","private_key":"canary"}"#, "lacks client_email");
        let damaged = r#"{"type":"service_account","client_email":"a@b","private_key_id":"1","private_key":"canary"}"#;
        check(damaged, "holds no RSA key");
    }
}
