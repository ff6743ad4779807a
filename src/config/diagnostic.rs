//! Errors, warnings and notes about a configuration, each with position, message and advice; and their collection.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use keyward_telemetry::error_code::ErrorCode;

use super::Purpose;

/// An error, a warning or a note. Shown as `FILE:LINE:COLUMN: KEY: MESSAGE; ADVICE [CODE]`; never holds a value that
/// could be a secret.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Diagnostic {
    /// The file, as it was named.
    pub file: PathBuf,
    /// Position in the file; `None` for the file as a whole.
    #[serde(flatten)]
    pub position: Option<Position>,
    /// The full key, such as `session.main.cloud.role`; empty if the diagnostic is about no key.
    pub key: String,
    /// The message, such as `an unknown key`.
    #[serde(rename = "found")]
    pub message: String,
    /// Advice on what to write instead; may be empty.
    pub advice: String,
    /// The code.
    pub code: ErrorCode,
}

/// Position in a file. Both numbers start at 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(Position { line, column }) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)?;
        if !self.advice.is_empty() {
            write!(f, "; {}", self.advice)?;
        }
        write!(f, " [{}]", self.code)
    }
}

/// Position in one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Location {
    /// The file's number.
    pub(super) file: usize,
    /// `None` for the file as a whole.
    pub(super) position: Option<Position>,
}

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Error,
    Warning,
    Note,
}

/// Text of a diagnostic. Its code is the method's own unless it is made of a pair.
#[derive(Debug)]
pub(super) struct Finding {
    code: Option<ErrorCode>,
    text: String,
}

impl From<&str> for Finding {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for Finding {
    fn from(text: String) -> Self {
        Self { code: None, text }
    }
}

impl<T: Into<String>> From<(ErrorCode, T)> for Finding {
    fn from((code, text): (ErrorCode, T)) -> Self {
        Self { code: Some(code), text: text.into() }
    }
}

impl Finding {
    fn or(self, code: ErrorCode) -> Self {
        Self { code: self.code.or(Some(code)), ..self }
    }
}

/// Collection of all diagnostics. Readers share it.
#[derive(Debug)]
pub(super) struct Diagnostics {
    purpose: Purpose,
    files: Vec<PathBuf>,
    /// Lines with syntax errors or below a broken table header, by file: other errors on them would be guesses.
    broken: BTreeSet<(usize, usize)>,
    /// True if something could not be read, so that a key that seems missing may exist.
    partial: bool,
    /// Keys whose value is unknown on this machine.
    unknown: RefCell<BTreeSet<String>>,
    entries: RefCell<Vec<(Location, Severity, Diagnostic)>>,
}

impl Diagnostics {
    pub(super) fn new(purpose: Purpose) -> Self {
        let unknown = RefCell::new(BTreeSet::new());
        let entries = RefCell::new(Vec::new());
        Self { purpose, files: Vec::new(), broken: BTreeSet::new(), partial: false, unknown, entries }
    }

    /// Registers a file; diagnostics are sorted in the order of registration.
    pub(super) fn file(&mut self, path: &Path) -> Location {
        self.files.push(path.to_owned());
        Location { file: self.files.len() - 1, position: None }
    }

    /// Returns the files and folders that were read.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    /// Records an error about something that cannot be read at all.
    pub(super) fn unreadable(
        &mut self,
        at: Location,
        key: &str,
        message: impl Into<Finding>,
        advice: impl Into<String>,
    ) {
        self.partial = true;
        self.broken.extend(at.position.map(|position| (at.file, position.line)));
        self.record(Severity::Error, at, key, message.into().or(ErrorCode::ConfigUnreadable), advice.into());
    }

    /// Suppresses errors on these lines of a file, whose keys belong to a table with a broken header.
    pub(super) fn mark_broken(&mut self, file: Location, lines: impl Iterator<Item = usize>) {
        self.broken.extend(lines.map(|line| (file.file, line)));
    }

    /// True if other errors at this location would be guesses.
    pub(super) fn is_broken(&self, at: Location) -> bool {
        at.position.is_some_and(|position| self.broken.contains(&(at.file, position.line)))
    }

    pub(super) fn error(&self, at: Location, key: &str, message: impl Into<Finding>, advice: impl Into<String>) {
        if !self.is_broken(at) {
            self.record(Severity::Error, at, key, message.into().or(ErrorCode::InvalidValue), advice.into());
        }
    }

    /// Records an error about a missing key.
    pub(super) fn missing(&self, at: Location, key: &str, message: impl Into<Finding>, advice: impl Into<String>) {
        if !self.partial {
            self.error(at, key, message.into().or(ErrorCode::MissingKey), advice);
        }
    }

    /// Records something that this machine lacks: an error, or under [`Purpose::Check`] a note.
    pub(super) fn missing_on_host(
        &self,
        at: Location,
        key: &str,
        message: impl Into<Finding>,
        advice: impl Into<String>,
    ) {
        let message = message.into().or(ErrorCode::MissingOnHost);
        match self.purpose {
            Purpose::Run | Purpose::CheckHost => self.error(at, key, message, advice),
            Purpose::Check => self.record(Severity::Note, at, key, message, advice.into()),
        }
    }

    /// The same for the source of a value: the configuration then holds a placeholder.
    pub(super) fn unknown(&self, at: Location, key: &str, message: impl Into<Finding>, advice: impl Into<String>) {
        self.unknown.borrow_mut().insert(key.to_owned());
        self.missing_on_host(at, key, message.into().or(ErrorCode::UnresolvedValue), advice);
    }

    /// The same for a credential of systemd: a note under [`Purpose::CheckHost`] too.
    pub(super) fn unknown_credential(&self, at: Location, key: &str, message: String, advice: String) {
        if self.purpose == Purpose::CheckHost {
            self.unknown.borrow_mut().insert(key.to_owned());
            let message = Finding::from(message).or(ErrorCode::UnresolvedValue);
            self.record(Severity::Note, at, key, message, advice);
        } else {
            self.unknown(at, key, message, advice);
        }
    }

    /// Returns true if the configuration is read for this machine.
    pub(super) fn is_for_host(&self) -> bool {
        self.purpose != Purpose::Check
    }

    /// Returns the keys whose value is unknown on this machine.
    pub(super) fn placeholders(&self) -> BTreeSet<String> {
        self.unknown.borrow().clone()
    }

    /// Records a warning or note about something that this machine lacks and the agent can run without.
    pub(super) fn optional_on_host(
        &self,
        at: Location,
        key: &str,
        message: impl Into<Finding>,
        advice: impl Into<String>,
    ) {
        let severity = if self.is_for_host() { Severity::Warning } else { Severity::Note };
        self.record(severity, at, key, message.into().or(ErrorCode::MissingOnHost), advice.into());
    }

    pub(super) fn warning(
        &self,
        at: Location,
        key: &str,
        (code, message): (ErrorCode, impl Into<String>),
        advice: impl Into<String>,
    ) {
        self.record(Severity::Warning, at, key, (code, message).into(), advice.into());
    }

    /// Formats a location as `FILE:LINE:COLUMN`, to name it in another diagnostic.
    pub(super) fn name(&self, at: Location) -> String {
        let file = self.path(at).display().to_string();
        at.position.map_or_else(|| file.clone(), |position| format!("{file}:{}:{}", position.line, position.column))
    }

    /// Returns the file of a location.
    pub(super) fn path(&self, at: Location) -> &Path {
        self.files.get(at.file).map_or(Path::new(""), PathBuf::as_path)
    }

    fn record(&self, severity: Severity, at: Location, key: &str, message: Finding, advice: String) {
        let file = self.path(at).to_owned();
        let Finding { code, text: message } = message;
        let code = code.unwrap_or(ErrorCode::InvalidValue);
        let diagnostic = Diagnostic { file, position: at.position, key: key.to_owned(), message, advice, code };
        self.entries.borrow_mut().push((at, severity, diagnostic));
    }

    /// Returns the diagnostics of one severity, in the order of files and lines.
    pub(super) fn all(&self, severity: Severity) -> Vec<Diagnostic> {
        let mut entries: Vec<_> = self
            .entries
            .borrow()
            .iter()
            .filter(|(_, entry_severity, _)| *entry_severity == severity)
            .cloned()
            .collect();
        entries.sort_by_key(|(at, ..)| *at);
        entries.into_iter().map(|(.., diagnostic)| diagnostic).collect()
    }
}
