//! Generated CLI configuration for one program's Terraform or OpenTofu, passed in `TF_CLI_CONFIG_FILE`: the user's own
//! files, followed by the `host` blocks of the gateway. The user's files are read and never written.
//!
//! Of several blocks for one host the last wins. The `tfe` provider reads `host` blocks from the main file only, which
//! is the one that the variable names.

use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use keyward_machine::atomic_file::{self, Attributes, ReplaceError};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::hex::encode_hex;
use serde_json::{Map, Value, json};

use super::ServiceHost;
use super::hcl_value::to_hcl;
use super::shared_settings::SharedSettings;
use super::user_config_files::UserConfigFiles;
use super::user_config_text::{ConfigContent, ConfigFile, UserConfigError, to_blocks};

/// Generated file for the programs of one user.
#[derive(Debug, Clone)]
pub struct ProgramCliConfig {
    folder: PathBuf,
    user_files: UserConfigFiles,
}

impl ProgramCliConfig {
    /// Creates one that is written to `folder` and includes `user_files`.
    pub const fn new(folder: PathBuf, user_files: UserConfigFiles) -> Self {
        Self { folder, user_files }
    }

    /// Builds the file for a gateway at `address` (`http://HOST:PORT`), without writing it. Blocks. Includes the token only
    /// if no environment variable can carry it.
    pub(super) fn prepare(
        &self,
        host: &ServiceHost,
        address: &str,
        token: &SecretString,
    ) -> Result<PreparedCliConfig, ProgramCliConfigError> {
        let token = if host.variable().is_some() { None } else { Some(token) };
        let paths = self.user_files.all().map_err(|(file, source)| UserConfigError::Read { file, source })?;
        let mut files = Vec::new();
        for path in &paths {
            files.extend(ConfigFile::read(path)?);
        }
        let text = merge(files, host, address, token)?;
        let file = self.folder.join(format!("terraform-{}.tfrc", self.tag(host, address)));
        Ok(PreparedCliConfig { file, text })
    }

    /// Computes the part of the file's name by which programs do not overwrite each other's file: it depends on all that
    /// decides the content. The user is part of it, as the service's program could not read a file that root's had replaced.
    fn tag(&self, host: &ServiceHost, address: &str) -> String {
        let sources = [self.user_files.main(), self.user_files.folder()].map(Option::unwrap_or_default);
        let sources = sources.each_ref().map(|path| path.as_os_str().as_encoded_bytes());
        let user = rustix::process::geteuid().as_raw().to_string();
        let host = host.to_string();
        let key = [host.as_bytes(), address.as_bytes(), sources[0], sources[1], user.as_bytes()].join(&0);
        encode_hex(digest(&SHA256, &key).as_ref().get(..4).unwrap_or_default())
    }
}

/// A file of [`ProgramCliConfig`] that is not written yet.
#[derive(Debug)]
pub struct PreparedCliConfig {
    file: PathBuf,
    text: String,
}

impl PreparedCliConfig {
    /// Path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.file
    }

    /// Writes the file with mode 0600. Blocks.
    pub fn write(&self) -> Result<(), ProgramCliConfigError> {
        atomic_file::sweep_and_log(&self.file);
        let attributes = Attributes { mode: 0o600, owner: None, group: None };
        atomic_file::replace(&self.file, self.text.as_bytes(), &attributes)?;
        Ok(())
    }
}

fn merge(
    files: Vec<ConfigFile>,
    host: &ServiceHost,
    address: &str,
    token: Option<&SecretString>,
) -> Result<String, ProgramCliConfigError> {
    let mut shared = SharedSettings::default();
    let mut contents = Vec::new();
    for file in files {
        let (content, settings) = file.parse()?;
        shared.add_file(settings);
        contents.push((file, content));
    }
    if !contents.is_empty() && contents.iter().all(|(_, content)| matches!(content, ConfigContent::Json(_))) {
        let documents = contents.into_iter().filter_map(|(_, content)| match content {
            ConfigContent::Json(document) => Some(document),
            ConfigContent::Hcl(_) => None,
        });
        return Ok(merge_documents(documents, &shared, host, address, token));
    }
    let mut text = format!("{HEADER_COMMENT}\n");
    for (key, value) in shared.to_hcl() {
        text.extend([key, " = ", &*value, "\n"]);
    }
    for (file, content) in &contents {
        match content {
            ConfigContent::Hcl(content) => text.push_str(content),
            ConfigContent::Json(document) => text.push_str(&to_blocks(file, document)?),
        }
        text.push('\n');
    }
    text.push_str(&host.blocks(address).join("\n"));
    text.push('\n');
    if let Some(token) = token {
        let token = to_hcl(&token.expose_secret().into()).unwrap_or_default();
        text.extend(["credentials \"", &host.to_string(), "\" {\n  token = ", &token, "\n}\n"]);
    }
    Ok(text)
}

fn merge_documents(
    documents: impl Iterator<Item = Map<String, Value>>,
    shared: &SharedSettings,
    host: &ServiceHost,
    address: &str,
    token: Option<&SecretString>,
) -> String {
    let mut merged = Map::new();
    for (key, value) in documents.flatten() {
        match (merged.get_mut(&key), value) {
            (Some(Value::Object(before)), Value::Object(more)) => before.extend(more),
            (_, value) => drop(merged.insert(key, value)),
        }
    }
    merged.extend(shared.to_json());
    let mut set = |key: &str, host: &str, value: Value| {
        if let Value::Object(all) = merged.entry(key).or_insert_with(|| json!({})) {
            all.insert(host.to_owned(), value);
        }
    };
    for host in host.aliases() {
        set("host", &host, json!({ "services": ServiceHost::services(address) }));
    }
    if let Some(token) = token {
        set("credentials", &host.to_string(), json!({ "token": token.expose_secret() }));
    }
    format!("{:#}\n", Value::Object(merged))
}

const HEADER_COMMENT: &str =
    "# Generated by keyward for programs that it runs: the user's configuration followed by the gateway's host blocks.";

/// Error of [`ProgramCliConfig`].
#[derive(Debug, thiserror::Error)]
pub enum ProgramCliConfigError {
    /// A file of the user cannot be read or merged.
    #[error(transparent)]
    UserFile(#[from] UserConfigError),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] ReplaceError),
}

#[cfg(test)]
mod tests;
