//! Status of the process for operators: collected, read back from JSON, and judged. Never holds a secret.

mod registry;
mod document;
mod judge;
mod describe;

pub(crate) use describe::update_verb;
pub(crate) use document::{
    CallerEntry, CallersEntry, PlatformEntry, SandboxEntry, SessionEntry, StatusDocument, Timestamp,
};
pub(crate) use judge::{ReportItem, StatusReport, StatusState, StepKind, judge};
pub use registry::StatusRegistry;
pub(crate) use registry::{ReloadFailure, Status};
