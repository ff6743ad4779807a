//! Configurations of keyward and of other agents.

use std::path::Path;

use keyward_config::migrate::migrate;
use keyward_config::{Environment, Purpose, load_text};

/// Loads bytes as keyward's configuration.
pub(crate) fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines = text.split('\n').count();
    let outcome = load_text(Path::new("keyward.toml"), text, &Environment::default(), Purpose::Check);
    assert!(outcome.config.is_some() || !outcome.errors.is_empty(), "a rejected configuration without an error");
    let diagnostics = [&outcome.errors, &outcome.warnings, &outcome.notes];
    for diagnostic in diagnostics.into_iter().flatten() {
        let message = diagnostic.to_string();
        super::assert_one_line(&message);
        let Some(position) = diagnostic.position else { continue };
        assert!((1..=lines).contains(&position.line) && position.column > 0, "a position outside the text: {message}");
    }
}

/// Migrates bytes as a configuration of Vault Agent or consul-template, and parses the result.
pub(crate) fn migration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match migrate(text, bytes.len().is_multiple_of(2)) {
        Ok(migrated) => {
            assert!(migrated.toml.parse::<toml::Table>().is_ok(), "the result is no TOML:\n{}", migrated.toml);
            let outcome = load_text(Path::new("keyward.toml"), &migrated.toml, &Environment::default(), Purpose::Check);
            let has_variable = migrated.report.iter().any(|line| line.key.ends_with("aad_env_var"));
            assert!(has_variable || outcome.references.is_empty(), "a text became a reference:\n{}", migrated.toml);
            let lines = text.split('\n').count();
            for line in &migrated.report {
                super::assert_one_line(&line.to_string());
                assert!((1..=lines).contains(&line.at.line), "a position outside the text: {line}");
            }
        }
        Err(error) => super::assert_one_line(&error.to_string()),
    }
}

/// Reads bytes as HCL or its JSON form, and reads the JSON form of the same object.
pub(crate) fn hcl(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines = text.split('\n').count();
    match keyward_hcl::fuzz::read(text) {
        Ok(read) => {
            assert!(read.depth <= 64, "nested {} deep", read.depth);
            for position in &read.positions {
                assert!(
                    (1..=lines).contains(&position.line) && position.column > 0,
                    "a position outside the text: {position}"
                );
            }
            let again = keyward_hcl::fuzz::read(&read.json).expect("the JSON form is rejected");
            assert_eq!(again.json, read.json, "the JSON form differs from the object");
        }
        Err(error) => {
            super::assert_one_line(&error.to_string());
            assert!((1..=lines).contains(&error.position.line), "a position outside the text: {error}");
        }
    }
}
