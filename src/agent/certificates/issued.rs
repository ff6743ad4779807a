//! An issued certificate: its facts, and the content of its files.

use std::time::SystemTime;

use super::facts::{Facts, Unusable};
use super::policy::Life;
use super::ssh::SshFiles;
use super::x509::X509Files;

/// A certificate that fits its key.
#[derive(Debug, Clone)]
pub(super) struct IssuedCertificate {
    facts: Facts,
    pub(super) content: Content,
}

/// Content of the files of a certificate.
#[derive(Debug, Clone)]
pub(super) enum Content {
    X509(X509Files),
    Ssh(SshFiles),
}

impl IssuedCertificate {
    pub(super) fn x509(read: Result<(Facts, X509Files), Unusable>) -> Result<Self, Unusable> {
        read.map(|(facts, files)| Self { facts, content: Content::X509(files) })
    }

    pub(super) fn ssh(read: Result<(Facts, SshFiles), Unusable>) -> Result<Self, Unusable> {
        read.map(|(facts, files)| Self { facts, content: Content::Ssh(files) })
    }

    pub(super) const fn life(&self) -> Life {
        self.facts.life
    }

    /// Returns true once its end has come.
    pub(super) fn has_ended(&self, now: SystemTime) -> bool {
        self.facts.life.ends <= now
    }

    /// Returns the serial number as the tools of its kind print it.
    pub(super) fn serial(&self) -> String {
        self.facts.serial.clone()
    }

    /// Returns the URIs among its names.
    pub(super) fn uris(&self) -> &[String] {
        &self.facts.uris
    }

    pub(super) fn fingerprint(&self) -> &str {
        &self.facts.fingerprint
    }

    /// A number in `0.0..1.0` that is the same for a certificate in every process, and another one for each certificate.
    pub(super) fn unit(&self) -> f64 {
        let number = self.facts.fingerprint.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        f64::from(number.unwrap_or_default()) / 4_294_967_296.0
    }
}
