//! A certificate authority of a test, and a server whose certificate the test swaps.

use std::sync::Arc;

use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// An authority with a new key.
pub(crate) struct Authority {
    /// Its certificate.
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Issues a certificate for a name, valid until a year.
    pub(crate) fn issue(&self, name: &str, until: i32) -> Arc<CertifiedKey> {
        self.issue_until(name, rcgen::date_time_ymd(until, 1, 1))
    }

    /// Issues a certificate for a name, valid until a time.
    pub(crate) fn issue_until(&self, name: &str, until: time::OffsetDateTime) -> Arc<CertifiedKey> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = until;
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialized_der().to_vec());
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        Arc::new(CertifiedKey::from_der(vec![leaf.der().clone()], key.into(), &provider).unwrap())
    }
}

/// Certificate of a server, for its next connections.
#[derive(Debug)]
pub(crate) struct Presented(Mutex<Arc<CertifiedKey>>);

impl Presented {
    pub(crate) fn new(certificate: Arc<CertifiedKey>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(certificate)))
    }

    pub(crate) fn swap(&self, certificate: Arc<CertifiedKey>) {
        *self.0.lock() = certificate;
    }

    /// TLS settings of the server. Sessions are not resumed: each connection sees the certificate.
    pub(crate) fn server(self: &Arc<Self>) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config =
            builder.with_no_client_auth().with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Arc::new(config)
    }
}

impl ResolvesServerCert for Presented {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.lock()))
    }
}
