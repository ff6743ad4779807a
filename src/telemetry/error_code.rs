//! Stable codes of the errors that operators meet, such as `KW-1203`, each with its cause and remedy.
//!
//! The text of an error stays where it is made; its code leads to `keyward explain CODE` and to docs/errors.md. A code never
//! changes its meaning, and the number of a removed one is not used again.

mod table;

use std::fmt;
use std::io;
use std::str::FromStr;

use keyward_machine::atomic_file::ReplaceError;
use keyward_machine::secure_dir::DirError;

pub use self::table::ErrorCode;

/// Explanation of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Explanation {
    /// The error.
    pub code: ErrorCode,
    /// Group of the error, by its first two digits.
    pub group: &'static str,
    /// The error in a few words.
    pub title: &'static str,
    /// The usual cause.
    pub cause: &'static str,
    /// The action that ends the error.
    pub remedy: &'static str,
}

/// Groups of codes, by the first two digits.
const GROUPS: [(u16, &str); 11] = [
    (10, "Configuration"),
    (11, "Login"),
    (12, "Server"),
    (13, "Token"),
    (14, "Outputs"),
    (15, "Listeners"),
    (16, "ACL server"),
    (17, "Gateway"),
    (18, "Command line"),
    (19, "Machine"),
    (20, "Kubernetes"),
];

impl ErrorCode {
    /// Returns the explanation.
    pub fn explain(self) -> Explanation {
        let (title, cause, remedy) = self.explanation();
        let group = GROUPS.iter().find(|(number, _)| *number == self.number() / 100).map_or("", |(_, name)| name);
        Explanation { code: self, group, title, cause, remedy }
    }

    /// Adds the code to a message, as `TEXT [KW-1203]`.
    pub fn tag(code: Option<impl fmt::Display>, text: &str) -> String {
        code.map_or_else(|| text.to_owned(), |code| format!("{text} [{code}]"))
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl serde::Serialize for ErrorCode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// No error has this code.
#[derive(Debug, thiserror::Error)]
#[error("no error has the code {0:?}; write one such as KW-1003, or list all with `keyward explain`")]
pub struct UnknownErrorCode(String);

impl FromStr for ErrorCode {
    type Err = UnknownErrorCode;

    /// Parses `KW-1203`, also in lower case or without `KW-`.
    fn from_str(text: &str) -> Result<Self, UnknownErrorCode> {
        let upper = text.to_ascii_uppercase();
        let digits = upper.strip_prefix("KW-").unwrap_or(&upper);
        let code = Self::ALL.iter().find(|code| code.as_str().strip_prefix("KW-") == Some(digits));
        code.copied().ok_or_else(|| UnknownErrorCode(text.chars().take(64).collect()))
    }
}

impl ErrorCode {
    /// Returns the code of a failed write.
    pub fn from_write_error(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::DiskFull,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorCode::OutputDenied,
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ErrorCode::OutputFolder,
            _ => ErrorCode::OutputFailed,
        }
    }
}

impl From<&DirError> for ErrorCode {
    fn from(error: &DirError) -> Self {
        match error {
            DirError::Create { source, .. } => Self::from_write_error(source),
            DirError::Open { .. }
            | DirError::Symlink { .. }
            | DirError::Below { .. }
            | DirError::Exposed { .. }
            | DirError::NoFile { .. } => ErrorCode::OutputFolder,
        }
    }
}

impl From<&ReplaceError> for ErrorCode {
    fn from(error: &ReplaceError) -> Self {
        match error {
            ReplaceError::Folder(error) => error.into(),
            ReplaceError::NotRegular { .. } | ReplaceError::NotVersioned { .. } => ErrorCode::OutputNotRegular,
            ReplaceError::Step { source, .. } => Self::from_write_error(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_unique_and_explained() {
        let numbers: Vec<u16> = ErrorCode::ALL.iter().map(|code| code.number()).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        for code in ErrorCode::ALL {
            let Explanation { group, title, cause, remedy, .. } = code.explain();
            assert!(!group.is_empty(), "{code} is in no group");
            for text in [title, cause, remedy] {
                assert!(text.len() > 10 && text.len() <= 200 && !text.ends_with('.'), "{code}: {text:?}");
            }
            assert_eq!(code.as_str(), format!("KW-{}", code.number()));
        }
    }

    #[test]
    fn a_code_is_parsed_in_any_case_and_without_its_prefix() {
        for text in ["KW-1003", "kw-1003", "1003"] {
            assert_eq!(text.parse::<ErrorCode>().unwrap(), ErrorCode::UnknownKey, "{text}");
        }
        for text in ["", "KW-", "KW-9999", "UnknownKey", "KW-KW-1003"] {
            assert!(text.parse::<ErrorCode>().is_err(), "{text}");
        }
    }
}
