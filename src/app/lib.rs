//! The composition root: joins the other crates into one process. Besides it, only the configuration and
//! the command line know two of the product crates.
//!
//! [`App`] is built from a configuration (which binds its sockets), runs (serves, and reloads), and stops in order. Commands that
//! run without it find one login ([`one_shot_login`]), one rendering ([`one_shot_render`]), the checks of `check --online` and
//! `doctor` ([`probes`], [`doctor`]), and the emulators of `keyward dev` (`dev`).
//!
//! A module imports only modules above it in this list.

// 0: log, limits and service manager of the process
pub mod error_codes;
pub mod journal;
mod log_writer;
pub mod logging;
pub(crate) mod service_notifier;

// 1: the process around the product: memory, sandbox, spawner, certificates, limits
mod protected_memory;
mod certificate_files;
pub mod sandbox;
mod spawner;
mod metrics;
mod certificate_watch;
mod fd_limits;

// 2: each product crate, built from its options and joined to sessions
mod fingerprint;
mod reconciler;
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
mod identities;
#[cfg(feature = "ui")]
mod ui;
mod systemd_credentials;
mod listeners;
mod sinks;
mod templates;
mod certificates;
mod child_process;

// 3: reloads: what is built, replaced and stopped together
mod reload;
mod socket_placement;

// 4: the running process
mod process;

// 5: beside a running process: single logins and renderings, and checks
pub mod one_shot_login;
pub mod one_shot_render;
pub mod check_result;
pub mod probes;
pub mod doctor;

// 6: other processes: the injector, and the complete program with emulators
#[cfg(feature = "injector")]
pub mod injector;
#[cfg(feature = "dev")]
pub mod dev;

pub use process::{App, ProcessSetup, ReloadRejected, Signals};
