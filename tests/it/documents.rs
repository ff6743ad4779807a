//! The documents match the code: each reference has every item of the code, and no other.

mod acl_api;
#[cfg(all(feature = "acl", feature = "gateway", feature = "etcd", feature = "dev"))]
mod commands;
mod error_codes;
mod events;
mod exit_codes;
mod guides;
mod metrics;
mod monitoring;
mod packaging_tools;
mod questions;
mod pod_secrets;
mod security;

use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The most that a table's cell may hold: longer texts stand below their table.
const LONGEST_CELL: usize = 200;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Path and text of all files of a folder that end so.
fn texts(folder: &str, ending: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut pending = vec![Path::new(ROOT).join(folder)];
    while let Some(next) = pending.pop() {
        for path in std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                pending.push(path);
            } else if path.to_str().unwrap().ends_with(ending) {
                let name = path.strip_prefix(ROOT).unwrap().display().to_string();
                let text = read(&name);
                found.push((name, text));
            }
        }
    }
    found
}

/// Cells of a table's line; `None` for other lines and for the line below the head.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.strip_prefix('|')?.trim_end().strip_suffix('|')?;
    if inner.starts_with("---") {
        return None;
    }
    let cells = inner.replace("\\|", "\0");
    Some(cells.split('|').map(|cell| cell.trim().replace('\0', "\\|")).collect())
}

/// Rows of a document's tables whose first cell is code; that cell's text replaces it.
fn rows(document: &str) -> Vec<Vec<String>> {
    let row = |line: &str| {
        let mut cells = cells(line)?;
        let code = cells[0].strip_prefix('`')?.strip_suffix('`')?.to_owned();
        cells[0] = code;
        Some(cells)
    };
    read(document).lines().filter_map(row).collect()
}

/// Fails with the differences between lines that the code has and lines that a document has.
#[track_caller]
fn compare(document: &str, code: &[String], written: &[String]) {
    let missing = code.iter().filter(|line| !written.contains(line)).map(|line| format!("+ {line}"));
    let more = written.iter().filter(|line| !code.contains(line)).map(|line| format!("- {line}"));
    let differences: Vec<String> = more.chain(missing).collect();
    assert!(differences.is_empty(), "{document} and the code differ; what the code has:\n{}", differences.join("\n"));
}

#[test]
fn no_cell_of_a_table_is_long() {
    let mut documents = [texts("docs", ".md"), texts("packaging", ".md"), texts("benches", ".md")].concat();
    documents.extend(
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
            .map(|name| (name.to_owned(), read(name))),
    );
    assert!(documents.len() > 25, "the documents were not found");
    let mut long = Vec::new();
    for (path, text) in &documents {
        for (number, line) in text.lines().enumerate() {
            let cells = cells(line).unwrap_or_default();
            if let Some(cell) = cells.iter().find(|cell| cell.chars().count() > LONGEST_CELL) {
                long.push(format!("{path}:{}: {} characters", number + 1, cell.chars().count()));
            }
        }
    }
    assert!(long.is_empty(), "cells over {LONGEST_CELL} characters; move the text below the table: {long:#?}");
}

#[test]
fn documents_name_the_real_products() {
    let mut documents = [texts("docs", ".md"), texts("config", ".toml")].concat();
    documents.extend(
        ["README.md", "Cargo.toml", "packaging/README.md", "benches/README.md"]
            .map(|name| (name.to_owned(), read(name))),
    );
    let private = ["secrets server", "provisioning platform", "access-control service"];
    let mut found = Vec::new();
    for (path, text) in &documents {
        for (number, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            found.extend(
                private.iter().filter(|word| line.contains(*word)).map(|word| format!("{path}:{}: {word}", number + 1)),
            );
        }
    }
    assert!(found.is_empty(), "write Vault or OpenBao, HCP Terraform or Terraform Enterprise, ACL server: {found:#?}");
}

#[test]
fn the_index_lists_every_document_and_the_map_names_folders_that_exist() {
    let index = read("docs/README.md");
    let all = texts("docs", ".md");
    let linked = |path: &str| [")", "#"].iter().any(|end| index.contains(&format!("]({path}{end}")));
    let listed = |path: &str| linked(path) || path == "README.md" || path.starts_with("internals/adr/0");
    let missing: Vec<&str> =
        all.iter().filter_map(|(path, _)| path.strip_prefix("docs/")).filter(|path| !listed(path)).collect();
    assert!(missing.is_empty(), "docs/README.md does not list {missing:?}");

    let architecture = read("ARCHITECTURE.md");
    let map = architecture.split_once("\n## The parts\n").unwrap().1.split("\n## ").next().unwrap();
    let folders: Vec<&str> = map.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next()).collect();
    let folders: Vec<&str> =
        folders.iter().flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`')).collect();
    assert!(folders.len() > 10, "the map was not found: {folders:?}");
    for folder in folders {
        assert!(
            Path::new(ROOT).join(folder).is_dir(),
            "ARCHITECTURE.md names the folder {folder}, which does not exist"
        );
    }
}
