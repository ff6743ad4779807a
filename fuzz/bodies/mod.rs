//! Bodies of the fuzz targets: their assertions must hold for any bytes. The tests run them too, on the seeds in `corpus`
//! (`tests/it/fuzz_seeds.rs`).
#![allow(dead_code, reason = "each fuzz target runs one function")]

pub(crate) mod acl;
pub(crate) mod agent;
pub(crate) mod bearer;
pub(crate) mod cached;
pub(crate) mod audit;
pub(crate) mod configuration;
pub(crate) mod forward;
pub(crate) mod gateway;
pub(crate) mod go_paths;
pub(crate) mod http1;
pub(crate) mod injector;
pub(crate) mod listener;
pub(crate) mod messages;

/// Asserts that a text is one line, and short enough for a log.
fn assert_one_line(message: &str) {
    assert!(!message.contains(char::is_control) && message.len() < 4096, "not one short line: {message:?}");
}

/// Derives the length of a part from the last byte, so that the fuzzer varies it.
fn part_length(bytes: &[u8]) -> usize {
    bytes.last().map_or(1, |last| 1 + usize::from(*last % 31))
}
