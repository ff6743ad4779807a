//! The certificate files that a configuration names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use keyward_agent::identity::IdentityMethod;
use keyward_config::Config;
use keyward_http::tls::{self, CertificateError, ServerCertificate, TlsOptions};
use rustls::pki_types::CertificateDer;

/// The certificate files of a configuration by the key that names them, such as `server.main.ca_file`.
pub(super) type CertificateFiles = BTreeMap<String, CertificatePaths>;

/// Files that are used together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CertificatePaths {
    /// A file of CA certificates.
    CaFile(PathBuf),
    /// A folder of such files.
    CaDir(PathBuf),
    /// A certificate and its key.
    Pair { certificate: PathBuf, key: PathBuf },
}

/// Lists the certificate files that a configuration names.
pub(super) fn files(config: &Config) -> CertificateFiles {
    let mut files = CertificateFiles::new();
    for session in &config.sessions {
        let TlsOptions { ca_file, ca_dir, identity, .. } = &session.upstream.client.tls;
        let server = format!("server.{}", session.upstream.name);
        if let Some(path) = ca_file {
            files.insert(format!("{server}.ca_file"), CertificatePaths::CaFile(path.clone()));
        }
        if let Some(path) = ca_dir {
            files.insert(format!("{server}.ca_dir"), CertificatePaths::CaDir(path.clone()));
        }
        if let Some(identity) = identity.as_ref().filter(|identity| !identity.is_awaited) {
            let key = match session.identity {
                IdentityMethod::Certificate { .. } => format!("session.{}.cert.client_cert", session.name),
                _ => format!("{server}.client_cert"),
            };
            let certificate = identity.certificate.clone();
            let private = identity.key.clone();
            files.insert(key, CertificatePaths::Pair { certificate, key: private });
        }
    }
    for listener in &config.listeners {
        let pair = listener.tls.as_ref();
        #[cfg(feature = "ui")]
        let pair = match &listener.serves {
            keyward_config::Serves::Ui(pages) => pages.as_ref(),
            _ => pair,
        };
        if let Some(pair) = pair {
            add_server(&mut files, &format!("listener.{}", listener.name), pair);
        }
    }
    #[cfg(feature = "gateway")]
    if let Some(path) = config.gateway.as_ref().and_then(|gateway| gateway.proxy.ca_file.clone()) {
        files.insert("gateway.ca_file".to_owned(), CertificatePaths::CaFile(path));
    }
    #[cfg(feature = "acl")]
    if let Some(server) = &config.acl {
        use keyward_acl::service::issuer_keys::CaSource;
        if let Some(pair) = &server.tls {
            add_server(&mut files, "acl", pair);
        }
        #[cfg(feature = "etcd")]
        if let keyward_acl::store::StoreOptions::Etcd(etcd) = &server.service.store {
            if let Some(path) = &etcd.ca_file {
                files.insert("acl.etcd.ca_file".to_owned(), CertificatePaths::CaFile(path.clone()));
            }
            if let Some(pair) = &etcd.identity {
                let certificate = pair.certificate.clone();
                let key = pair.key.clone();
                files.insert("acl.etcd.client_cert".to_owned(), CertificatePaths::Pair { certificate, key });
            }
        }
        for (name, method) in &server.service.methods {
            if let CaSource::File(path) = method.ca_certificates() {
                files.insert(format!("acl.method.{name}.ca_file"), CertificatePaths::CaFile(path.clone()));
            }
        }
    }
    files
}

/// Adds the files of a server. Those of an issued certificate are left out, which reports its own state.
fn add_server(files: &mut CertificateFiles, section: &str, server: &ServerCertificate) {
    if !server.is_awaited {
        let (certificate, key) = (server.certificate.clone(), server.key.clone());
        files.insert(format!("{section}.tls_cert"), CertificatePaths::Pair { certificate, key });
    }
    if let Some(authorities) = server.client_ca.as_ref().filter(|authorities| !authorities.is_awaited) {
        files.insert(format!("{section}.client_ca_file"), CertificatePaths::CaFile(authorities.file.clone()));
    }
}

impl CertificatePaths {
    pub(super) fn paths(&self) -> Vec<&Path> {
        match self {
            Self::CaFile(path) | Self::CaDir(path) => vec![path],
            Self::Pair { certificate, key } => vec![certificate, key],
        }
    }

    /// Reads the certificates as connections read them.
    pub(super) fn read(&self) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
        match self {
            Self::CaFile(path) => tls::certificates(path),
            Self::CaDir(path) => {
                let fail = |source| CertificateError::Read { path: path.clone(), source };
                let mut certificates = Vec::new();
                for file in tls::certificate_files(path).map_err(fail)? {
                    certificates.extend(tls::certificates(&file)?);
                }
                Ok(certificates)
            }
            Self::Pair { certificate, key } => tls::verify_pair(certificate, key),
        }
    }

    pub(super) fn describe(&self) -> String {
        self.paths().iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}
