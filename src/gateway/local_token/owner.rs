//! Records which gateway a local token's file belongs to, so that callers of one gateway never get the platform token
//! of another.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use keyward_machine::atomic_file::{self, ReplaceError};

use super::PRIVATE;

/// Reason why this gateway cannot use a local token's file.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// The file belongs to another gateway.
    #[error(
        "{} is the local token of another gateway, for {recorded}; this gateway is for {this_gateway}: configure another file, or stop \
         the other one and remove {} and {}",
        file.display(), file.display(), owner_file.display()
    )]
    OtherGateway {
        /// The local token's file.
        file: PathBuf,
        /// File that names the owner.
        owner_file: PathBuf,
        /// Recorded owner.
        recorded: String,
        /// This gateway.
        this_gateway: String,
    },
    /// The file that names the owner cannot be read.
    #[error("cannot read {}, which names the gateway that the local token belongs to", file.display())]
    File {
        /// Path of the file.
        file: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
    /// The file that names the owner cannot be written.
    #[error("the gateway that the local token belongs to cannot be recorded")]
    Write(#[from] ReplaceError),
}

/// Claims a local token's file for `owner` (one line of text). A file without a recorded owner, as one that a person
/// wrote, goes to the first gateway that claims it.
///
/// # Errors
/// The file belongs to another gateway, or its owner cannot be read or written.
pub(super) fn claim(file: &Path, owner: &str) -> Result<(), OwnerError> {
    let owner_file = super::with_suffix(file, ".owner");
    atomic_file::sweep_and_log(&owner_file);
    let failed = |source| OwnerError::File { file: owner_file.clone(), source };
    let recorded = match std::fs::read_to_string(&owner_file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if atomic_file::create(&owner_file, format!("{owner}\n").as_bytes(), &PRIVATE)? {
                return Ok(());
            }
            // Another gateway was faster.
            std::fs::read_to_string(&owner_file).map_err(failed)?
        }
        read => read.map_err(failed)?,
    };
    let recorded = recorded.trim_end();
    if recorded == owner {
        return Ok(());
    }
    let file = file.to_owned();
    let recorded = recorded.to_owned();
    let this_gateway = owner.to_owned();
    Err(OwnerError::OtherGateway { file, owner_file, recorded, this_gateway })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_first_gateway_until_its_owner_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.token");
        for _ in 0..2 {
            claim(&file, "https://a file /one").unwrap();
        }
        let error = claim(&file, "https://a file /two").unwrap_err().to_string();
        let token = file.display();
        let owner = folder.path().join("gateway.token.owner");
        assert!(
            error.starts_with(&format!("{token} is the local token of another gateway, for https://a file /one")),
            "{error}"
        );
        assert!(
            error.contains("this gateway is for https://a file /two") && error.contains(&owner.display().to_string()),
            "{error}"
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
        std::fs::remove_file(owner).unwrap();
        claim(&file, "https://a file /two").unwrap();
    }
}
