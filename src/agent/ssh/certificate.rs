//! Certificates (`PROTOCOL.certkeys`).

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::public_key::{SshPublicKey, number_of_fields};
use super::wire::{Fields, put_text};

/// A certificate of a user or a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SshCertificate {
    /// The key that it is for.
    pub(crate) key: SshPublicKey,
    pub(crate) serial: u64,
    pub(crate) kind: SshCertificateKind,
    /// Names of users or hosts; empty for all.
    pub(crate) principals: Vec<String>,
    valid_after: u64,
    valid_before: u64,
    /// The key that has signed it, as it says.
    pub(crate) authority: SshPublicKey,
    blob: Vec<u8>,
    /// Length of the part that is signed.
    signed: usize,
}

/// Kind of a certificate, `cert_type` on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshCertificateKind {
    /// Logs a user in.
    User,
    /// Proves a host to its clients.
    Host,
}

impl SshCertificateKind {
    /// Returns the word of the configuration and of the server.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Host => "host",
        }
    }
}

impl SshCertificate {
    /// Parses a line `TYPE BASE64 [COMMENT]`. Its signature is not checked.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let kind = words.next()?;
        let key_kind = key_kind(kind)?;
        let blob = STANDARD.decode(words.next()?).ok()?;
        let mut fields = Fields(&blob);
        if fields.text()? != kind.as_bytes() {
            return None;
        }
        let _nonce = fields.text()?;
        let mut key = Vec::new();
        put_text(&mut key, key_kind.as_bytes());
        for _ in 0..number_of_fields(&key_kind)? {
            put_text(&mut key, fields.text()?);
        }
        let serial = fields.uint64()?;
        let kind = match fields.uint32()? {
            1 => SshCertificateKind::User,
            2 => SshCertificateKind::Host,
            _ => return None,
        };
        let _key_id = fields.text()?;
        let mut names = Fields(fields.text()?);
        let mut principals = Vec::new();
        while !names.is_empty() {
            principals.push(names.utf8()?.to_owned());
        }
        let (valid_after, valid_before) = (fields.uint64()?, fields.uint64()?);
        let _options = (fields.text()?, fields.text()?, fields.text()?);
        let authority = SshPublicKey::from_blob(fields.text()?)?;
        let signed = blob.len() - fields.0.len();
        let _signature = fields.text()?;
        let key = SshPublicKey::from_blob(&key)?;
        fields.is_empty().then_some(())?;
        Some(Self { key, serial, kind, principals, valid_after, valid_before, authority, blob, signed })
    }

    /// Returns true if the authority that it names has signed it.
    pub(crate) fn is_signed(&self) -> bool {
        let (message, signature) = self.blob.split_at(self.signed);
        Fields(signature).text().is_some_and(|signature| self.authority.has_signed(message, signature))
    }

    /// Time at which it begins, at most the year 9999.
    pub(crate) fn begins(&self) -> SystemTime {
        time(self.valid_after)
    }

    /// Time at which it ends; `None` if it has no end.
    pub(crate) fn ends(&self) -> Option<SystemTime> {
        // All ones mean no end.
        (self.valid_before != u64::MAX).then(|| time(self.valid_before))
    }

    pub(crate) fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// Formats the line of a file, without a line break.
    pub(crate) fn to_line(&self) -> String {
        let kind = Fields(&self.blob).utf8().unwrap_or_default();
        format!("{kind} {}", STANDARD.encode(&self.blob))
    }
}

/// Returns the type of the key of a type of certificate.
fn key_kind(kind: &str) -> Option<String> {
    let name = kind.strip_suffix(SUFFIX)?;
    // Keys of hardware have the vendor's suffix too.
    Some(if name.starts_with("sk-") { format!("{name}@openssh.com") } else { name.to_owned() })
}

const SUFFIX: &str = "-cert-v01@openssh.com";

fn time(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(YEAR_9999))
}

/// In seconds since 1970. Bounds times from the server, so that sums with them do not overflow.
pub(crate) const YEAR_9999: u64 = 253_402_300_799;

#[cfg(test)]
mod tests;
