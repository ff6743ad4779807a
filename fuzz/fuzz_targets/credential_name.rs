//! Any bytes as the name of the socket from which systemd, or somebody else, asks for a credential.
#![no_main]

#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::listener::credential_name(bytes));
