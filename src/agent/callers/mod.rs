//! Callers: processes of this machine that the kernel identifies, and the rights that each is granted.
//!
//! `http::peer` reads the facts about a process. A policy is an ordered list of rules: the first one that matches the facts
//! names the caller, and a process that none matches is refused. Without a policy only the options of a listener decide.
//! `pattern`, `cgroup_path`, `rule` and `policy` are pure; the `gate` applies a policy to the requests of one listener.

mod pattern;
mod cgroup_path;
mod grants;
mod rule;
mod policy;
mod metrics;
mod usage;
mod refusal;
mod gate;

pub use cgroup_path::UNIT_KINDS;
pub(crate) use cgroup_path::unit as unit_of_cgroup;
pub(crate) use gate::{AdmittedCaller, WaitingCaller};
pub use gate::{CallerGate, CallerGateDeps};
pub use grants::{CallerGrants, CallerRoute, CallerTokenOptions, CallerTokenScope};
pub use metrics::CallerMetrics;
pub use pattern::{CgroupPattern, NamePattern, PodPattern};
pub use policy::{CallerPolicy, CallerVerdict};
pub(crate) use refusal::CallerRefusal;
pub use rule::{CallerMatch, CallerRule, Criterion, ExecutableRule};
pub use usage::CallerRegistry;
