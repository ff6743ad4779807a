//! `keyward config`: the settings in force with the place of each, and the schema for editors.

use clap::{Args, Subcommand};
use keyward_app::doctor::redact_text;
use keyward_config::{self as config, Environment, Purpose, Setting, SettingValue};
use serde_json::{Value, json};

use super::{ConfigFiles, Exit, Format, print_error, print_line};

/// Commands about the configuration.
#[derive(Debug, Subcommand)]
pub(super) enum Configuration {
    /// Show every setting in force, defaults too, and where each comes from
    #[command(
        after_help = "Examples:\n  keyward config show\n  keyward config show session.web -c /etc/keyward/keyward.toml\n  keyward config show -o json\n\n\
                      References such as ${env:NAME} are shown as they are written; the texts of templates and the arguments of commands \
                      are left out. The output is TOML."
    )]
    Show(Show),
    /// Print the JSON Schema of the configuration, for editors
    #[command(after_help = "Example:\n  keyward config schema > keyward.schema.json\n\n\
                      Editors with taplo (such as Even Better TOML) use it in a file that begins with the line \
                      `#:schema ./keyward.schema.json`.")]
    Schema,
}

/// Show every setting in force.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// Sections to show, such as session.web, with those below them [default: all]
    #[arg(value_name = "SECTION")]
    sections: Vec<String>,
    #[command(flatten)]
    files: ConfigFiles,
    /// Output format; json is an array
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
}

impl Configuration {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Show(show) => show.run(),
            Self::Schema => {
                print_line(&serde_json::to_string_pretty(&config::schema())?);
                Ok(Exit::Ok)
            }
        }
    }
}

impl Show {
    fn run(self) -> anyhow::Result<Exit> {
        let environment = Environment::current();
        let outcome = config::load(&self.files.config, &environment, Purpose::Check);
        if outcome.config.is_none() {
            for error in &outcome.errors {
                print_error(&error.to_string());
            }
            return Ok(Exit::ConfigInvalid);
        }
        let mut settings = config::settings(&self.files.config, &environment);
        if !self.sections.is_empty() {
            settings.retain(|setting| self.sections.iter().any(|section| is_in(&setting.section, section)));
            if settings.is_empty() {
                print_error(&format!("the configuration has no section {}", self.sections.join(", ")));
                return Ok(Exit::Missing);
            }
        }
        match self.format {
            Format::Json => {
                print_line(&serde_json::to_string_pretty(&settings.iter().map(to_json).collect::<Vec<_>>())?);
            }
            Format::Text => format_settings(&settings).iter().for_each(|line| print_line(line)),
        }
        Ok(Exit::Ok)
    }
}

/// Returns true for a section and those below it.
fn is_in(section: &str, wanted: &str) -> bool {
    section.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Formats the settings as TOML, with the place of each in a comment.
fn format_settings(settings: &[Setting]) -> Vec<String> {
    let written: Vec<(String, String)> =
        settings.iter().map(|setting| (format_setting(setting), setting.origin.describe())).collect();
    let mut lines = Vec::new();
    let mut section = "";
    let mut width = 0;
    for (index, (setting, (text, origin))) in settings.iter().zip(&written).enumerate() {
        if setting.section != section {
            section = &setting.section;
            let same =
                settings[index..].iter().zip(&written[index..]).take_while(|(other, _)| other.section == section);
            let widths = same.map(|(_, (text, _))| text.chars().count());
            // One long value does not move all comments.
            width = widths.filter(|width| *width <= MAX_WIDTH).max().unwrap_or_default();
            if index > 0 {
                lines.push(String::new());
            }
            lines.push(format!("[{section}]"));
        }
        lines.push(format!("{text:width$}  # {origin}"));
    }
    lines
}

/// Widest setting that moves the comments of its section.
const MAX_WIDTH: usize = 60;

fn format_setting(setting: &Setting) -> String {
    let key = &setting.key;
    match &setting.value {
        SettingValue::Text(text) => format!("{key} = {}", quote(text)),
        SettingValue::List(items) => {
            format!("{key} = [{}]", items.iter().map(|item| quote(item)).collect::<Vec<_>>().join(", "))
        }
        SettingValue::Literal(literal) => format!("{key} = {literal}"),
        // No value that a file could hold.
        SettingValue::Described(words) => format!("# {key}: {words}"),
    }
}

/// Formats a string as TOML and JSON have it, without what looks like a secret.
fn quote(text: &str) -> String {
    Value::from(redact_text(text)).to_string()
}

fn to_json(setting: &Setting) -> Value {
    let value = match &setting.value {
        SettingValue::Text(text) => redact_text(text).into(),
        SettingValue::List(items) => items.iter().map(|item| redact_text(item)).collect(),
        SettingValue::Literal(literal) => serde_json::from_str(literal).unwrap_or_else(|_| literal.as_str().into()),
        SettingValue::Described(_) => Value::Null,
    };
    let mut json = json!({
        "section": setting.section, "key": setting.key, "value": value, "from": setting.origin.describe(),
        "default": setting.origin.place().is_none(),
    });
    if let SettingValue::Described(words) = setting.value {
        json["described"] = words.into();
    }
    if let Some((file, line)) = setting.origin.place() {
        (json["file"], json["line"]) = (file.display().to_string().into(), line.into());
    }
    json
}
