//! Writes the file of a template.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use super::TemplateFile;
use crate::atomic_file::{self, Attributes, Outcome, ReplaceError};
use crate::command::CommandError;
use crate::error_code::ErrorCode;
use crate::secure_dir::write_error_code;

/// Writes the file, and creates its folder first if configured.
pub(super) fn write(file: &TemplateFile, bytes: &[u8]) -> Result<Outcome, DeliveryError> {
    if file.create_folders
        && let Some(folder) = file.destination.parent()
    {
        let created = DirBuilder::new().recursive(true).mode(0o755).create(folder);
        created.map_err(|source| DeliveryError::Folder { folder: folder.to_owned(), source })?;
    }
    let attributes = Attributes { mode: file.mode, owner: file.owner, group: file.group };
    let replace = if file.backup { atomic_file::replace_with_backup } else { atomic_file::replace };
    Ok(replace(&file.destination, bytes, &attributes)?)
}

/// Reason why a rendered text was not delivered.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
    #[error("cannot create the folder {}", folder.display())]
    Folder { folder: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    #[error("the template's command failed")]
    Command(#[source] CommandError),
    #[error("an environment variable or credential cannot contain NUL")]
    Nul,
    #[error("the writing task panicked; this is a bug in keyward")]
    Broken,
}

impl DeliveryError {
    /// Returns the code for operators.
    pub(super) fn code(&self) -> ErrorCode {
        match self {
            Self::Folder { source, .. } => write_error_code(source),
            Self::Replace(error) => error.code(),
            Self::Command(_) => ErrorCode::CommandFailed,
            Self::Nul => ErrorCode::TemplateFailed,
            Self::Broken => ErrorCode::OutputFailed,
        }
    }
}
