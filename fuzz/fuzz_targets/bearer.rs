//! Any bytes as an identity token, the method that it is for, and the issuer's key set.
#![no_main]

#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::bearer::bearer(bytes));
