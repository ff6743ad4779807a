//! The settings in force, each with the place that it comes from: a line of a file, a variable, or the default.

use std::path::{Path, PathBuf};

use super::diagnostic::{Diagnostics, Location};
use super::files::read_files;
use super::reference::{DefaultValue, KeyReference, SectionReference, sections};
use super::references::find_references;
use super::tree::{Entry, Table, Value, join};
use super::{Environment, Purpose};

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its section, such as `session.web.cloud`.
    pub section: String,
    /// Its key in the section.
    pub key: String,
    /// Its value.
    pub value: SettingValue,
    /// Place that it comes from.
    pub origin: Origin,
}

/// Value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingValue {
    /// A string; with its references as they are written, since what they refer to may be secret.
    Text(String),
    /// An array of strings.
    List(Vec<String>),
    /// A number or a boolean, in TOML.
    Literal(String),
    /// A default that depends on other settings, in words.
    Described(&'static str),
}

/// Place that a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file, and the references in its value, such as `env:VAULT_ADDR`.
    File {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The references.
        references: Vec<String>,
    },
    /// The default.
    Default,
}

/// Returns the settings that configuration files and defaults give, section by section. Files that cannot be read are left out, and the
/// values are not checked: [`super::load()`] does both.
pub fn settings(paths: &[PathBuf], environment: &Environment) -> Vec<Setting> {
    let mut diagnostics = Diagnostics::new(Purpose::Check);
    let tree = read_files(paths, environment, &mut diagnostics);
    let collector = Collector { tree: &tree, diagnostics: &diagnostics };
    let mut settings = Vec::new();
    for (index, section) in sections().iter().enumerate() {
        let is_repeated = sections()[..index].iter().any(|before| before.path == section.path);
        if !is_repeated {
            collector.collect(section, &tree, "", &section.path, &mut settings);
        }
    }
    settings
}

struct Collector<'a> {
    tree: &'a Table,
    diagnostics: &'a Diagnostics,
}

/// Sections that are in force without being written.
const IMPLIED: [&str; 2] = ["agent", "log"];

impl Collector<'_> {
    /// Collects the settings of each table at a path.
    fn collect(
        &self,
        section: &SectionReference,
        table: &Table,
        above: &str,
        path: &[&'static str],
        settings: &mut Vec<Setting>,
    ) {
        let Some((first, rest)) = path.split_first() else { return self.add_table(section, table, above, settings) };
        let is_choice = *first == "NAME";
        let mut is_written = false;
        for (name, entry) in table.iter().filter(|(name, _)| is_choice || name == first) {
            if let Value::Table(below) = &entry.value {
                is_written = true;
                self.collect(section, below, &join(above, name), rest, settings);
            }
        }
        let is_implied = IMPLIED.contains(first)
            || (*first == "templates" && ["template", "env_template"].iter().any(|part| self.tree.contains_key(*part)));
        if !is_written && above.is_empty() && rest.is_empty() && is_implied {
            self.add_table(section, &Table::new(), first, settings);
        }
    }

    fn add_table(&self, section: &SectionReference, table: &Table, name: &str, settings: &mut Vec<Setting>) {
        let kind = match table.get("kind").map(|entry| &entry.value) {
            Some(Value::Text(kind)) => kind.as_str(),
            _ => "local_api",
        };
        let same = sections().iter().filter(|other| other.path == section.path);
        let mut keys: Vec<&KeyReference> = Vec::new();
        for part in same.filter(|part| part.section_kind.is_none_or(|of| of == kind)) {
            for key in &part.keys {
                // The default of a key that is described again is that of the kind.
                keys.retain(|other| other.name != key.name);
                keys.push(key);
            }
        }
        let has_default = |key: &str| match section.path.as_slice() {
            ["listener", "NAME"] => has_default(table, kind, key),
            // The server makes no keys of SSH.
            ["certificate", "NAME"] => kind != "ssh" || key != "server_key",
            _ => true,
        };
        for key in keys {
            let (value, origin) = match table.get(key.name) {
                Some(entry) => (written_value(key.name, &entry.value), self.origin(entry)),
                None if !has_default(key.name) => continue,
                None => (self.default_value(key), Origin::Default),
            };
            if let Some(value) = value {
                settings.push(Setting { section: name.to_owned(), key: key.name.to_owned(), value, origin });
            }
        }
    }

    fn origin(&self, entry: &Entry) -> Origin {
        let references = match &entry.value {
            Value::Text(text) => find_references(text).into_iter().map(str::to_owned).collect(),
            Value::List(items) => items.iter().flat_map(|(_, item)| references_of(item)).collect(),
            _ => Vec::new(),
        };
        let Location { position, .. } = entry.key;
        let path = self.diagnostics.path(entry.key).to_owned();
        Origin::File { path, line: position.map(|position| position.line).unwrap_or_default(), references }
    }

    fn default_value(&self, key: &KeyReference) -> Option<SettingValue> {
        match key.default {
            DefaultValue::None | DefaultValue::Required => None,
            DefaultValue::Described("the only one") => Some(self.only_one(key.name)),
            DefaultValue::Described(words) => Some(SettingValue::Described(words)),
            DefaultValue::Literal(literal) => parse_literal(literal),
        }
    }

    /// Returns the name of the only session or server.
    fn only_one(&self, part: &str) -> SettingValue {
        match self.tree.get(part).map(|entry| &entry.value) {
            Some(Value::Table(named)) if named.len() == 1 => {
                SettingValue::Text(named.keys().next().cloned().unwrap_or_default())
            }
            _ => SettingValue::Described("the only one"),
        }
    }
}

/// Returns false for a key that has no default in a listener of this kind and address, which another kind has.
fn has_default(listener: &Table, kind: &str, key: &str) -> bool {
    let address = match listener.get("address").map(|entry| &entry.value) {
        Some(Value::Text(address)) => address.as_str(),
        _ => "",
    };
    let is_unix = address.starts_with("unix:");
    match key {
        "mode" | "owner" | "group" | "shared_folder" => is_unix,
        "any_local_user" => !is_unix,
        "sessions" => matches!(kind, "local_api" | "ui"),
        "allowed_hosts" => kind != "systemd_credentials",
        _ => true,
    }
}

fn references_of(value: &Value) -> Vec<String> {
    match value {
        Value::Text(text) => find_references(text).into_iter().map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// Keys whose text may hold anything, also a secret.
const LEFT_OUT: [&str; 2] = ["contents", "command"];
/// Replacement for a text that is left out.
const LEFT_OUT_TEXT: &str = "[left out]";

/// Returns a value as it is written; `None` for one of a wrong type.
fn written_value(key: &str, value: &Value) -> Option<SettingValue> {
    let shown = |index: usize, text: &String| {
        // The program of a command is shown, its arguments are not.
        let is_left_out = LEFT_OUT.contains(&key) && (key != "command" || index > 0);
        if is_left_out { LEFT_OUT_TEXT.to_owned() } else { text.clone() }
    };
    Some(match value {
        Value::Text(text) if key == "command" => SettingValue::Text(shown(1, text)),
        Value::Text(text) => SettingValue::Text(shown(0, text)),
        Value::Integer(number) => SettingValue::Literal(number.clone()),
        Value::Flag(flag) => SettingValue::Literal(flag.to_string()),
        Value::List(items) => {
            let texts = items.iter().filter_map(|(_, item)| match item {
                Value::Text(text) => Some(text),
                _ => None,
            });
            SettingValue::List(texts.enumerate().map(|(index, text)| shown(index, text)).collect())
        }
        Value::Table(_) | Value::Float | Value::Datetime => return None,
    })
}

/// Returns the value of a default in TOML.
fn parse_literal(literal: &str) -> Option<SettingValue> {
    let document: toml::Table = format!("value = {literal}").parse().ok()?;
    Some(match document.get("value")? {
        toml::Value::String(text) => SettingValue::Text(text.clone()),
        toml::Value::Array(items) => {
            SettingValue::List(items.iter().filter_map(|item| Some(item.as_str()?.to_owned())).collect())
        }
        other => SettingValue::Literal(other.to_string()),
    })
}

impl Origin {
    /// Formats the place, such as `/etc/keyward/keyward.toml:12, environment VAULT_ADDR`.
    pub fn describe(&self) -> String {
        let Self::File { path, line, references } = self else { return "default".to_owned() };
        let place = format!("{}:{line}", path.display());
        references.iter().fold(place, |place, reference| match reference.split_once(':') {
            Some(("env", name)) => format!("{place}, environment {name}"),
            Some((kind, name)) => format!("{place}, {kind} {name}"),
            None => place,
        })
    }

    /// Returns file and line; `None` for a default.
    pub fn place(&self) -> Option<(&Path, usize)> {
        match self {
            Self::File { path, line, .. } => Some((path, *line)),
            Self::Default => None,
        }
    }
}
