//! The emulated project of Google Cloud: its machine, its service accounts with their keys, and issued access tokens.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};

use super::StartError;
use super::identities::random_secret;
use super::keys::SigningKey;

/// Names of the emulated project of Google Cloud and its machine, which are the same for all.
#[derive(Debug, Clone, Copy)]
pub struct GcpNames;

impl GcpNames {
    /// Id of the project.
    pub const PROJECT: &str = "keyward-dev";
    /// Number of the project.
    pub(crate) const PROJECT_NUMBER: u64 = 111_122_223_333;
    /// Zone of the machine.
    pub const ZONE: &str = "europe-west1-b";
    /// Name of the machine.
    pub const INSTANCE: &str = "keyward-vm";
    /// Id of the machine.
    pub const INSTANCE_ID: &str = "1234567890123456789";
    /// When the machine was created, in seconds since 1970.
    pub(crate) const CREATED: i64 = 1_767_225_600;
    /// Service account of the machine.
    pub const ACCOUNT: &str = "keyward-vm@keyward-dev.iam.gserviceaccount.com";
    /// Unique id of that account.
    pub const ACCOUNT_ID: &str = "100000000000000000001";
    /// A service account with a key of its own, as a server has one to ask Google about machines.
    pub const KEY_ACCOUNT: &str = "server@keyward-dev.iam.gserviceaccount.com";
    /// Unique id of that account.
    pub(crate) const KEY_ACCOUNT_ID: &str = "100000000000000000002";

    /// Returns the e-mail and id of an account that is named by one of them.
    pub(super) fn find_account(name: &str) -> Option<(&'static str, &'static str)> {
        let accounts = [(Self::ACCOUNT, Self::ACCOUNT_ID), (Self::KEY_ACCOUNT, Self::KEY_ACCOUNT_ID)];
        accounts.into_iter().find(|(email, id)| *email == name || *id == name)
    }
}

/// Certificates of the keys, by which Google publishes them, and issued access tokens.
#[derive(Debug, Default)]
pub(super) struct GoogleProject {
    /// Of Google's own key, which signs identity tokens.
    pub(super) issuer_certificate: String,
    /// Of the machine's account, by whose key Google signs on demand.
    pub(super) account_certificate: String,
    /// Of the account with a key of its own.
    pub(super) key_certificate: String,
    /// Accounts and ends of access tokens.
    access_tokens: Mutex<BTreeMap<String, (&'static str, SystemTime)>>,
}

impl GoogleProject {
    /// Makes the certificates of the three keys.
    pub(super) fn new(issuer: &SigningKey, account: &SigningKey, key: &SigningKey) -> Result<Self, StartError> {
        Ok(Self {
            issuer_certificate: certificate(issuer, "federated-signon.system.gserviceaccount.com")?,
            account_certificate: certificate(account, GcpNames::ACCOUNT_ID)?,
            key_certificate: certificate(key, GcpNames::KEY_ACCOUNT_ID)?,
            access_tokens: Mutex::default(),
        })
    }

    /// Issues an access token of an account.
    pub(super) fn issue_access_token(&self, account: &'static str, now: SystemTime) -> Option<Value> {
        let token = format!("ya29.{}", random_secret()?);
        let mut tokens = self.access_tokens.lock();
        tokens.retain(|_, (_, end)| *end > now);
        if tokens.len() < 10_000 {
            tokens.insert(token.clone(), (account, now + ACCESS_TOKEN_LIFE));
        }
        Some(json!({ "access_token": token, "expires_in": ACCESS_TOKEN_LIFE.as_secs(), "token_type": "Bearer" }))
    }

    /// Returns the account of an access token that has not ended.
    pub(super) fn find_caller(&self, token: &str, now: SystemTime) -> Option<&'static str> {
        self.access_tokens.lock().get(token).filter(|(_, end)| *end > now).map(|(account, _)| *account)
    }
}

const ACCESS_TOKEN_LIFE: Duration = Duration::from_secs(3599);

fn certificate(key: &SigningKey, name: &str) -> Result<String, StartError> {
    let failed = || StartError::Key { what: "a certificate of the emulated Google" };
    let der = key.to_pkcs8().ok_or_else(failed)?;
    let der = PrivatePkcs8KeyDer::from(der);
    let key = KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_RSA_SHA256).map_err(|_| failed())?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params.self_signed(&key).map_err(|_| failed())?.pem())
}
