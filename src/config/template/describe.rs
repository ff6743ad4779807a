//! Describes templates for `keyward check`.

use keyward_agent::output_command::OutputCommand;
use keyward_agent::secrets::OfflineOptions;
use keyward_agent::templates::{Encoding, TemplateOptions};
use keyward_telemetry::time_format::format_duration;

use crate::Template;
use crate::values::describe_owner;

/// Describes a template for `keyward check`, one clause per entry; `describe_value` replaces a value by its reference.
pub(crate) fn describe(template: &Template, describe_value: impl Fn(&str, &str) -> String) -> Vec<String> {
    let TemplateOptions { text, file, required, .. } = &template.options;
    let from = text
        .file
        .as_ref()
        .map_or("its contents".to_owned(), |file| describe_value("source", &file.display().to_string()));
    let secrets = format!("with secrets read by session {}", template.session);
    let Some(file) = file else {
        return vec![format!(
            "renders {from}, {secrets}, for the variable {} of [process] and keyward exec",
            text.name
        )];
    };
    let mut does = vec![format!(
        "renders {from} to {}, mode {:04o}{}, {secrets}",
        describe_value("destination", &file.destination.display().to_string()),
        file.mode,
        describe_owner(file.owner, file.group),
    )];
    if file.encoding == Encoding::Base64 {
        does.push("decodes the rendered text from base64".to_owned());
    }
    if !text.write_folders.is_empty() {
        let folders: Vec<_> = text.write_folders.iter().map(|folder| folder.display().to_string()).collect();
        does.push(format!("may write further files below {}", folders.join(", ")));
    }
    if file.backup {
        does.push("keeps the previous file, with .bak appended to its name".to_owned());
    }
    if let Some(OutputCommand { command, timeout }) = &file.command {
        let command_line = command.join(" ");
        does.push(format!("after a change runs {command_line}, for {} at most", format_duration(*timeout)));
    }
    if let Some(OfflineOptions { persist, max_stale_age: stale }) = &template.secrets.offline {
        does.push(format!(
            "keeps those secrets across restarts, encrypted, in {}, and uses them for {} while the server does not respond",
            persist.file.display(),
            format_duration(*stale)
        ));
    }
    if template.secrets.events {
        does.push(
            "reads those secrets again at once by the events of the server (Vault Enterprise from 1.16)".to_owned(),
        );
    }
    if !required {
        does.push("is not required for readiness".to_owned());
    }
    does
}
