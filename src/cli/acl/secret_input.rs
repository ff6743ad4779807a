//! Input from files and standard input. Secrets are read this way only, never from arguments.

use std::io::Read as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;

/// A file, or `-` for standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SecretInput {
    Stdin,
    File(PathBuf),
}

impl FromStr for SecretInput {
    type Err = String;

    /// `-`, a path, or a path behind `@` as users of such commands write it.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix('@').unwrap_or(text) {
            "" => Err("write a file's path, or - for standard input".to_owned()),
            "-" => Ok(Self::Stdin),
            path => Ok(Self::File(path.into())),
        }
    }
}

impl SecretInput {
    /// The one line of a secret.
    pub(super) fn secret(&self) -> anyhow::Result<SecretString> {
        Ok(match self {
            Self::Stdin => {
                claim_stdin()?;
                secret::read_stdin()?
            }
            Self::File(path) => secret::read_file(path)?,
        })
    }

    /// Reads the whole input, unchanged.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        let (read, name) = match self {
            Self::Stdin => {
                claim_stdin()?;
                (
                    std::io::stdin().lock().take(MAX_INPUT_SIZE + 1).read_to_string(&mut text),
                    "standard input".to_owned(),
                )
            }
            Self::File(path) => {
                let read =
                    std::fs::File::open(path).and_then(|file| file.take(MAX_INPUT_SIZE + 1).read_to_string(&mut text));
                (read, path.display().to_string())
            }
        };
        read.map_err(|error| anyhow::anyhow!("cannot read {name}: {error}"))?;
        anyhow::ensure!(text.len() as u64 <= MAX_INPUT_SIZE, "{name} is larger than {MAX_INPUT_SIZE} bytes");
        Ok(text)
    }
}

/// More than any server takes in one body.
const MAX_INPUT_SIZE: u64 = 8 * 1024 * 1024;

/// A second reader of standard input would find it empty, and use the empty value.
fn claim_stdin() -> anyhow::Result<()> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let is_taken = TAKEN.swap(true, Ordering::SeqCst);
    anyhow::ensure!(!is_taken, "standard input can be read for only one argument: put the other in a file");
    Ok(())
}
