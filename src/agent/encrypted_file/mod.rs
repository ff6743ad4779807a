//! Files of the state folder: read without trust, replaced as a whole, with secrets encrypted.
//!
//! `file` is the one type that reads and writes them, with the key of `sealing_key` and the write order of `state_file`;
//! `background_writer` decides when a changed file is written.

mod state_file;
mod file_kind;
mod sealing_key;
mod file;
mod background_writer;

pub(super) use background_writer::{BackgroundWriter, ChangeLevel};
pub(crate) use file::EncryptedFileError;
pub use file::PersistOptions;
pub(super) use file::{EncryptedFile, FileRejected, check_clock};
pub(super) use file_kind::{FileKind, MAX_CONTENT};
