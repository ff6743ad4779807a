//! Texts of the user's configuration files for Terraform and OpenTofu, read for a merge of all.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::hcl_settings;
use super::hcl_value::to_hcl;
use super::shared_settings::{self, FileSettings};

/// One of the user's files.
#[derive(Debug)]
pub(super) struct ConfigFile {
    file: PathBuf,
    text: String,
}

impl ConfigFile {
    /// Reads a file; `None` if it does not exist. Terraform skips a file that it cannot stat, as in a home directory
    /// hidden by systemd.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, UserConfigError> {
        let unreadable = |source| UserConfigError::Read { file: path.to_owned(), source };
        if path.metadata().is_err() {
            return Ok(None);
        }
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut text = String::new();
        file.take(MAX_FILE_SIZE).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 == MAX_FILE_SIZE {
            return Err(UserConfigError::Unusable { file: path.to_owned(), reason: "is too large".to_owned() });
        }
        Ok(Some(Self { file: path.to_owned(), text }))
    }

    /// Parses the file, and takes the shared settings out of it. Terraform decides by the first character if it is JSON.
    pub(super) fn parse(&self) -> Result<(ConfigContent, FileSettings), UserConfigError> {
        // A relative path in the file means one beside it.
        let folder = std::path::absolute(&self.file).unwrap_or_default();
        let folder = folder.parent().unwrap_or(Path::new("/"));
        if !self.text.trim_start().starts_with('{') {
            let (text, settings) = hcl_settings::take(&self.text, folder);
            return Ok((ConfigContent::Hcl(text), settings));
        }
        // The parser's error would quote the file, which holds tokens.
        let mut document: Map<String, Value> =
            serde_json::from_str(&self.text).map_err(|_| self.unusable("is not valid JSON"))?;
        for name in LABELLED_BLOCKS {
            if let Some(blocks) = document.get_mut(name) {
                let labels = collect_labels(blocks.take());
                *blocks = labels.ok_or_else(|| self.unusable(format!("has {name:?} blocks without labels")))?.into();
            }
        }
        let settings = shared_settings::take_from_document(&mut document, folder);
        Ok((ConfigContent::Json(document), settings))
    }

    fn unusable(&self, reason: impl Into<String>) -> UserConfigError {
        UserConfigError::Unusable { file: self.file.clone(), reason: reason.into() }
    }
}

/// Content of a file without its shared settings.
#[derive(Debug)]
pub(super) enum ConfigContent {
    Json(Map<String, Value>),
    Hcl(String),
}

/// Blocks with a label: in JSON an object keyed by label, or an array of such objects.
const LABELLED_BLOCKS: [&str; 3] = ["credentials", "credentials_helper", "host"];

fn collect_labels(blocks: Value) -> Option<Map<String, Value>> {
    match blocks {
        Value::Object(labels) => Some(labels),
        Value::Array(several) => several.into_iter().map(collect_labels).try_fold(Map::new(), |mut all, more| {
            all.extend(more?);
            Some(all)
        }),
        Value::Null => Some(Map::new()),
        _ => None,
    }
}

/// Largest file of the user that is merged, in bytes.
const MAX_FILE_SIZE: u64 = 256 * 1024;

/// Converts a JSON document to HCL blocks.
pub(super) fn to_blocks(file: &ConfigFile, document: &Map<String, Value>) -> Result<String, UserConfigError> {
    let mut text = String::new();
    for (key, value) in document {
        let unusable =
            || file.unusable(format!("has {key:?}, which cannot be converted to HCL; write all files in one syntax"));
        match value {
            _ if key == "//" => {}
            Value::Object(labels) if LABELLED_BLOCKS.contains(&key.as_str()) => {
                for (label, body) in labels {
                    let label = to_hcl(&label.as_str().into());
                    let body = to_hcl(body).filter(|_| body.is_object());
                    let (label, body) = label.zip(body).ok_or_else(unusable)?;
                    text.extend([key, " ", &label, " ", &body, "\n"]);
                }
            }
            Value::String(_) | Value::Bool(_) | Value::Number(_) => {
                text.extend([key, " = ", &*to_hcl(value).ok_or_else(unusable)?, "\n"]);
            }
            _ => return Err(unusable()),
        }
    }
    Ok(text)
}

/// Error of reading or merging a file of the user.
#[derive(Debug, thiserror::Error)]
pub enum UserConfigError {
    /// The file cannot be read.
    #[error("cannot read {}, a configuration file of Terraform or OpenTofu", file.display())]
    Read {
        /// Path of the file.
        file: PathBuf,
        /// Underlying error.
        #[source]
        source: std::io::Error,
    },
    /// The file cannot be merged.
    #[error("{}, a configuration file of Terraform or OpenTofu, {reason}", file.display())]
    Unusable {
        /// Path of the file.
        file: PathBuf,
        /// Reason, to follow the path in a sentence.
        reason: String,
    },
}
