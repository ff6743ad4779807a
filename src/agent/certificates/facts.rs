//! Facts of an issued certificate that are the same for all kinds, and the reasons why one cannot be used.

use super::policy::Life;

/// Life and identity of a certificate.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) life: Life,
    /// Serial number as the tools of its kind print it: for X.509 such as `1a:2b`, for SSH in decimal digits.
    pub(super) serial: String,
    /// SHA-256 of the binary form, in hexadecimal digits.
    pub(super) fingerprint: String,
    /// URIs among the names of an X.509 certificate.
    pub(super) uris: Vec<String>,
}

/// Reason why a certificate cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    #[error("it holds no certificate in PEM")]
    NoCertificate,
    #[error("it holds no private key in PEM")]
    NoKey,
    #[error("its certificate cannot be read")]
    Malformed,
    #[error("its certificate is that of an authority")]
    Authority,
    #[error("its certificate belongs to another key")]
    OtherKey,
    #[error("its chain does not begin with the certificate's issuer")]
    OtherIssuer,
    #[error("its certificate is of another identity than the answer names")]
    OtherIdentity,
    #[error("it holds no certificate of OpenSSH")]
    NoSshCertificate,
    #[error("its certificate is of the other `cert_type`")]
    OtherKind,
    #[error("its certificate is not for the principals that were requested")]
    OtherPrincipals,
    #[error("the authority that its certificate names has not signed it, or with SHA-1, which OpenSSH refuses")]
    NotSigned,
    #[error("its file cannot be opened with the password")]
    OtherPassword,
    #[error("its certificate has expired already; compare the clocks of this machine and of the server")]
    Expired,
}
