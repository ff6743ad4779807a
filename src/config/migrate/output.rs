//! Result of a migration: sections of TOML, and the report.

use std::cell::RefCell;
use std::fmt::{self, Write as _};

use keyward_hcl::Position;
use keyward_telemetry::error_chain::escape_controls;

use super::ReportLine;
use crate::references::escape;

/// Outcome of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It means the same.
    Kept,
    /// The written configuration does it in another way, or only in part.
    Changed,
    /// It is omitted.
    NotSupported,
    /// An operator has to act before keyward serves the same callers. The written setting is the narrower one.
    Action,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "kept",
            Self::Changed => "changed",
            Self::NotSupported => "dropped",
            Self::Action => "ACTION REQUIRED",
        })
    }
}

/// Report lines so far. Blocks and values share it.
#[derive(Debug, Default)]
pub(super) struct Report(RefCell<Vec<ReportLine>>);

impl Report {
    pub(super) fn record(&self, at: Position, key: &str, outcome: Outcome, detail: impl Into<String>) {
        // A key may hold any character: in the report it is one line.
        let key = escape_controls(key);
        let detail = escape_controls(&detail.into());
        self.0.borrow_mut().push(ReportLine { file: 0, at, key, outcome, detail });
    }

    /// All lines in the order of the files, each with its file and its position in it.
    pub(super) fn lines(self, starts: &[usize]) -> Vec<ReportLine> {
        let mut lines = self.0.into_inner();
        lines.sort_by_key(|line| line.at);
        for line in &mut lines {
            (line.file, line.at) = locate(starts, line.at);
        }
        lines
    }
}

/// Returns the file of a position in the joined files, and the position in it. `starts` has the number of lines before each file.
pub(super) fn locate(starts: &[usize], at: Position) -> (usize, Position) {
    let file = starts.partition_point(|start| *start < at.line).saturating_sub(1);
    (file, Position { line: at.line - starts.get(file).copied().unwrap_or_default(), ..at })
}

/// Key of the other agent that a line of the written TOML comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) at: Position,
    pub(super) key: String,
}

/// Written TOML, with the origin of each of its lines.
#[derive(Debug, Default)]
pub(super) struct WrittenToml {
    pub(super) text: String,
    pub(super) origins: Vec<Option<Origin>>,
}

/// Sections of the written TOML, in order.
#[derive(Debug, Default)]
pub(super) struct Document(Vec<Section>);

/// A section: a name such as `sink.web`, and lines below it.
#[derive(Debug, Default)]
pub(super) struct Section {
    name: String,
    comments: Vec<&'static str>,
    /// Written as comments, with the sections below it: nothing of it is in force.
    disabled: bool,
    entries: Vec<Entry>,
    /// Written as comments below the others.
    disabled_entries: Vec<(&'static str, String)>,
    /// Block that the section comes from.
    origin: Option<Origin>,
    /// Key that the next entry comes from.
    next_origin: Option<Origin>,
}

/// A key and its value as TOML.
#[derive(Debug)]
struct Entry {
    key: &'static str,
    value: String,
    /// `None` for that of the section.
    origin: Option<Origin>,
}

impl Document {
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|section| section.name == name)
    }

    /// Returns true if a section below that name exists.
    pub(super) fn has_below(&self, name: &str) -> bool {
        self.0.iter().any(|section| section.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
    }

    /// Returns a value as TOML.
    pub(super) fn value(&self, section: &str, key: &str) -> Option<&str> {
        let section = self.0.iter().find(|other| other.name == section)?;
        section.entries.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
    }

    fn is_disabled(&self, name: &str) -> bool {
        let covers = |section: &Section| {
            name.strip_prefix(&section.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.0.iter().any(|section| section.disabled && covers(section))
    }

    /// Returns the section of that name; appends one if there is none.
    pub(super) fn section(&mut self, name: &str) -> &mut Section {
        let index = self.0.iter().position(|section| section.name == name).unwrap_or_else(|| {
            self.0.push(Section { name: name.to_owned(), ..Section::default() });
            self.0.len() - 1
        });
        &mut self.0[index]
    }
}

impl Document {
    /// Formats the sections.
    pub(super) fn write(&self) -> WrittenToml {
        let mut written = WrittenToml::default();
        for (number, section) in self.0.iter().enumerate() {
            if number > 0 {
                written.push("", None);
            }
            for comment in &section.comments {
                written.push(&format!("# {comment}"), None);
            }
            let mark = if self.is_disabled(&section.name) { "# " } else { "" };
            let name = section.name.split('.').map(key).collect::<Vec<_>>().join(".");
            written.push(&format!("{mark}[{name}]"), section.origin.as_ref());
            for entry in &section.entries {
                let origin = entry.origin.as_ref().or(section.origin.as_ref());
                for line in format!("{} = {}", entry.key, entry.value).lines() {
                    written.push(&format!("{mark}{line}"), origin);
                }
            }
            for (key, value) in &section.disabled_entries {
                written.push(&format!("{mark}# {key} = {value}"), None);
            }
        }
        written
    }
}

impl WrittenToml {
    fn push(&mut self, line: &str, origin: Option<&Origin>) {
        self.text.push_str(line);
        self.text.push('\n');
        self.origins.push(origin.cloned());
    }
}

impl Section {
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// Sets the block that the section comes from, unless another one made it.
    pub(super) fn begin(&mut self, origin: Origin) -> &mut Self {
        self.origin.get_or_insert(origin);
        self
    }

    /// Sets the key that the next entry comes from.
    pub(super) fn at(&mut self, origin: Origin) -> &mut Self {
        self.next_origin = Some(origin);
        self
    }

    /// Returns true for a `[template.NAME]`.
    pub(super) fn is_template_file(&self) -> bool {
        self.name.starts_with("template.")
    }

    /// Returns true if the key has this string.
    pub(super) fn has_text(&self, key: &str, value: &str) -> bool {
        let quoted = quote(&escape(value));
        self.entries.iter().any(|entry| entry.key == key && entry.value == quoted)
    }

    pub(super) fn comment(&mut self, comment: &'static str) -> &mut Self {
        self.comments.push(comment);
        self
    }

    /// Writes the section, and those below it, as comments.
    pub(super) const fn disable(&mut self) -> &mut Self {
        self.disabled = true;
        self
    }

    /// Writes a string. The other agents have no references, so `${` in it is text.
    pub(super) fn text(&mut self, key: &'static str, value: &str) -> &mut Self {
        self.put(key, quote(&escape(value)))
    }

    /// Writes a reference to a variable.
    pub(super) fn variable(&mut self, key: &'static str, name: &str) -> &mut Self {
        self.put(key, quote(&format!("${{env:{name}}}")))
    }

    /// Writes a string as a comment: it has no effect.
    pub(super) fn disabled_text(&mut self, key: &'static str, value: &str) -> &mut Self {
        self.disabled_entries.push((key, quote(&escape(value))));
        self
    }

    /// Writes a template's text, which takes no references; a multi-line one as such where TOML allows it.
    pub(super) fn contents(&mut self, value: &str) -> &mut Self {
        let plain = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
        let literal = value.contains('\n') && !value.contains("'''") && value.chars().all(plain);
        self.put("contents", if literal { format!("'''\n{value}'''") } else { quote(value) })
    }

    pub(super) fn texts(&mut self, key: &'static str, values: &[String]) -> &mut Self {
        let values: Vec<_> = values.iter().map(|value| quote(&escape(value))).collect();
        self.put(key, format!("[{}]", values.join(", ")))
    }

    pub(super) fn flag(&mut self, key: &'static str, value: bool) -> &mut Self {
        self.put(key, value.to_string())
    }

    fn put(&mut self, key: &'static str, value: String) -> &mut Self {
        self.entries.retain(|other| other.key != key);
        let origin = self.next_origin.take();
        self.entries.push(Entry { key, value, origin });
        self
    }
}

/// A part of a section's name.
fn key(part: &str) -> String {
    let bare = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if bare { part.to_owned() } else { quote(part) }
}

/// A basic string of TOML.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_control() => {
                // Writing to a string does not fail.
                let _ = write!(quoted, "\\u{:04X}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
