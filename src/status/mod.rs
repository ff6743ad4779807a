//! Status of the process for operators: collected, read back from JSON, and evaluated. Never holds a secret.

mod registry;
mod document;
mod evaluate;
mod describe;

pub(crate) use describe::{product_name, update_verb};
pub(crate) use document::{
    CallerEntry, CallersEntry, PlatformEntry, SandboxEntry, SessionEntry, StatusDocument, Timestamp,
};
pub(crate) use evaluate::{ReportItem, StatusReport, StatusState, StepKind, evaluate};
pub use registry::StatusRegistry;
pub(crate) use registry::{ReloadFailure, Status};
