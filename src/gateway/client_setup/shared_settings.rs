//! Settings that several of the user's files may have, and of which one is written. Terraform and OpenTofu take the first
//! text of several files, and a switch that any file turns on. In one file they disagree about a setting that occurs twice:
//! OpenTofu then ignores the whole file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value};

use super::hcl_value::to_hcl;

/// Settings with a text.
const TEXTS: [&str; 1] = ["plugin_cache_dir"];

/// Settings that are on or off.
const SWITCHES: [&str; 3] =
    ["disable_checkpoint", "disable_checkpoint_signature", "plugin_cache_may_break_dependency_lock_file"];

/// Block of OpenTofu with paths.
pub(super) const OCI_BLOCK: &str = "oci_default_credentials";

/// Its paths, which are relative to the file that has them.
pub(super) const OCI_PATHS: &str = "docker_style_config_files";

/// Shared settings of one file, by name.
pub(super) type FileSettings = BTreeMap<&'static str, Setting>;

/// A value of a shared setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) value: Value,
    /// The value as an HCL file has it.
    pub(super) literal: Option<String>,
}

/// Shared settings of all files.
#[derive(Debug, Default)]
pub(super) struct SharedSettings {
    texts: BTreeMap<&'static str, Setting>,
    switches: BTreeSet<&'static str>,
}

/// Returns the name of a shared setting.
pub(super) fn shared_name(key: &str) -> Option<&'static str> {
    TEXTS.into_iter().chain(SWITCHES).find(|name| *name == key)
}

/// Takes the shared settings out of a JSON document, and makes its paths absolute.
pub(super) fn take_from_document(document: &mut Map<String, Value>, folder: &Path) -> FileSettings {
    if let Some(block) = document.get_mut(OCI_BLOCK) {
        let blocks = if let Value::Array(blocks) = block { blocks.as_mut_slice() } else { std::slice::from_mut(block) };
        let lists = blocks.iter_mut().filter_map(|block| block.get_mut(OCI_PATHS)?.as_array_mut());
        for path in lists.flatten() {
            if let Some(absolute) = path.as_str().and_then(|path| absolute(path, folder)) {
                *path = absolute.into();
            }
        }
    }
    let shared: Vec<&'static str> = document.keys().filter_map(|key| shared_name(key)).collect();
    let take = |name| Some((name, Setting { value: document.remove(name)?, literal: None }));
    shared.into_iter().filter_map(take).collect()
}

/// Returns a relative path as one in `folder`; `None` for an absolute one.
pub(super) fn absolute(path: &str, folder: &Path) -> Option<String> {
    Path::new(path).is_relative().then(|| folder.join(path).display().to_string())
}

impl Setting {
    fn is_empty(&self) -> bool {
        matches!(&self.value, Value::Null) || self.value == ""
    }

    /// As Go parses a boolean, which both programs also accept as a text.
    fn is_on(&self) -> bool {
        match &self.value {
            Value::Bool(on) => *on,
            Value::String(text) => matches!(text.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True"),
            Value::Number(number) => number.as_u64() == Some(1),
            _ => false,
        }
    }
}

impl SharedSettings {
    /// Adds the settings of the next file.
    pub(super) fn add_file(&mut self, settings: FileSettings) {
        for (name, setting) in settings {
            if TEXTS.contains(&name) {
                if !setting.is_empty() {
                    self.texts.entry(name).or_insert(setting);
                }
            } else if setting.is_on() {
                self.switches.insert(name);
            }
        }
    }

    /// Returns names and values in HCL.
    pub(super) fn to_hcl(&self) -> impl Iterator<Item = (&'static str, String)> {
        let literal = |setting: &Setting| setting.literal.clone().or_else(|| to_hcl(&setting.value));
        let texts = self.texts.iter().filter_map(move |(name, setting)| Some((*name, literal(setting)?)));
        texts.chain(self.switches.iter().map(|name| (*name, "true".to_owned())))
    }

    /// Returns names and values in JSON.
    pub(super) fn to_json(&self) -> impl Iterator<Item = (String, Value)> {
        let texts = self.texts.iter().map(|(name, setting)| ((*name).to_owned(), setting.value.clone()));
        texts.chain(self.switches.iter().map(|name| ((*name).to_owned(), Value::Bool(true))))
    }
}
