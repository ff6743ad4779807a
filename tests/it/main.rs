//! The one test binary: the real parts on real sockets, with small fakes of the network that fail on command.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::too_many_arguments,
    clippy::too_many_lines,
    clippy::needless_pass_by_value,
    clippy::unused_self,
    clippy::missing_docs_in_private_items,
    clippy::doc_markdown
)]
// Without the emulators, few tests use the harness.
#![cfg_attr(not(feature = "dev"), allow(dead_code, unused_imports))]

#[cfg(feature = "acl")]
mod acl;
mod agent;
#[cfg(feature = "dev")]
mod app;
mod atomic_file;
mod cli;
mod config;
#[cfg(feature = "dev")]
mod doctor;
mod documents;
#[cfg(feature = "dev")]
mod emulators;
#[cfg(feature = "dev")]
mod fault_contract;
#[cfg(all(feature = "acl", feature = "fuzzing", feature = "gateway", feature = "injector"))]
mod fuzz_seeds;
#[cfg(feature = "gateway")]
mod gateway;
mod harness;
mod http;
#[cfg(all(feature = "dev", feature = "injector"))]
mod injector;
#[cfg(all(feature = "dev", feature = "fuzzing"))]
mod paths_in_go;
#[cfg(all(feature = "dev", feature = "etcd"))]
mod snapshots;
#[cfg(feature = "dev")]
mod soak;
#[cfg(feature = "dev")]
mod threats;
mod tidy;
#[cfg(all(feature = "ui", feature = "acl", feature = "gateway"))]
mod ui;
#[cfg(all(feature = "acl", feature = "gateway"))]
mod tutorials;
