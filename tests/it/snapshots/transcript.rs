//! A snapshot's text: one titled section a case.

use std::fmt::Write as _;

use super::redact::Redactions;
use crate::harness::binary::run;

/// The folder of the snapshot files.
pub(super) const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/snapshots/snapshots");

/// The cases of one group, in the order in which they were added.
#[derive(Default)]
pub(super) struct Transcript {
    text: String,
    redactions: Redactions,
}

impl Transcript {
    pub(super) fn new(redactions: Redactions) -> Self {
        Self { text: String::new(), redactions }
    }

    /// Replaces this text too, in the sections that follow.
    pub(super) fn redact(&mut self, text: &str, by: &str) {
        self.redactions = std::mem::take(&mut self.redactions).text(text, by);
    }

    /// Adds a section.
    pub(super) fn add(&mut self, title: &str, text: &str) {
        let (title, text) = (self.redactions.apply(title), self.redactions.apply(text));
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        write!(self.text, "=== {title}\n{text}{end}\n").unwrap();
    }

    /// Adds the exit code and the output of a command of the real binary; returns the exit code.
    pub(super) fn add_command(&mut self, title: &str, args: &[&str], variables: &[(&str, &str)]) -> i32 {
        let (code, output, error) = run(args, variables);
        self.add_output(title, code, &output, &error);
        code
    }

    /// Adds an exit code with both outputs.
    pub(super) fn add_output(&mut self, title: &str, code: i32, output: &str, error: &str) {
        let mut text = format!("exit code {code}\n");
        for (name, output) in [("standard output", output), ("standard error", error)] {
            if !output.is_empty() {
                let end = if output.ends_with('\n') { "" } else { "\n(no newline at the end)\n" };
                write!(text, "--- {name}\n{output}{end}").unwrap();
            }
        }
        self.add(title, &text);
    }

    /// Compares it with the snapshot of that name.
    #[track_caller]
    pub(super) fn compare(self, name: &str) {
        assert!(super::NAMES.contains(&name), "{name} is not listed in NAMES");
        let mut settings = insta::Settings::new();
        settings.set_snapshot_path(FOLDER);
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(name, self.text));
    }
}
