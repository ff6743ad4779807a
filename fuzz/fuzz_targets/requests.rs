//! Any bytes of a local caller, through a listener and the API proxy to a server.
#![no_main]

#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::forward::requests(bytes));
