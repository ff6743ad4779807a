//! Files of the state folder: read without trust, replaced as a whole, with secrets encrypted.
//!
//! `file_encryption` is the one type that loads and saves them, with the key of `sealing_key` and the write order of
//! `ordered_file`; `background_writer` decides when a changed file is written.

mod ordered_file;
mod sealing_key;
mod file_encryption;
mod background_writer;

pub(super) use background_writer::{BackgroundWriter, ChangeLevel};
pub(crate) use file_encryption::KeyDerivationError;
pub use file_encryption::PersistOptions;
pub(super) use file_encryption::{EncryptedFile, FileRejected, check_clock};
pub(super) use sealing_key::{FileKind, MAX_CONTENT};
