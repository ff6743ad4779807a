//! Certificates with their keys: of PKI and SSH engines, requested with a key that is made here, and of SPIFFE's Workload API; written
//! together with the key, and replaced before their end.
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
#[cfg(feature = "fuzzing")]
pub mod fuzz;

pub use self::key::{KeyOrigin, KeyType};
pub use self::metrics::IssuedCertificateMetrics;
pub use self::output::{CertificateOutput, OutputForm};
pub use self::pki::PkiSubject;
pub use self::policy::{RenewAt, RenewalPolicy, Window};
pub use self::request::{CertificateRequest, CertificateSubject};
pub use self::ssh::SshSubject;
pub use self::task::{CertificateDeps, CertificateIssuer, CertificateTask, EngineOptions};

use std::time::Duration;

use keyward_machine::command::EnvVars;

use crate::output_command::OutputCommand;
use crate::output_watch::OnMissing;
pub use crate::ssh::SshCertificateKind;

/// Options of one certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateOptions {
    /// Name in log events, metrics and the status.
    pub name: String,
    /// Its files.
    pub output: CertificateOutput,
    /// Command that runs after the files have changed.
    pub command: Option<OutputCommand>,
    /// Quiet time before a command that several outputs share.
    pub command_debounce: Duration,
    /// Variables that the command gets.
    pub variables: EnvVars,
    /// Reaction to files that are deleted or changed from outside.
    pub on_missing: OnMissing,
    /// The agent is not ready before the files are there.
    pub required: bool,
}
