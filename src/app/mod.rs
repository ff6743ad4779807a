//! The composition root: `Options` -> build (binds) -> run (serves) -> stop; reload. The one place that joins the parts.

// 0: log, limits and service manager of the process
pub(crate) mod error_codes;
pub(crate) mod journal;
mod log_writer;
pub(crate) mod logging;
pub(crate) mod systemd;

// 1: the parts, joined
mod protected_memory;
mod certificate_files;
pub(crate) mod sandbox;
mod spawner;
mod metrics;
mod certificates;
mod fd_limits;
mod fingerprint;
mod draining;
mod stopping_outputs;
mod session;
mod callers;
mod audit;
#[cfg(feature = "acl")]
mod acl;
#[cfg(feature = "gateway")]
mod platform_token;
#[cfg(feature = "gateway")]
mod gateway;
mod derived_tokens;
mod caller_tokens;
#[cfg(feature = "ui")]
mod ui;
mod systemd_credentials;
mod outputs;
mod templates;

// 2: running parts
mod reload;
mod socket_placement;

// 3: the whole
#[expect(clippy::module_inception, reason = "the assembled process is what this part is for")]
mod app;
pub mod one_shot;
pub(crate) mod one_shot_render;
pub(crate) mod check_result;
pub(crate) mod probes;
pub(crate) mod doctor;

// 4: the complete program with emulators
#[cfg(feature = "dev")]
pub(crate) mod dev;

pub(crate) use app::{App, ProcessSetup, ReloadRejected, Signals};
