//! Errors of certificate files.

use std::path::PathBuf;

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
