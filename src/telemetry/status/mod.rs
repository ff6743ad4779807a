//! Status of the process for operators: collected, and evaluated by its readers. Never holds a secret.

mod document;
mod evaluate;
mod describe;

pub use describe::{product_name, update_verb};
pub use document::{
    ActivityEntry, ActivityKind, CallerEntry, CallersEntry, CertificateEntry, ComponentEntry, PlatformEntry,
    SandboxEntry, SessionEntry, StatusDocument, Timestamp, WarningEntry,
};
pub use evaluate::{ReportItem, StatusReport, StatusState, StepKind, evaluate};
