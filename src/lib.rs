//! keyward: a machine's cloud identity becomes short-lived tokens for the tools around it.
//!
//! This package is the program and its command line. The crates below it are listed in `Cargo.toml`, lowest first.

pub mod cli;
