//! TLS as a server speaks it, and as one who forwards to a server does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};

use crate::http::client::{Identity, Tls, certificate_files};

/// A server's certificate and its key, both PEM files; read at each build, so that a renewed one is taken on reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate, its chain after it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Certificate {
    /// What a listener speaks TLS with: versions 1.2 and 1.3, HTTP/1.1, no client certificates.
    ///
    /// # Errors
    /// A file cannot be read, or the two do not hold a certificate and its key.
    pub fn server(&self) -> Result<Arc<rustls::ServerConfig>, CertificateError> {
        let (chain, key) = pair(&self.certificate, &self.key)?;
        let mut config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
                .map_err(|source| CertificateError::Pair {
                    certificate: self.certificate.clone(),
                    key: self.key.clone(),
                    source,
                })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// What an upstream is spoken to with: versions 1.2 and 1.3, HTTP/1.1, no client certificate. The authorities of `ca_file`
/// are trusted, or the system's where there is none.
///
/// # Errors
/// The file cannot be read or holds no certificate, or the system has none.
pub fn client(ca_file: Option<&Path>) -> Result<Arc<rustls::ClientConfig>, CertificateError> {
    client_of(&Tls { ca_file: ca_file.map(Path::to_owned), ..Tls::default() })
}

/// The same as a client's options say it: more authorities, and a client certificate. The server's name is for whoever
/// connects.
///
/// # Errors
/// A file or folder cannot be read, or holds something else; the system has no authority.
pub fn client_of(tls: &Tls) -> Result<Arc<rustls::ClientConfig>, CertificateError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(CertificateError::Versions)?
        .with_root_certificates(authorities(tls)?);
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let (chain, private) = pair(certificate, key)?;
            let unfit = |source| CertificateError::Pair { certificate: certificate.clone(), key: key.clone(), source };
            builder.with_client_auth_cert(chain, private).map_err(unfit)?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn authorities(tls: &Tls) -> Result<rustls::RootCertStore, CertificateError> {
    let mut roots = rustls::RootCertStore::empty();
    let mut files: Vec<PathBuf> = tls.ca_file.iter().cloned().collect();
    if let Some(folder) = &tls.ca_dir {
        files.extend(
            certificate_files(folder).map_err(|source| CertificateError::Read { path: folder.clone(), source })?,
        );
    }
    let given = !files.is_empty() || tls.ca_dir.is_some() || tls.ca_pem.is_some();
    for path in &files {
        let found = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| refused(path, error))?;
        if roots.add_parsable_certificates(found).0 == 0 {
            return Err(CertificateError::Form { path: path.clone() });
        }
    }
    if let Some(pem) = &tls.ca_pem {
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem.as_bytes()).flatten());
    }
    if !given {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    match (roots.is_empty(), &tls.ca_dir) {
        (false, _) => Ok(roots),
        (true, Some(folder)) => Err(CertificateError::Form { path: folder.clone() }),
        (true, None) => Err(CertificateError::NoAuthority),
    }
}

fn pair(
    certificate: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), CertificateError> {
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| refused(certificate, error))?;
    Ok((chain, PrivateKeyDer::from_pem_file(key).map_err(|error| refused(key, error))?))
}

fn refused(path: &Path, error: pem::Error) -> CertificateError {
    let path = path.to_owned();
    match error {
        pem::Error::Io(source) => CertificateError::Read { path, source },
        // What is in the file may be a key: it is not quoted.
        _ => CertificateError::Form { path },
    }
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file holds something else.
    #[error("{} does not hold what it should in PEM: certificates, or the private key", path.display())]
    Form {
        /// Which.
        path: PathBuf,
    },
    /// The system trusts nobody.
    #[error("this system has no certificates of authorities; install ca-certificates, or name a file of them")]
    NoAuthority,
    /// The library speaks no version of TLS.
    #[error("cannot set up TLS")]
    Versions(#[source] rustls::Error),
    /// The certificate and the key do not belong together, or are of a kind that is not spoken.
    #[error("{} and {} are no certificate and its private key", certificate.display(), key.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_hold_something_else_are_named_and_not_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let certificate = write("cert.pem", "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n");
        let check = |certificate: &Path, key: &Path, wanted: &str| {
            let pair = Certificate { certificate: certificate.to_owned(), key: key.to_owned() };
            let error = pair.server().unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains("hush"), "{error}");
        };
        let key = write("key.pem", "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n");
        check(&folder.path().join("none.pem"), &key, "cannot read");
        check(&certificate, &write("empty.pem", "hush"), "empty.pem does not hold what it should");
        check(&certificate, &key, "are no certificate and its private key");
    }
}
