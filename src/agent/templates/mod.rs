//! Files and variables rendered from templates in Go's template language, with the functions of consul-template.
//!
//! `compile` and `render` are pure functions of template texts and secrets; `task` acts.

// 0: the language, the state of a rendering, errors
mod metrics;
mod engine;
mod value;
mod evaluation;
mod error;

// 1: functions that a template may call
mod functions;

// 2: text -> template -> bytes
mod compile;
mod render;

// 3: secrets and files that go in, files and variables that come out
mod dependencies;
mod delivery;
mod task;

#[cfg(test)]
mod tests;

pub use self::compile::Template;
pub use self::error::TemplateError;
pub use self::evaluation::{Dependency, Resolved, WrittenFile};
pub use self::metrics::TemplateMetrics;
pub use self::render::Rendered;
pub use self::task::{TemplateDeps, TemplateTask};

use std::path::PathBuf;
use std::time::Duration;

use keyward_machine::command::EnvVars;

use crate::output_command::OutputCommand;
use crate::output_watch::OnMissing;

/// Text of a template, and the files and variables that it may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateSource {
    /// Name in log events and error messages.
    pub name: String,
    /// The file that holds the text; `None` for text in the configuration.
    pub file: Option<PathBuf>,
    /// The template's text.
    pub text: String,
    /// Left delimiter of actions.
    pub left: String,
    /// Right delimiter of actions.
    pub right: String,
    /// Environment variables that `env` may read.
    pub variables: EnvVars,
    /// Folders below which `file` may read.
    pub folders: Vec<PathBuf>,
    /// Folders below which `writeToFile` may write.
    pub write_folders: Vec<PathBuf>,
    /// A missing key is printed as `<no value>`, and is no error.
    pub allows_missing_keys: bool,
}

/// Form of a rendered text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Encoding {
    /// The content of the file.
    #[default]
    Text,
    /// The content of the file in base64; line breaks are ignored.
    Base64,
}

/// Output file of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFile {
    /// Path of the file.
    pub destination: PathBuf,
    /// Permission bits.
    pub mode: u32,
    /// Numeric owner; `None` for the agent's user.
    pub owner: Option<u32>,
    /// Numeric group; `None` for the agent's group.
    pub group: Option<u32>,
    /// Create the folder if it is missing.
    pub create_folders: bool,
    /// Form of the rendered text.
    pub encoding: Encoding,
    /// Keep the replaced file with `.bak` appended to its name.
    pub backup: bool,
    /// Reaction when the file is deleted or changed from outside.
    pub on_missing: OnMissing,
    /// Command that runs after the file has changed.
    pub command: Option<OutputCommand>,
    /// Time without changes of other files with an equal command before it runs, once for all of them.
    pub command_debounce: Duration,
}

/// Options of one template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateOptions {
    /// The template.
    pub text: TemplateSource,
    /// The output file; `None` for an environment variable with the template's name, or for a credential of systemd
    /// (`LISTENER/NAME`).
    pub file: Option<TemplateFile>,
    /// Time without changes before it is rendered again: secrets that change together are one change.
    pub debounce: Duration,
    /// Time between looks at the files that it reads.
    pub interval: Duration,
    /// The agent is not ready before it is rendered.
    pub required: bool,
}

impl TemplateOptions {
    /// Describes the file, variable or credential that it is rendered to.
    fn target(&self) -> String {
        match &self.file {
            Some(file) => file.destination.display().to_string(),
            None => match self.text.name.split_once('/') {
                Some((listener, name)) => format!("credential {name} of listener {listener}"),
                None => format!("variable {}", self.text.name),
            },
        }
    }
}
