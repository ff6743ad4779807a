//! The composition root: `Options` -> build (binds) -> run (serves) -> stop; reload. The one place that joins the parts.

// 0: log, limits and service manager of the process
pub mod error_codes;
pub mod journal;
mod log_writer;
pub mod logging;
pub(crate) mod service_notifier;

// 1: the parts, joined
mod protected_memory;
mod certificate_files;
pub mod sandbox;
mod spawner;
mod metrics;
mod certificate_watch;
mod fd_limits;
mod fingerprint;
mod stopping;
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
mod process;
pub mod one_shot_login;
pub mod one_shot_render;
pub mod check_result;
pub mod probes;
pub mod doctor;

// 4: the complete program with emulators
#[cfg(feature = "dev")]
pub mod dev;

pub use process::{App, ProcessSetup, ReloadRejected, Signals};
