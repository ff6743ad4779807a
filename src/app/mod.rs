//! The composition root: `Options` -> build (binds) -> run (serves) -> stop; reload. The one place that joins the parts.

// 0: what the process is given and tells
mod lines;
pub mod logging;
pub mod notify;

// 1: the parts, joined
mod certificate_files;
mod certificates;
mod descriptors;
mod fingerprint;
mod session;
#[cfg(feature = "access")]
mod access;
#[cfg(feature = "gateway")]
mod platform_token;
#[cfg(feature = "gateway")]
mod gateway;
mod derived;
mod outputs;
mod rendered;

// 2: what runs them
mod plan;

// 3: the whole
mod agent;
pub mod once;
pub mod rendered_once;
#[cfg(feature = "gateway")]
pub mod check_gateway;

// 4: all of it, with a cloud of its own
#[cfg(feature = "dev")]
pub mod dev;

pub use agent::{App, Signals};
