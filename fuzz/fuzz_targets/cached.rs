//! Any bytes as a script of requests to the response cache.
#![no_main]

#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::cached::cached(bytes));
