//! Any bytes as HCL or its JSON form.
#![no_main]

#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::configuration::hcl(bytes));
