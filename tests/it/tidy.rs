//! Checks that neither compiler nor clippy makes: layers of modules, manifests of the crates, file length, first words of comments,
//! fields of log events, and words that never belong in the tree.
//!
//! Each rule is a function from texts to complaints. Besides the tree as it is, each rule gets copies of the tree with one
//! violation, so that a rule that no longer finds its files, or their markers, fails.

mod layers;
mod log_events;
mod manifests;
mod sources;
mod texts;

use std::collections::BTreeMap;
use std::path::Path;

/// Files by their path from the package's root.
type Tree = BTreeMap<String, String>;

fn report_violations(complaints: impl IntoIterator<Item = String>) {
    let complaints: Vec<_> = complaints.into_iter().collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// Asserts that there is one complaint for each of these texts, with the text in it.
fn assert_complaints(complaints: &[String], expected: &[&str]) {
    assert_eq!(complaints.len(), expected.len(), "{expected:?}: {complaints:?}");
    let fits = complaints.iter().zip(expected).all(|(complaint, expected)| complaint.contains(expected));
    assert!(fits, "{expected:?}: {complaints:?}");
}

/// Returns a file of the tree with lines added to its end.
fn seeded(tree: &Tree, path: &str, lines: &str) -> String {
    let text = tree.get(path).unwrap_or_else(|| panic!("{path} was not found"));
    format!("{text}\n{lines}\n")
}

/// Reads every file below a folder of the package that has one of these extensions (any, if none is given).
fn read(folder: &str, endings: &[&str]) -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tree = Tree::new();
    let mut left = vec![root.join(folder)];
    while let Some(next) = left.pop() {
        let Ok(entries) = std::fs::read_dir(&next) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let expected = endings.is_empty() || endings.iter().any(|end| name.ends_with(&format!(".{end}")));
            if path.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
                left.push(path);
            } else if expected && let Ok(text) = std::fs::read_to_string(&path) {
                tree.insert(name, text);
            }
        }
    }
    tree
}

/// Returns the name that a line declares as a module in a file of its own.
fn declared_module(line: &str) -> Option<&str> {
    without_visibility(line).strip_prefix("mod ")?.strip_suffix(';')
}

fn without_visibility(line: &str) -> &str {
    ["pub ", "pub(crate) ", "pub(super) "].iter().find_map(|start| line.strip_prefix(start)).unwrap_or(line)
}

fn without_comments(text: &str) -> String {
    let code = |line: &str| {
        let whole = line.trim_start().starts_with("//");
        let code = if whole { "" } else { line.split(" // ").next().unwrap_or_default() };
        format!("{code}\n")
    };
    text.lines().map(code).collect()
}
