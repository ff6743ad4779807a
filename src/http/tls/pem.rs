//! Reads certificates and keys in PEM (RFC 7468). Every block must be good, or the whole file is refused.

use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Reads all certificates of a file; at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    parse_certificates(&read(path)?, &path.display().to_string())
}

/// Lists the certificate files of a folder, `*.pem` and `*.crt`, by name.
pub fn certificate_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "pem" || extension == "crt") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads the private key of a file.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|_| CertificateError::NoKey { path: path.to_owned() })
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let fail = |source| CertificateError::Read { path: path.to_owned(), source };
    std::fs::read(path).map_err(fail)
}

/// Parses all certificates of PEM data. Blocks of other kinds, such as keys, are skipped; `origin` names it in errors.
pub(super) fn parse_certificates(text: &[u8], origin: &str) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let refuse = |number, problem| CertificateError::Block { origin: origin.to_owned(), number, problem };
    let mut certificates = Vec::new();
    for (index, block) in blocks(text).into_iter().enumerate() {
        let number = index + 1;
        let block = block.map_err(|problem| refuse(number, problem))?;
        match block.label {
            b"CERTIFICATE" => {
                let certificate =
                    CertificateDer::from_pem_slice(block.text).map_err(|_| refuse(number, "is not valid base64"))?;
                RootCertStore::empty()
                    .add(certificate.clone())
                    .map_err(|_| refuse(number, "is not a valid X.509 certificate"))?;
                certificates.push(certificate);
            }
            // `TRUSTED CERTIFICATE` and `X509 CERTIFICATE` are OpenSSL's own forms.
            label if label.ends_with(b" CERTIFICATE") => {
                return Err(refuse(number, "is not in the plain form that `openssl x509` writes"));
            }
            _ => {}
        }
    }
    if certificates.is_empty() {
        Err(CertificateError::NoCertificate { origin: origin.to_owned() })
    } else {
        Ok(certificates)
    }
}

/// A PEM block with its first and last line.
#[derive(Clone, Copy)]
pub struct PemBlock<'a> {
    /// Label, such as `CERTIFICATE`.
    pub label: &'a [u8],
    /// Text from the first character of the `BEGIN` line to the end of the `END` line.
    pub text: &'a [u8],
}

impl std::fmt::Debug for PemBlock<'_> {
    /// The text may be a key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PemBlock").field("label", &String::from_utf8_lossy(self.label)).finish_non_exhaustive()
    }
}

/// Lists the blocks of PEM data in their order. Skips text between them, and blocks that are not complete.
pub fn pem_blocks(text: &[u8]) -> impl Iterator<Item = PemBlock<'_>> {
    blocks(text).into_iter().filter_map(Result::ok)
}

const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// Splits PEM data into its blocks. Text between blocks is a comment, in any character set.
fn blocks(text: &[u8]) -> Vec<Result<PemBlock<'_>, &'static str>> {
    let mut blocks = Vec::new();
    let mut open: Option<(&[u8], usize)> = None;
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let start = at;
        let end = at + line.len();
        at = end;
        let line = line.trim_ascii();
        let mark = |word: &[u8]| line.strip_prefix(word).and_then(|rest| rest.strip_suffix(b"-----"));
        if let Some(label) = mark(b"-----BEGIN ") {
            if open.replace((label, start)).is_some() {
                blocks.push(Err("has no END line"));
            }
        } else if let Some(label) = mark(b"-----END ") {
            blocks.push(match open.take() {
                Some((begun, start)) if begun == label => {
                    Ok(PemBlock { label, text: text.get(start..end).unwrap_or_default() })
                }
                Some(_) => Err("has another label in its END line than in its BEGIN line"),
                None => Err("has no BEGIN line"),
            });
        } else if line.starts_with(b"-") && line.windows(12).any(|part| part == b" CERTIFICATE") {
            blocks.push(Err("has a BEGIN or END line without five dashes at each end"));
            open = None;
        } else if line.windows(BEGIN.len()).any(|part| part == BEGIN) {
            blocks.push(Err("has a BEGIN line with other text in front of it"));
            open = None;
        }
    }
    if open.is_some() {
        blocks.push(Err("has no END line"));
    }
    blocks
}

/// Reason why a TLS configuration cannot be built. Never quotes a file's content, which may be a key.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// No certificate stands where one is needed.
    #[error("{origin} holds no PEM certificate")]
    NoCertificate {
        /// The file, folder or setting.
        origin: String,
    },
    /// One PEM block cannot be used. All blocks of a file must be good: a dropped CA certificate would show only when a
    /// server that it signed is refused.
    #[error("PEM block {number} of {origin} {problem}; replace or remove that block")]
    Block {
        /// The file or setting.
        origin: String,
        /// The block's number in it, from 1.
        number: usize,
        /// The problem, as a predicate.
        problem: &'static str,
    },
    /// A key file without a key that can be used.
    #[error("{} holds no PEM private key without a password", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The system has no trusted certificates.
    #[error("this system has no CA certificates; install ca-certificates or name a CA file")]
    NoAuthority,
    /// The library supports no version of TLS.
    #[error("cannot set up TLS")]
    Versions(#[source] rustls::Error),
    /// The certificate and the key do not belong together, or their kind is not supported.
    #[error(
        "the certificate {} and the private key {} do not belong together",
        certificate.display(), key.display()
    )]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The library's error.
        #[source]
        source: rustls::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_of_a_text_is_good_or_named_with_its_number() {
        let check = |text: &str, expected: &str| {
            let error = parse_certificates(text.as_bytes(), "a.pem").unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("hush"), "{error}");
        };
        check("hush", "a.pem holds no PEM certificate");
        check("-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n", "a.pem holds no PEM certificate");
        check(
            "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\nhush!\n-----END CERTIFICATE-----\n",
            "PEM block 2 of a.pem is not valid base64",
        );
        check(
            "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n",
            "block 1 of a.pem is not a valid X.509",
        );
        check("-----BEGIN CERTIFICATE-----\naGVsbG8=\n", "PEM block 1 of a.pem has no END line");
        check("aGVsbG8=\n-----END CERTIFICATE-----\n", "PEM block 1 of a.pem has no BEGIN line");
        check(
            "a comment -----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n",
            "other text in front of it",
        );
        check("----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n", "without five dashes");
        check(
            "-----BEGIN TRUSTED CERTIFICATE-----\naGVsbG8=\n-----END TRUSTED CERTIFICATE-----\n",
            "not in the plain form",
        );
        check("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE REQUEST-----\n", "another label");
    }
}
