//! Certificates of PKI and SSH engines: requested with a key that is made here, written together with it, and replaced before their end.
//!
//! `policy` decides when a certificate is replaced, and is pure; `task` acts.

// 0: times, metrics, keys, facts of all kinds
mod metrics;
mod policy;
mod key;
mod facts;
mod records;

// 1: the kinds: X.509 and OpenSSH
mod x509;
mod pkcs12;
mod pki;
mod ssh;

// 2: a certificate of any kind, its request and its files
mod issued;
mod request;
mod output;

// 3: the task that keeps one
mod task;

pub use self::key::{KeyOrigin, KeyType};
pub use self::metrics::IssuedCertificateMetrics;
pub use self::output::{CertificateOutput, OutputForm};
pub use self::pki::PkiSubject;
pub use self::policy::{RenewAt, RenewalPolicy, Window};
pub use self::request::{CertificateRequest, CertificateSubject};
pub use self::ssh::SshSubject;
pub use self::task::{CertificateDeps, CertificateTask};

use keyward_machine::command::EnvVars;

use crate::output_command::OutputCommand;
use crate::output_watch::OnMissing;
pub use crate::ssh::SshCertificateKind;

/// Options of one certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateOptions {
    /// Name in log events, metrics and the status.
    pub name: String,
    /// The request that issues it.
    pub request: CertificateRequest,
    /// Its files.
    pub output: CertificateOutput,
    /// Times at which it is replaced.
    pub renewal: RenewalPolicy,
    /// Command that runs after the files have changed.
    pub command: Option<OutputCommand>,
    /// Variables that the command gets.
    pub variables: EnvVars,
    /// Reaction to files that are deleted or changed from outside.
    pub on_missing: OnMissing,
    /// The agent is not ready before the files are there.
    pub required: bool,
}
