//! keyward: a machine's cloud identity becomes short-lived tokens for the tools around it.
//!
//! A module names only modules above it in this list (`tests/it/tidy.rs` keeps that). The towers never name each other.

// Floor 0: words that all parts share
pub mod os;
pub mod backoff;
pub mod clock;
pub mod demand;
pub mod credential_watch;
pub mod file_watch;
pub mod beneath;
pub mod secure_dir;
pub mod atomic_file;
pub mod health;
pub mod hcl;
pub mod jwt;
pub mod metrics;
pub mod aead;
pub mod secret;
pub mod command;
pub mod status;
pub mod tasks;
pub mod words;

// Floor 1: what every part that speaks HTTP stands on
pub mod http;

// Floor 2: the towers
pub mod agent;
#[cfg(feature = "acl")]
pub mod acl;
#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(feature = "dev")]
pub mod emulators;

// Floor 3: the file
pub mod config;

// Floor 4: the root
pub mod app;

// Floor 5: the command line
pub mod cli;
