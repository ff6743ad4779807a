//! Generated CLI configuration for one program's Terraform or OpenTofu, passed in `TF_CLI_CONFIG_FILE`: the user's own
//! files, followed by the `host` block of the gateway. The user's files are read and never written.
//!
//! Of several blocks for one host the last wins. The `tfe` provider reads `host` blocks from the main file only, which
//! is the one that the variable names.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use keyward_machine::atomic_file::{self, Attributes, ReplaceError};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::hex::encode_hex;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::ServiceHost;
use super::user_config_files::UserConfigFiles;

/// One of the user's files.
#[derive(Debug)]
struct ConfigFile {
    file: PathBuf,
    text: Zeroizing<String>,
}

impl ConfigFile {
    /// Reads a file; `None` if it does not exist. Terraform skips a file that it cannot stat, as in a home directory
    /// hidden by systemd.
    fn read(path: &Path) -> Result<Option<Self>, ProgramCliConfigError> {
        let unreadable = |source| ProgramCliConfigError::Read { file: path.to_owned(), source };
        if path.metadata().is_err() {
            return Ok(None);
        }
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut text = Zeroizing::new(String::new());
        file.take(MAX_FILE_SIZE).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 == MAX_FILE_SIZE {
            return Err(ProgramCliConfigError::Unusable { file: path.to_owned(), reason: "is too large".to_owned() });
        }
        Ok(Some(Self { file: path.to_owned(), text }))
    }

    /// Parses a JSON file; `None` for HCL. Terraform decides by the first character too.
    fn document(&self) -> Result<Option<Map<String, Value>>, ProgramCliConfigError> {
        if !self.text.trim_start().starts_with('{') {
            return Ok(None);
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
        Ok(Some(document))
    }

    fn unusable(&self, reason: impl Into<String>) -> ProgramCliConfigError {
        ProgramCliConfigError::Unusable { file: self.file.clone(), reason: reason.into() }
    }
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

    /// Writes the file (mode 0600) for a gateway at `address` (`http://HOST:PORT`) and returns its path. Blocks.
    /// Includes the token only if no environment variable can carry it.
    pub(crate) fn write(
        &self,
        host: &ServiceHost,
        address: &str,
        token: &SecretString,
    ) -> Result<PathBuf, ProgramCliConfigError> {
        let token = if host.variable().is_some() { None } else { Some(token) };
        let unreadable = |(file, source)| ProgramCliConfigError::Read { file, source };
        let mut files = Vec::new();
        for file in self.user_files.all().map_err(unreadable)? {
            files.extend(ConfigFile::read(&file)?);
        }
        let text = merge(&files, host, address, token)?;
        // Programs with different configuration files must not overwrite each other's file, nor those of different users:
        // the service's program could not read a file that root's had replaced.
        let main = self.user_files.main().unwrap_or_default();
        let user = rustix::process::geteuid().as_raw().to_string();
        let owner_key = [host.to_string().as_bytes(), main.as_os_str().as_encoded_bytes(), user.as_bytes()].join(&0);
        let tag = encode_hex(digest(&SHA256, &owner_key).as_ref().get(..4).unwrap_or_default());
        let file = self.folder.join(format!("terraform-{tag}.tfrc"));
        atomic_file::sweep_and_log(&file);
        atomic_file::replace(&file, text.as_bytes(), &Attributes { mode: 0o600, owner: None, group: None })?;
        Ok(file)
    }
}

fn merge(
    files: &[ConfigFile],
    host: &ServiceHost,
    address: &str,
    token: Option<&SecretString>,
) -> Result<Zeroizing<String>, ProgramCliConfigError> {
    let documents = files.iter().map(ConfigFile::document).collect::<Result<Vec<_>, _>>()?;
    if !documents.is_empty() && documents.iter().all(Option::is_some) {
        let mut merged = Map::new();
        for document in documents.into_iter().flatten() {
            for (key, value) in document {
                match (merged.get_mut(&key), value) {
                    (Some(Value::Object(before)), Value::Object(more)) => before.extend(more),
                    (_, value) => drop(merged.insert(key, value)),
                }
            }
        }
        let mut set = |key: &str, value: Value| {
            if let Value::Object(all) = merged.entry(key).or_insert_with(|| json!({})) {
                all.insert(host.to_string(), value);
            }
        };
        set("host", json!({ "services": ServiceHost::services(address) }));
        if let Some(token) = token {
            set("credentials", json!({ "token": token.expose_secret() }));
        }
        return Ok(Zeroizing::new(format!("{:#}\n", Value::Object(merged))));
    }
    let mut text = Zeroizing::new(format!("{HEADER_COMMENT}\n"));
    for (file, document) in files.iter().zip(&documents) {
        match document {
            None => text.push_str(&file.text),
            Some(document) => text.push_str(&to_blocks(file, document)?),
        }
        text.push('\n');
    }
    text.push_str(&host.block(address).join("\n"));
    text.push('\n');
    if let Some(token) = token {
        let token = to_hcl(&token.expose_secret().into()).unwrap_or_default();
        text.extend(["credentials \"", &host.to_string(), "\" {\n  token = ", &token, "\n}\n"]);
    }
    Ok(text)
}

const HEADER_COMMENT: &str =
    "# Generated by keyward for programs that it runs: the user's configuration followed by the gateway's host block.";

/// Converts a JSON document to HCL blocks.
fn to_blocks(file: &ConfigFile, document: &Map<String, Value>) -> Result<Zeroizing<String>, ProgramCliConfigError> {
    let mut text = Zeroizing::new(String::new());
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

/// Converts a value to HCL; `None` for null and for strings with `${`, which would begin an expression.
fn to_hcl(value: &Value) -> Option<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    match value {
        Value::Object(members) => {
            text.push_str("{\n");
            for (key, value) in members {
                text.extend([&*to_hcl(&key.as_str().into())?, " = ", &*to_hcl(value)?, "\n"]);
            }
            text.push('}');
        }
        Value::Array(all) => {
            let all = all.iter().map(to_hcl).collect::<Option<Vec<_>>>()?;
            text.push('[');
            for value in all {
                text.push_str(&value);
                text.push_str(", ");
            }
            text.push(']');
        }
        Value::String(text) if text.contains("${") => return None,
        Value::Null => return None,
        other => text.push_str(&other.to_string()),
    }
    Some(text)
}

/// Error of [`ProgramCliConfig::write`].
#[derive(Debug, thiserror::Error)]
pub enum ProgramCliConfigError {
    /// A file of the user cannot be read.
    #[error("cannot read {}, a configuration file of Terraform or OpenTofu", file.display())]
    Read {
        /// Path of the file.
        file: PathBuf,
        /// Underlying error.
        #[source]
        source: std::io::Error,
    },
    /// A file of the user cannot be merged.
    #[error("{}, a configuration file of Terraform or OpenTofu, {reason}", file.display())]
    Unusable {
        /// Path of the file.
        file: PathBuf,
        /// Reason, to follow the path in a sentence.
        reason: String,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] ReplaceError),
}

#[cfg(test)]
mod tests {
    use keyward_machine::command::EnvVars;

    use super::*;

    fn user_files(pairs: &[(&str, &Path)]) -> UserConfigFiles {
        let mut variables = EnvVars::default();
        for (name, value) in pairs {
            variables.set(*name, SecretString::from(value.display().to_string()));
        }
        UserConfigFiles::new(&variables, &["terraform".to_owned()], None)
    }

    fn generate(folder: &Path, user_files: UserConfigFiles, host: &str) -> Result<String, ProgramCliConfigError> {
        let host = ServiceHost::parse(host).unwrap();
        let path = ProgramCliConfig::new(folder.to_owned(), user_files).write(
            &host,
            "http://127.0.0.1:8800",
            &"of-the-gateway".into(),
        )?;
        Ok(std::fs::read_to_string(path).unwrap())
    }

    #[test]
    fn user_files_keep_their_order_and_the_host_block_is_last() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        std::fs::create_dir(home.join(".terraform.d")).unwrap();
        let put = |name: &str, text: &str| std::fs::write(home.join(name), text).unwrap();
        put(".terraformrc", "plugin_cache_dir = \"/c\"");
        put(".terraform.d/credentials.tfrc.json", r#"{"//": "x", "credentials": {"a.example": {"token": "t\"1"}}}"#);
        put(".terraform.d/b.tfrc", "disable_checkpoint = true");
        put(".terraform.d/c.tfrc.bak", "no");
        let text = generate(home, user_files(&[("HOME", home)]), "app.terraform.io").unwrap();
        let position = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let order = [
            position("plugin_cache_dir = \"/c\"\n"),
            position("disable_checkpoint = true\n"),
            position("credentials \"a.example\" {\n\"token\" = \"t\\\"1\"\n}\n"),
            position("host \"app.terraform.io\" {\n"),
        ];
        assert!(order.is_sorted() && !text.contains("no\n") && !text.contains("of-the-gateway"), "{text}");

        // A file named by the variable replaces all others.
        put("mine.json", r#"{"host": {"app.terraform.io": {"services": {}}, "b.example": {"services": {}}}}"#);
        let named = user_files(&[("HOME", home), ("TF_CLI_CONFIG_FILE", &home.join("mine.json"))]);
        let merged: Value = serde_json::from_str(&generate(home, named, "app.terraform.io").unwrap()).unwrap();
        assert_eq!(merged["host"]["app.terraform.io"]["services"]["tfe.v2"], "http://127.0.0.1:8800/api/v2/");
        assert_eq!((&merged["host"]["b.example"]["services"], merged.as_object().unwrap().len()), (&json!({}), 1));

        // JSON blocks may be in an array too.
        let blocks = r#"{"host": [{"b.example": {"services": {}}}, {"c.example": {}}], "credentials": null}"#;
        for beside in ["", "disable_checkpoint = true"] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join(".terraform.d")).unwrap();
            std::fs::write(folder.path().join(".terraform.d/a.tfrc.json"), blocks).unwrap();
            if !beside.is_empty() {
                std::fs::write(folder.path().join(".terraformrc"), beside).unwrap();
            }
            let text = generate(home, user_files(&[("HOME", folder.path())]), "app.terraform.io").unwrap();
            let named = ["\"b.example\"", "\"c.example\"", "\"app.terraform.io\""];
            assert!(named.iter().all(|host| text.contains(host)), "{text}");
        }

        // For a host without a variable the token is in the file.
        let text = generate(home, UserConfigFiles::default(), "tfe.example.com:8443").unwrap();
        assert!(text.ends_with("credentials \"tfe.example.com:8443\" {\n  token = \"of-the-gateway\"\n}\n"), "{text}");
        let missing = user_files(&[("TF_CLI_CONFIG_FILE", &home.join("nowhere"))]);
        // An unreadable home folder is skipped too.
        for nothing in [missing, user_files(&[("HOME", &home.join("mine.json"))])] {
            let text = generate(home, nothing, "app.terraform.io").unwrap();
            assert!(text.starts_with(&format!("{HEADER_COMMENT}\nhost \"app.terraform.io\"")), "{text}");
        }
    }

    #[test]
    fn merge_errors_name_the_file_without_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        std::fs::create_dir(home.join(".terraform.d")).unwrap();
        std::fs::write(home.join(".terraformrc"), "disable_checkpoint = true").unwrap();
        for text in [
            r#"{"provider_installation": {"direct": {}}}"#,
            r#"{"credentials": {"a": {"token": "canary ${x}"}}}"#,
            r#"{"credentials": {"a": "canary"}}"#,
            r#"{"credentials": "#,
        ] {
            std::fs::write(home.join(".terraform.d/x.tfrc.json"), text).unwrap();
            let error = generate(home, user_files(&[("HOME", home)]), "app.terraform.io").unwrap_err().to_string();
            assert!(error.contains("x.tfrc.json") && !error.contains("canary"), "{error}");
        }
        let mine = home.join("mine.json");
        for file in ["host", "credentials"] {
            std::fs::write(&mine, format!("{{\"{file}\": \"canary\"}}")).unwrap();
            let error = generate(home, user_files(&[("TF_CLI_CONFIG_FILE", &mine)]), "app.terraform.io")
                .unwrap_err()
                .to_string();
            assert!(error.contains("mine.json") && error.contains(file) && !error.contains("canary"), "{error}");
        }
    }
}
