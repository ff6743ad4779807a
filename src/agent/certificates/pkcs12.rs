//! PKCS#12 files of X.509 certificates, for Java and .NET.

use std::ffi::{CStr, CString};
use std::time::SystemTime;

use keyward_machine::os::{self, KeyFileError};

use super::facts::{Facts, Unusable};
use super::x509::X509Files;
use crate::secrets::PemBlock;

/// Encodes key, leaf and the authorities below the root. Each call has other bytes, of a new salt.
pub(super) fn encode(files: &X509Files, alias: &str, password: &CStr) -> Result<Vec<u8>, Pkcs12Error> {
    let der = |text: &str| PemBlock::parse_all(text).into_iter().map(|block| block.content).collect::<Vec<_>>();
    let key = der(files.key().expose_secret()).into_iter().next().ok_or(Pkcs12Error)?;
    let alias = CString::new(alias).map_err(|_| Pkcs12Error)?;
    os::write_pkcs12(&key, &der(&files.full_chain()), &alias, password).map_err(|_| Pkcs12Error)
}

/// Reads a file.
pub(super) fn read(file: &[u8], password: &CStr, now: SystemTime) -> Result<(Facts, X509Files), Unusable> {
    let content = os::read_pkcs12(file, password).map_err(|error| match error {
        KeyFileError::WrongPassword => Unusable::OtherPassword,
        KeyFileError::Unreadable => Unusable::Malformed,
    })?;
    let key = PemBlock::new("PRIVATE KEY", content.key).to_pem();
    let certificates = content.certificates.into_iter().map(|der| PemBlock::new("CERTIFICATE", der).to_pem());
    X509Files::from_files(&key, &certificates.collect::<String>(), now)
}

/// The key, or a certificate, has a form that PKCS#12 does not take.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the key and its certificate cannot be written as PKCS#12")]
pub(super) struct Pkcs12Error;
