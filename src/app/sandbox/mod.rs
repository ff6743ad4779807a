//! The sandbox that the process puts itself in: no new privileges, no capabilities that the configuration does not need, and
//! Landlock rules for the files and ports of the configuration.
//!
//! `plan` is pure; `apply` acts, once, before the process has a second thread: all of this holds for a thread and those that
//! it starts.

// 0: what is allowed
mod plan;
mod collect;

// 1: for operators
mod report;

// 2: the kernel
mod apply;

pub use self::apply::apply;
pub(super) use self::apply::has_landlock;
pub use self::plan::{AllowedAccess, SandboxPlan};
pub use self::report::SandboxReport;
pub(super) use self::report::{SandboxMetrics, publish};
