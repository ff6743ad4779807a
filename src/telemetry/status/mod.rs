//! Status of the process for operators: collected, read back from JSON, and evaluated. Never holds a secret.

mod registry;
mod document;
mod evaluate;
mod describe;

pub use describe::{product_name, update_verb};
pub use document::{CallerEntry, CallersEntry, PlatformEntry, SandboxEntry, SessionEntry, StatusDocument, Timestamp};
pub use evaluate::{ReportItem, StatusReport, StatusState, StepKind, evaluate};
pub use registry::{ReloadFailure, Status, StatusRegistry};
