//! The list of annotations: the command, and the document that has it.

use std::fmt::Write as _;
use std::path::Path;

use keyward_injector::{AnnotationRow, annotation_rows};

use crate::harness::binary::run;

const DOCUMENT: &str = "docs/kubernetes-injector.md";

/// The tables of the document.
fn tables() -> String {
    let rows = annotation_rows();
    let cell = |name: &str| if name.is_empty() { String::new() } else { format!("`{name}`") };
    let mut text = "| annotation | of the Vault Agent injector | meaning |\n|---|---|---|\n".to_owned();
    let short = |row: &AnnotationRow| row.vault.replace("vault.hashicorp.com/", "");
    for row in rows.iter().filter(|row| row.is_taken) {
        let keyward = row.keyward.replace("keyward.dev/", "");
        writeln!(text, "| {} | {} | {} |", cell(&keyward), cell(&short(row)), row.meaning).unwrap();
    }
    text += "\n| refused | instead |\n|---|---|\n";
    for row in rows.iter().filter(|row| !row.is_taken) {
        writeln!(text, "| {} | {} |", cell(&short(row)), row.meaning).unwrap();
    }
    text
}

#[test]
fn the_document_has_every_annotation() {
    let generated = tables();
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT)).unwrap();
    if !text.contains(&generated) {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("annotations.md");
        std::fs::write(&file, generated).unwrap();
        panic!("the tables of {DOCUMENT} are out of date; copy those of {} into it", file.display());
    }
}

#[test]
fn the_command_lists_the_same_annotations() {
    let (code, output, error) = run(&["kubernetes", "annotations"], &[]);
    assert_eq!((code, error.as_str()), (0, ""));
    for row in annotation_rows() {
        assert!(
            output.contains(&row.vault) && output.contains(&row.keyward) && output.contains(&row.meaning),
            "{row:?}"
        );
    }
    let (code, output, _) = run(&["kubernetes", "annotations", "-o", "json"], &[]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&output).unwrap();
    assert_eq!((code, rows.len()), (0, annotation_rows().len()));
}
