//! Reads secrets from files and compares them in constant time.
//!
//! Secrets are [`SecretString`] values: no `Display`, a `Debug` without content, zeroed on drop.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use bytes::Bytes;
use http::HeaderValue;
use rustix::fs::{Mode, OFlags};

use crate::beneath::open_beneath;
use crate::os::ProtectedBytes;
use crate::secret_string::SecretString;

/// Compares two strings in constant time. The time reveals only if their lengths are equal.
pub fn ct_eq(left: &SecretString, right: &[u8]) -> bool {
    verify_slices_are_equal(left.expose_bytes(), right).is_ok()
}

/// Compares two optional secrets in constant time; two `None` are equal.
pub fn ct_eq_option(left: Option<&SecretString>, right: Option<&SecretString>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => ct_eq(left, right.expose_bytes()),
        (left, right) => left.is_none() && right.is_none(),
    }
}

/// Returns a secret after `prefix` as a header: marked sensitive, so that `Debug` does not print it, in protected memory.
/// `None` if it does not fit a header.
pub fn header_value(prefix: &str, secret: &SecretString) -> Option<HeaderValue> {
    let text = secret.expose_secret();
    let mut bytes = ProtectedBytes::zeroed(prefix.len() + text.len());
    let (start, end) = bytes.split_at_mut(prefix.len());
    start.copy_from_slice(prefix.as_bytes());
    end.copy_from_slice(text.as_bytes());
    let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(bytes)).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Reads a secret file of one line and trims white space.
///
/// The file must be a regular file of at most [`MAX_SECRET_FILE`] bytes and is opened without blocking, as a FIFO would
/// block the caller. Symlinks are followed: mounted secrets of Kubernetes and systemd are symlinks.
pub fn read_file(path: &Path) -> Result<SecretString, SecretFileError> {
    open_regular(path).and_then(|mut file| read_line(&mut file)).map_err(|reason| SecretFileError::at(path, reason))
}

/// Reads a secret file of one or more lines; empty lines are skipped.
pub fn read_lines(path: &Path) -> Result<Vec<SecretString>, SecretFileError> {
    let text = open_regular(path)
        .and_then(|mut file| read_bounded(&mut file, MAX_SECRET_FILE))
        .map_err(|reason| SecretFileError::at(path, reason))?;
    if text.starts_with(BYTE_ORDER_MARK) {
        return Err(SecretFileError::at(path, Reason::ByteOrderMark));
    }
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(SecretString::from).collect();
    if lines.is_empty() { Err(SecretFileError::at(path, Reason::Empty)) } else { Ok(lines) }
}

/// Reads a secret file as it is, with any number of lines and at most [`MAX_TEXT_FILE`] bytes.
pub fn read_text(path: &Path) -> Result<SecretString, SecretFileError> {
    let read = open_regular(path).and_then(|mut file| read_bounded(&mut file, MAX_TEXT_FILE));
    read.map(|text| SecretString::from(text.as_str())).map_err(|reason| SecretFileError::at(path, reason))
}

/// Reads a file like [`read_text`] if it is inside one of `folders` after all symlinks are resolved.
pub fn read_text_beneath(folders: &[PathBuf], path: &Path) -> Result<SecretString, SecretFileError> {
    let mut reason = Reason::Beneath;
    for folder in folders {
        let Ok(inner) = path.strip_prefix(folder) else { continue };
        let opened = open_beneath(folder, inner).map_err(Reason::Open).and_then(|file| require_regular(file.into()));
        match opened.and_then(|mut file| read_bounded(&mut file, MAX_TEXT_FILE)) {
            Ok(text) => return Ok(SecretString::from(text.as_str())),
            Err(error) => reason = error,
        }
    }
    Err(SecretFileError::at(path, reason))
}

fn open_regular(path: &Path) -> Result<std::fs::File, Reason> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| Reason::Open(errno.into()))?;
    // By the descriptor: the path may lead to another file by now.
    require_regular(file.into())
}

fn require_regular(file: std::fs::File) -> Result<std::fs::File, Reason> {
    if file.metadata().map_err(Reason::Open)?.is_file() { Ok(file) } else { Err(Reason::NotRegular) }
}

/// Reads a secret of one line from standard input, to its end.
pub fn read_stdin() -> Result<SecretString, SecretFileError> {
    read_line(&mut std::io::stdin().lock()).map_err(|reason| SecretFileError::at(Path::new("standard input"), reason))
}

fn read_line(from: &mut impl std::io::Read) -> Result<SecretString, Reason> {
    match read_bounded(from, MAX_SECRET_FILE)?.trim() {
        "" => Err(Reason::Empty),
        line if line.starts_with(BYTE_ORDER_MARK) => Err(Reason::ByteOrderMark),
        // In a token they would end a header, a variable, or a line of a credential helper's protocol.
        line if line.contains(['\n', '\r', '\0']) => Err(Reason::ManyLines),
        line => Ok(SecretString::from(line)),
    }
}

fn read_bounded(from: &mut impl std::io::Read, max: u64) -> Result<String, Reason> {
    // Not empty: into an empty string the library reads its first bytes by way of the stack.
    let mut text = String::with_capacity(FIRST_READ);
    // One byte more: tells a file of the maximum from a longer one.
    from.take(max + 1).read_to_string(&mut text).map_err(|error| {
        if error.kind() == std::io::ErrorKind::InvalidData { Reason::NotText } else { Reason::Open(error) }
    })?;
    if text.len() as u64 > max { Err(Reason::TooLarge(max)) } else { Ok(text) }
}

/// Initial capacity, in bytes: more than most tokens have.
const FIRST_READ: usize = 4096;

/// Start of a file that some editors write, and that no server takes for part of a secret.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Largest secret file, in bytes.
pub(crate) const MAX_SECRET_FILE: u64 = 64 * 1024;

/// Largest text file, such as a template or a CA bundle, in bytes.
pub(crate) const MAX_TEXT_FILE: u64 = 1024 * 1024;

/// Reason why no secret was read from a file. Never holds the file's content.
#[derive(Debug, thiserror::Error)]
#[error("cannot read a secret from {}", path.display())]
pub struct SecretFileError {
    path: PathBuf,
    #[source]
    reason: Reason,
}

impl SecretFileError {
    fn at(path: &Path, reason: Reason) -> Self {
        Self { path: path.to_owned(), reason }
    }

    /// Returns true if the file is there, or may be, and permissions forbid to read it.
    pub fn is_permission_denied(&self) -> bool {
        matches!(&self.reason, Reason::Open(error) if error.kind() == std::io::ErrorKind::PermissionDenied)
    }
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error(transparent)]
    Open(std::io::Error),
    #[error("it is outside the folders that may be read")]
    Beneath,
    #[error("it is not a regular file")]
    NotRegular,
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    #[error("it is empty")]
    Empty,
    #[error("it holds more than one line; a secret that was wrapped has to be put on one line")]
    ManyLines,
    #[error("it begins with a byte order mark; save it as UTF-8 without one")]
    ByteOrderMark,
    #[error("it is not UTF-8 text")]
    NotText,
}

#[cfg(test)]
mod tests;
