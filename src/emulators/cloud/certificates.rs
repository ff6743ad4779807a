//! CA and server certificate of the token endpoint, and the service principal's certificate.

use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, pem::PemObject as _};

use super::StartError;
use super::folder::PrivateDir;
use super::keys::{SigningKey, new_key};

pub(super) const CA_FILE: &str = "ca.pem";
pub(super) const APP_FILE: &str = "application.pem";

/// Builds the TLS configuration of the token endpoint: a new certificate for `address` and `hosts`, signed by the CA in the folder.
pub(super) fn server(
    folder: &PrivateDir,
    address: IpAddr,
    hosts: &[&str],
) -> Result<Arc<rustls::ServerConfig>, StartError> {
    let failed = || StartError::Key { what: "the emulated authority's certificate" };
    let key = folder
        .read_or_make("ca-key.der", || Ok(KeyPair::generate().map_err(|_| failed())?.serialized_der().to_vec()))?;
    let key = KeyPair::try_from(key.as_slice()).map_err(|_| failed())?;
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "keyward emulated cloud");
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority =
        folder.read_or_make(CA_FILE, || Ok(ca.self_signed(&key).map_err(|_| failed())?.pem().into_bytes()))?;
    let authority = CertificateDer::from_pem_slice(&authority).map_err(|_| failed())?;
    let leaf_key = KeyPair::generate().map_err(|_| failed())?;
    let mut identities = vec!["localhost".to_owned(), address.to_string()];
    identities.extend(hosts.iter().map(|host| (*host).to_owned()));
    let mut leaf = CertificateParams::new(identities).map_err(|_| failed())?;
    leaf.distinguished_name.push(DnType::CommonName, "emulated token endpoint");
    let leaf = leaf.signed_by(&leaf_key, &Issuer::from_params(&ca, &key)).map_err(|_| failed())?;
    let chain = vec![leaf.der().clone(), authority];
    let leaf_key = PrivatePkcs8KeyDer::from(leaf_key.serialized_der().to_vec());
    rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, leaf_key.into()))
        .map(Arc::new)
        .map_err(|_| failed())
}

/// Certificate with which the emulated service principal may log in.
#[derive(Debug)]
pub(super) struct AppCertificate {
    /// Private key.
    pub(super) key: SigningKey,
    /// SHA-256 of the certificate in base64url, `x5t#S256` in an assertion's header (RFC 7515).
    pub(super) thumbprint: String,
}

impl AppCertificate {
    /// Reads the PEM file with certificate and key, or creates it.
    pub(super) fn load_or_make(folder: &PrivateDir) -> Result<Self, StartError> {
        let failed = || StartError::Key { what: APP_FILE };
        let pem = folder.read_or_make(APP_FILE, || {
            let key = new_key().ok_or_else(failed)?;
            let key = KeyPair::from_pkcs8_der_and_sign_algo(&key.as_slice().into(), &rcgen::PKCS_RSA_SHA256)
                .map_err(|_| failed())?;
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, "emulated service principal");
            let certificate = params.self_signed(&key).map_err(|_| failed())?;
            Ok(format!("{}{}", key.serialize_pem(), certificate.pem()).into_bytes())
        })?;
        let certificate = CertificateDer::from_pem_slice(&pem).map_err(|_| failed())?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(&pem).map_err(|_| failed())?;
        let key = SigningKey::from_pkcs8(key.secret_pkcs8_der()).ok_or_else(failed)?;
        Ok(Self { key, thumbprint: URL_SAFE_NO_PAD.encode(digest(&SHA256, &certificate)) })
    }
}
