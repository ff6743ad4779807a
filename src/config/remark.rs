//! One thing to say about a configuration: where, what was found, what would do.

use std::path::{Path, PathBuf};

/// A mistake, a warning or a note. Shown as `FILE:LINE:COLUMN: KEY: FOUND; ADVICE`; never holds a value that could be
/// a secret.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Remark {
    /// The file, as it was named.
    pub file: PathBuf,
    /// Where in the file; `None` where it is about the file as a whole.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// The key from the top, such as `session.main.cloud.role`; empty where it is about no key.
    pub key: String,
    /// What was found.
    pub found: String,
    /// What would do; may be empty.
    pub advice: String,
}

/// A place in a file. Both numbers start at 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Remark {
    /// A remark about a file as a whole.
    pub fn of_file(file: &Path, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { file: file.to_owned(), place: None, key: String::new(), found: found.into(), advice: advice.into() }
    }
}

impl std::fmt::Display for Remark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(Place { line, column }) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.found)?;
        if !self.advice.is_empty() {
            write!(f, "; {}", self.advice)?;
        }
        Ok(())
    }
}
