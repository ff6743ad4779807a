//! Builds the TLS configurations of clients and servers from files.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

use super::listed::ListedCertificates;
use super::pem::{certificate_files, certificates, parse_certificates, private_key};
use super::{CertificateError, ClientCertificate, ServerCertificate, TlsOptions};

impl ServerCertificate {
    /// Returns true if one of the files may not be there yet.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited || self.client_ca.as_ref().is_some_and(|authorities| authorities.is_awaited)
    }

    /// Builds a server's configuration: TLS 1.2 and 1.3, HTTP/1.1, client certificates if it has authorities for them.
    pub fn server(&self) -> Result<Arc<rustls::ServerConfig>, CertificateError> {
        let (chain, key) = pair(&self.certificate, &self.key)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(CertificateError::Versions)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let roots = Arc::new(root_store(certificates(&authorities.file)?));
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|_| CertificateError::NoAuthority)?)
            }
        };
        let mut config =
            builder.with_single_cert(chain, key).map_err(|source| mismatch(&self.certificate, &self.key, source))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Builds the configuration of a server that has no certificate yet: it ends each handshake.
pub(super) fn without_certificate() -> Result<Arc<rustls::ServerConfig>, CertificateError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(CertificateError::Versions)?;
    Ok(Arc::new(builder.with_no_client_auth().with_cert_resolver(Arc::new(NoCertificate))))
}

#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// Builds a client's configuration: TLS 1.2 and 1.3, HTTP/1.1. The server's name is for the caller that connects.
pub fn client_config(tls: &TlsOptions) -> Result<rustls::ClientConfig, CertificateError> {
    match ca_certificates(tls)? {
        Some(listed) => client_config_with(tls, root_store(listed.clone()), listed),
        None => client_config_with(tls, system_authorities()?, Vec::new()),
    }
}

/// As [`client_config`], for a server that is called without TLS: the system's CA certificates are not loaded.
pub(crate) fn plain_client_config(tls: &TlsOptions) -> Result<rustls::ClientConfig, CertificateError> {
    let listed = ca_certificates(tls)?.unwrap_or_default();
    client_config_with(tls, root_store(listed.clone()), listed)
}

/// As [`client_config`], with only the CA certificates of a PEM text; `origin` names it in errors.
pub fn client_config_of(pem: &[u8], origin: &str) -> Result<rustls::ClientConfig, CertificateError> {
    let listed = parse_certificates(pem, origin)?;
    client_config_with(&TlsOptions::default(), root_store(listed.clone()), listed)
}

/// `listed` are the certificates that the configuration names, and empty for the system's.
fn client_config_with(
    tls: &TlsOptions,
    roots: RootCertStore,
    listed: Vec<CertificateDer<'static>>,
) -> Result<rustls::ClientConfig, CertificateError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(CertificateError::Versions)?;
    let builder = if listed.is_empty() {
        builder.with_root_certificates(roots)
    } else {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let verifier = verifier.map_err(|_| CertificateError::NoAuthority)?;
        let verifier = Arc::new(ListedCertificates::new(verifier, listed));
        builder.dangerous().with_custom_certificate_verifier(verifier)
    };
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(ClientCertificate { certificate, key, .. }) => {
            let (chain, private) = pair(certificate, key)?;
            builder.with_client_auth_cert(chain, private).map_err(|source| mismatch(certificate, key, source))?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Reads a certificate with its chain and its key, and checks that they belong together.
pub fn verify_pair(certificate: &Path, key: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let (chain, private) = pair(certificate, key)?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain.clone(), private, &provider).map_err(|source| mismatch(certificate, key, source))?;
    Ok(chain)
}

/// Returns true if a private key belongs to the first certificate of a chain. A key of a kind that TLS does not use belongs to none.
pub fn is_pair(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> bool {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let pair = CertifiedKey::from_der(chain, key, &provider);
    pair.is_ok_and(|pair| pair.keys_match().is_ok())
}

/// Returns the CA certificates that the options name; `None` where the system's are meant.
fn ca_certificates(tls: &TlsOptions) -> Result<Option<Vec<CertificateDer<'static>>>, CertificateError> {
    if tls.ca_file.is_none() && tls.ca_dir.is_none() && tls.ca_pem.is_none() {
        return Ok(None);
    }
    let mut roots = Vec::new();
    if let Some(path) = &tls.ca_file {
        roots.extend(certificates(path)?);
    }
    if let Some(folder) = &tls.ca_dir {
        let files = certificate_files(folder);
        let files = files.map_err(|source| CertificateError::Read { path: folder.clone(), source })?;
        if files.is_empty() {
            return Err(CertificateError::NoCertificate { origin: folder.display().to_string() });
        }
        for path in files {
            roots.extend(certificates(&path)?);
        }
    }
    if let Some(text) = &tls.ca_pem {
        roots.extend(parse_certificates(text.as_bytes(), "the setting of the CA certificates to trust")?);
    }
    Ok(Some(roots))
}

fn root_store(certificates: Vec<CertificateDer<'static>>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Each was added to a separate store when it was read.
    roots.add_parsable_certificates(certificates);
    roots
}

fn system_authorities() -> Result<RootCertStore, CertificateError> {
    let mut roots = RootCertStore::empty();
    // The system store may contain certificates that the library does not support; they are not this program's problem.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(CertificateError::NoAuthority) } else { Ok(roots) }
}

fn pair(
    certificate: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), CertificateError> {
    Ok((certificates(certificate)?, private_key(key)?))
}

fn mismatch(certificate: &Path, key: &Path, source: rustls::Error) -> CertificateError {
    CertificateError::Pair { certificate: certificate.to_owned(), key: key.to_owned(), source }
}
