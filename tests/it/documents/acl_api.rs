//! The reference of the ACL API: every operation of the server's table, with samples that a test has taken.

use std::collections::BTreeSet;

use super::{compare, read};

const DOCUMENT: &str = "docs/reference/acl-api.md";

/// The table of operations in the source, as lines such as `PUT, POST /v1/acl/token/:`.
fn operations() -> Vec<String> {
    let source = read("src/acl/api/operation.rs");
    // `Variant: PUT|POST "path" "name" Guard handler;`
    let row = |line: &str| {
        let (_, row) = line.strip_suffix(';')?.split_once(": ")?;
        let (methods, texts) = row.trim_start().split_once(' ')?;
        let is_method = methods.chars().all(|letter| letter.is_ascii_uppercase() || letter == '|');
        let path = texts.split('"').nth(1).filter(|_| is_method)?;
        Some(format!("{} /v1/{}", methods.replace('|', ", "), path.replace('*', ":")))
    };
    let sections = source.split("\noperations! {\n").skip(1);
    sections.flat_map(|section| section.split("\n}\n").next().unwrap().lines()).filter_map(row).collect()
}

/// A path without the names of its variables.
fn without_names(path: &str) -> String {
    let part = |part: &str| if part.starts_with(':') { ":".to_owned() } else { part.to_owned() };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// Sections of operations: heading and text.
fn sections(document: &str) -> Vec<(String, &str)> {
    let section = |text| {
        let (heading, text): (&str, &str) = str::split_once(text, '\n').unwrap();
        (heading.trim_matches('`').to_owned(), text.split("\n## ").next().unwrap())
    };
    document.split("\n### ").skip(1).map(section).collect()
}

#[test]
fn the_reference_has_every_operation_and_none_more() {
    let document = read(DOCUMENT);
    let operations = operations();
    assert!(operations.len() > 45, "the operations were not found: {operations:?}");
    let sections = sections(&document);
    let written: Vec<String> = sections.iter().map(|(heading, _)| without_names(heading)).collect();
    compare(DOCUMENT, &operations, &written);
    assert_eq!(written.len(), operations.len(), "an operation stands twice in {DOCUMENT}");
    for (heading, text) in &sections {
        for part in ["**Rights**", "**Request**", "**Response**", "**Errors**"] {
            assert!(text.contains(&format!("- {part}: ")), "{heading} lacks {part}");
        }
    }
}

#[test]
fn samples_of_the_reference_are_responses_of_the_server() {
    let snapshot = read("tests/it/snapshots/snapshots/acl.snap");
    // Ids and indexes are numbered over the whole recording: their digits do not count.
    let sample = |request: &str, status: &str, body: &str| {
        let plain = |text: &str| text.replace(|character: char| character.is_ascii_digit(), "");
        (plain(request), status.to_owned(), plain(body.trim_end()))
    };
    // An entry is the request, the status, headers, an empty line and the body.
    let entry = |text: &str| {
        let (request, rest) = text.split_once('\n').unwrap();
        let (status, rest) = rest.split_once('\n').unwrap_or((rest, ""));
        sample(request, status, rest.split_once("\n\n").map_or("", |(_, body)| body))
    };
    let recorded: BTreeSet<_> = snapshot.split("\n=== ").skip(1).map(entry).collect();
    let document = read(DOCUMENT);
    let mut samples = 0;
    for (heading, text) in sections(&document) {
        for text in text.split("```http\n").skip(1) {
            let text = text.split("\n```").next().unwrap();
            let (request, rest) = text.split_once('\n').unwrap();
            let (status, body) = rest.split_once('\n').unwrap_or((rest, ""));
            let taken = recorded.contains(&sample(request, status, body));
            assert!(taken, "no test has taken this sample of {heading}:\n{text}");
            samples += 1;
        }
    }
    assert!(samples > 20, "only {samples} samples were found");
}
