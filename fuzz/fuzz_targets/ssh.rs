//! Any bytes as certificates and public keys of OpenSSH.
#![no_main]

#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::agent::ssh(bytes));
