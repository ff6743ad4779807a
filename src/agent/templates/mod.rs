//! Files and variables rendered from templates, in the language that consul-template's users know: Go's.
//!
//! `compile` and `render` are functions of texts and of the secrets that are known; `task` acts.

// 0: values of the language, what a rendering knows, and what may be wrong with it
mod value;
mod evaluation;
mod error;

// 1: what a template may call
mod functions;

// 2: text -> template -> bytes
mod compile;
mod render;

// 3: what is known, and what becomes of the bytes
mod dependencies;
mod task;

#[cfg(test)]
mod tests;

pub use self::compile::Template;
pub use self::error::TemplateError;
pub use self::evaluation::{Dependency, Resolved};
pub use self::render::Rendered;
pub use self::task::{TemplateDeps, TemplateTask};

use std::path::PathBuf;
use std::time::Duration;

use crate::agent::output_watch::OnMissing;
use crate::command::EnvVars;

/// A template and what it may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateSource {
    /// What it is called in messages.
    pub name: String,
    /// The file that it came from; `None` where it stands in the configuration.
    pub file: Option<PathBuf>,
    /// The template.
    pub text: String,
    /// What opens an action.
    pub left: String,
    /// What closes one.
    pub right: String,
    /// The variables that `env` knows.
    pub variables: EnvVars,
    /// The folders that `file` reads below.
    pub folders: Vec<PathBuf>,
}

/// Where a rendered file goes, and what is done after it has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFile {
    /// The file.
    pub destination: PathBuf,
    /// Its mode.
    pub mode: u32,
    /// Its owner, if not the agent's user.
    pub owner: Option<u32>,
    /// Its group, if not the agent's group.
    pub group: Option<u32>,
    /// Whether its folder is made where it is not there.
    pub create_folders: bool,
    /// Keeps the file that is replaced beside it, with `.bak` at the end of its name.
    pub backup: bool,
    /// Reaction when somebody else deletes or changes it.
    pub on_missing: OnMissing,
    /// What is run after it has changed.
    pub command: Option<TemplateCommand>,
}

/// What is run after a file has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
}

/// A template that is kept rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateOptions {
    /// The template.
    pub text: TemplateSource,
    /// Where it goes; `None` for a variable, whose name is the template's.
    pub file: Option<TemplateFile>,
    /// How long secrets must have been still before it is rendered again: several that change together are one change.
    pub debounce: Duration,
    /// How often files that it reads are looked at.
    pub interval: Duration,
    /// Whether the agent is not ready before it is rendered.
    pub required: bool,
}
