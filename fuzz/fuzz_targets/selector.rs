//! Any bytes as the selector of a binding rule.
#![no_main]

#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::acl::selector(bytes));
