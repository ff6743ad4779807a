//! Any bytes as an event of Vault's key-value stores.
#![no_main]

#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::agent::events(bytes));
