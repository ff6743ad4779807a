//! Verifiers of stored auth methods.

use std::collections::HashMap;
use std::sync::Arc;

use keyward_machine::clock::Clock;
use parking_lot::Mutex;

use super::code_exchange::TokenEndpoint;
use crate::model::auth_method::{AuthMethodRecord, KeySource, MethodConfig};
use crate::model::id::Id;
use crate::service::error::ServiceError;
use crate::service::issuer_keys::{self, CaSource, IssuerKeys, KeyDocument, pem_keys};
use crate::service::record_keys;
use crate::service::typed_store::Stored;
use crate::store::{Revision, StoreError};

/// Cache of verifiers by method id.
#[derive(Debug)]
pub(super) struct VerifierCache {
    verifiers: Mutex<HashMap<Id, Arc<Verifier>>>,
    clock: Clock,
}

/// Parsed configuration and key cache of a stored method at one revision.
#[derive(Debug)]
pub(super) struct Verifier {
    at: Revision,
    pub(super) config: MethodConfig,
    pub(super) keys: IssuerKeys,
    /// Client of the provider's token endpoint, for logins with a browser.
    pub(super) token_endpoint: TokenEndpoint,
}

/// Most cached verifiers. A full cache is emptied; methods in use are soon cached again.
const MAX_VERIFIERS: usize = 1024;

impl VerifierCache {
    pub(super) fn new(clock: Clock) -> Self {
        Self { verifiers: Mutex::default(), clock }
    }

    /// Returns the cached verifier, or builds one.
    pub(super) fn get_or_build(&self, method: &Stored<AuthMethodRecord>) -> Result<Arc<Verifier>, ServiceError> {
        let id = method.value.id;
        let mut verifiers = self.verifiers.lock();
        // A changed method starts with an empty cache of keys, as its URL may be another one.
        if let Some(verifier) = verifiers.get(&id).filter(|verifier| verifier.at == method.modified) {
            return Ok(Arc::clone(verifier));
        }
        let verifier = Arc::new(self.build(method).ok_or_else(|| {
            // The configuration was validated when it was written.
            let key = record_keys::auth_method(&method.value.namespace, &method.value.name);
            StoreError::Unreadable { key: key.as_str().to_owned() }
        })?);
        if verifiers.len() >= MAX_VERIFIERS {
            verifiers.clear();
        }
        verifiers.insert(id, Arc::clone(&verifier));
        Ok(verifier)
    }

    fn build(&self, method: &Stored<AuthMethodRecord>) -> Option<Verifier> {
        let record = &method.value;
        let config = MethodConfig::read(record.kind, &record.config).ok()?;
        let mut token_endpoint = TokenEndpoint::new(CaSource::System);
        let trusting = |pem: &Option<String>| pem.clone().map_or(CaSource::System, CaSource::Pem);
        let fetched = |issuer: String, source: KeyDocument, pem: &Option<String>| {
            let options = issuer_keys::IssuerKeyOptions { source, ca_certificates: trusting(pem) };
            IssuerKeys::fetched(issuer, options, self.clock.clone())
        };
        let keys = match &config.keys {
            KeySource::Discovery { url, issuer, ca_certificates } => {
                token_endpoint = TokenEndpoint::new(trusting(ca_certificates));
                fetched(issuer.clone(), KeyDocument::Discovery(url.clone()), ca_certificates)
            }
            KeySource::Jwks { url, ca_certificates } => {
                fetched(record.name.clone(), KeyDocument::Jwks(url.clone()), ca_certificates)
            }
            KeySource::Fixed(texts) => {
                let keys: Result<Vec<_>, _> = texts.iter().map(|text| pem_keys(text)).collect();
                IssuerKeys::fixed(keys.ok()?.concat())
            }
        };
        Some(Verifier { at: method.modified, config, keys, token_endpoint })
    }
}
