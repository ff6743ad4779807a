//! Any bytes as method, path and query, compared with Go's reading of them.
#![no_main]

#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::go_paths::go_paths(bytes));
