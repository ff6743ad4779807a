//! Entry point of the fuzz target `ssh`.

use crate::ssh::{SshCertificate, SshPublicKey};

/// A certificate of OpenSSH, as it was read.
#[derive(Debug)]
pub struct ReadCertificate {
    /// Its line, as it would be written.
    pub line: String,
    /// Line of the key that it is for.
    pub key_line: String,
    /// Line of the key of its authority.
    pub authority_line: String,
    /// Names of its users or hosts.
    pub principals: Vec<String>,
    /// True if its authority has signed it.
    pub is_signed: bool,
    /// Its binary form.
    pub blob: Vec<u8>,
}

/// Parses the line of a certificate.
pub fn parse_certificate(line: &str) -> Option<ReadCertificate> {
    let certificate = SshCertificate::parse(line)?;
    let _ = (certificate.begins(), certificate.ends());
    Some(ReadCertificate {
        line: certificate.to_line(),
        key_line: certificate.key.to_line(),
        authority_line: certificate.authority.to_line(),
        is_signed: certificate.is_signed(),
        blob: certificate.blob().to_vec(),
        principals: certificate.principals,
    })
}

/// Parses the line of a public key, and returns it as it would be written.
pub fn parse_public_key(line: &str) -> Option<String> {
    SshPublicKey::parse(line).map(|key| key.to_line())
}
