//! Verification of server certificates that themselves stand among the trusted ones.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

/// Accepts a server's own certificate that is marked as a CA, if it stands in the file of trusted certificates: servers are
/// set up with such self-signed certificates, and Go, OpenSSL and curl accept them. The library refuses every CA
/// certificate as that of a server. Period, name and key are verified as for any other.
#[derive(Debug)]
pub(super) struct ListedCertificates {
    verifier: Arc<WebPkiServerVerifier>,
    listed: Vec<CertificateDer<'static>>,
}

impl ListedCertificates {
    pub(super) const fn new(verifier: Arc<WebPkiServerVerifier>, listed: Vec<CertificateDer<'static>>) -> Self {
        Self { verifier, listed }
    }
}

/// Returns true for the error about a CA certificate, which the library reports only after it has verified the period.
fn is_used_as_server(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(error)) = error else { return false };
    // The type of the error belongs to a crate that rustls does not re-export.
    format!("{error:?}").contains("CaUsedAsEndEntity")
}

impl ServerCertVerifier for ListedCertificates {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.verifier.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(error) if is_used_as_server(&error) && self.listed.iter().any(|listed| listed == certificate) => {
                rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
