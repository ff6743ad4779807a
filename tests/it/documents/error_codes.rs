//! The document of error codes: generated from the table of the program, which has no code without an error.

use std::fmt::Write as _;
use std::path::Path;

use super::{read, texts};
use crate::harness::binary::run;

/// The text of docs/errors.md, from the table that `keyward explain` prints.
fn errors_document() -> String {
    let (code, output, error) = run(&["explain", "-o", "json"], &[]);
    assert_eq!((code, error.as_str()), (0, ""));
    let table: serde_json::Value = serde_json::from_str(&output).unwrap();
    let mut text = "# Error codes\n\n\
        Errors that operators meet end with a code such as `[KW-1003]`: lines of `keyward check`, `error:` lines of commands, and\n\
        `keyward status`. Log events have it in the field `code`, JSON in `code`. `keyward explain KW-1003` prints the same\n\
        text. A code never changes its meaning. This page is generated: `tests/it/documents.rs` compares it with the program.\n"
        .to_owned();
    let mut group = String::new();
    for row in table.as_array().unwrap() {
        let column = |name: &str| row[name].as_str().unwrap();
        if group != column("group") {
            column("group").clone_into(&mut group);
            writeln!(text, "\n## {group}").unwrap();
        }
        let (cause, remedy) = (column("cause"), column("remedy"));
        let (code, title) = (column("code"), column("title"));
        writeln!(text, "\n### {code}: {title}\n\n- Cause: {cause}.\n- Remedy: {remedy}.").unwrap();
    }
    text
}

#[test]
fn the_document_of_error_codes_matches_explain() {
    let generated = errors_document();
    let there = read("docs/errors.md");
    if generated != there {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("errors.md");
        std::fs::write(&file, generated).unwrap();
        panic!("docs/errors.md is out of date; copy {} over it", file.display());
    }
}

#[test]
fn every_error_code_is_given_to_an_error() {
    let sources = texts("src", ".rs");
    let (tables, others): (Vec<_>, Vec<_>) =
        sources.iter().partition(|(path, _)| path.starts_with("src/telemetry/error_code/table"));
    let table = &tables.iter().find(|(path, _)| path == "src/telemetry/error_code/table.rs").unwrap().1;
    let names: Vec<&str> = table
        .lines()
        .filter_map(|line| line.trim_start().split_once(' ').filter(|(number, _)| number.parse::<u16>().is_ok()))
        .filter_map(|(_, rest)| rest.split_once(':').map(|(name, _)| name))
        .collect();
    assert!(names.len() > 15, "the codes were not found: {names:?}");
    let used = |name: &&str| others.iter().any(|(_, text)| text.contains(&format!("ErrorCode::{name}")));
    let missing: Vec<&str> = names.into_iter().filter(|name| !used(name)).collect();
    assert!(missing.is_empty(), "error codes that no error has: {missing:?}");
}
