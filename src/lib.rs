//! keyward: a machine's cloud identity becomes short-lived tokens for the tools around it.
//!
//! A module imports only modules above it in this list, and the product parts never import each other; `tests/it/tidy.rs`
//! checks both.

// The documentation is built with private items, and links to them.
#![allow(rustdoc::private_intra_doc_links)]
// A build of fewer parts does not use all shared items.
#![cfg_attr(
    not(all(feature = "acl", feature = "dev", feature = "etcd", feature = "gateway")),
    allow(dead_code, unreachable_pub, unused_imports)
)]

// Layer 0: shared by all parts
pub(crate) mod os;
pub use os::ZeroingAllocator;
pub mod secret_string;
pub(crate) mod backoff;
pub mod clock;
pub(crate) mod count_format;
pub(crate) mod time_format;
mod outage;
pub(crate) mod token_bucket;
pub mod demand;
pub(crate) mod error_code;
pub mod credential_watch;
pub mod error_chain;
pub(crate) mod file_watch;
pub(crate) mod beneath;
pub(crate) mod posix_acl;
pub mod secure_dir;
pub mod atomic_file;
pub mod health;
pub(crate) mod hcl;
#[cfg(feature = "fuzzing")]
pub use hcl::fuzz as hcl_fuzz;
pub(crate) mod hex;
pub mod jwt;
pub mod metrics;
pub(crate) mod aead;
pub(crate) mod secret;
pub mod command;
pub mod status;
pub mod audit;
#[cfg(feature = "ui")]
pub(crate) mod recent_events;
pub(crate) mod suggest;
pub mod tasks;

// Layer 1: HTTP, for all parts
pub mod http;

// Layer 2: the product parts and the emulators
pub mod agent;
#[cfg(feature = "acl")]
pub mod acl;
#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(feature = "ui")]
pub(crate) mod ui;
#[cfg(feature = "dev")]
pub mod emulators;

// Layer 3: the configuration file
pub mod config;

// Layer 4: joins the parts
pub mod app;

// Layer 5: the command line
pub mod cli;
