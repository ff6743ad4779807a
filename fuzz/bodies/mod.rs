//! Code of the fuzz targets, with assertions that must hold for any bytes. The tests run it too, on the seeds in `corpus`
//! (`tests/it/fuzz_seeds.rs`).
#![allow(dead_code, reason = "a fuzz target runs one of them")]

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
pub(crate) mod listener;
pub(crate) mod messages;

/// Asserts that a text is one line, and short enough for a log.
fn assert_one_line(words: &str) {
    assert!(!words.contains(char::is_control) && words.len() < 4096, "not one short line: {words:?}");
}

/// Returns a part's length out of the last byte, so that a seed may come in parts of any length.
fn part_length(bytes: &[u8]) -> usize {
    bytes.last().map_or(1, |last| 1 + usize::from(*last % 31))
}
