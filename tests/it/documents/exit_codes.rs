//! The reference of exit codes: every code of `src/cli/exit.rs`.

use super::{cells, compare, read};

const DOCUMENT: &str = "docs/reference/exit-codes.md";

#[test]
fn the_reference_has_every_exit_code_and_none_more() {
    let source = read("src/cli/exit.rs");
    let code =
        |line: &str| Some(line.trim().strip_prefix("Self::")?.split_once(" => ")?.1.trim_end_matches(',').to_owned());
    let codes: Vec<String> = source.lines().filter_map(code).filter(|code| code.parse::<u8>().is_ok()).collect();
    assert!(codes.len() > 10, "the codes were not found: {codes:?}");
    let document = read(DOCUMENT);
    let first = |line: &str| cells(line).map(|cells| cells[0].clone()).filter(|cell| cell.parse::<u8>().is_ok());
    let written: Vec<String> = document.lines().filter_map(first).collect();
    compare(DOCUMENT, &codes, &written);
    assert_eq!(written.len(), codes.len(), "a code stands twice in {DOCUMENT}");
}
