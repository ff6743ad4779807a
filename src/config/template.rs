//! `[template.NAME]` and `[env_template.NAME]`: files and variables rendered from secrets. `[templates]`: shared settings.

mod describe;

pub(super) use self::describe::describe;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyward_agent::secrets::OfflineOptions;
use keyward_agent::templates;
use keyward_agent::templates::{Encoding, TemplateFile, TemplateOptions, TemplateSource};
use keyward_machine::command::is_reserved;
use keyward_machine::secret;
use keyward_telemetry::error_code::ErrorCode;

use super::diagnostic::Location;
use super::output_command::{is_variable, output_command, variables};
use super::reader::Reader;
use super::references::Text;
use super::sink::{Sessions, file_path, on_missing};
use super::tree::quote;
use super::values;
use super::{Certificate, PathUse, SecretSettings, Sink, Template, server};

/// Default of `templates.interval`: how often secrets without a lease, and files, are read again.
pub(super) const INTERVAL: Duration = Duration::from_mins(5);

/// Settings of `[templates]`, which all templates share.
#[derive(Debug, Clone, Copy)]
pub(super) struct TemplateDefaults {
    interval: Duration,
    /// Quiet time before a command that several outputs have.
    pub(super) command_debounce: Duration,
    /// Time between writes whose result tells no end.
    rewrite_interval: Option<Duration>,
    /// Time between polls of the versions of secrets; `None` for never.
    version_interval: Option<Duration>,
    /// Location of `events`; `None` if the server's events are not followed.
    events: Option<Location>,
    /// Location of `persist` and the maximum age of persisted secrets; `None` without `persist`.
    persist: Option<(Location, Duration)>,
}

impl Default for TemplateDefaults {
    fn default() -> Self {
        Self {
            interval: INTERVAL,
            command_debounce: DEFAULT_DEBOUNCE,
            rewrite_interval: None,
            version_interval: None,
            events: None,
            persist: None,
        }
    }
}

/// Reads `[templates]`.
pub(super) fn read_shared(mut reader: Reader<'_>) -> TemplateDefaults {
    let day = Duration::from_hours(24);
    let interval = reader.duration("interval", INTERVAL, Duration::from_secs(10)..=day);
    let command_debounce =
        reader.duration("command_debounce", DEFAULT_DEBOUNCE, Duration::ZERO..=Duration::from_mins(5));
    let rewrite_interval = reader.duration_if_given("rewrite_interval", Duration::from_mins(1)..=90 * day);
    let version_interval =
        reader.duration_if_given("version_interval", Duration::from_secs(1)..=Duration::from_hours(1));
    let events_at = reader.locate("events").unwrap_or(reader.at);
    let events = reader.flag("events", false).then_some(events_at);
    let persist = reader.flag("persist", false);
    let stale = reader.duration("stale_if_error", day, Duration::ZERO..=30 * day);
    let at = reader.locate("persist").unwrap_or(reader.at);
    if !persist && let Some(at) = reader.locate("stale_if_error") {
        let message = "has no effect without persist = true";
        reader.error(at, "stale_if_error", message, "set persist = true, or leave it out");
    }
    reader.finish();
    let persist = persist.then_some((at, stale));
    TemplateDefaults { interval, command_debounce, rewrite_interval, version_interval, events, persist }
}

/// Other sections that templates refer to.
#[derive(Clone, Copy)]
pub(super) struct TemplateContext<'a> {
    pub(super) sessions: &'a Sessions,
    pub(super) sinks: &'a [Sink],
    /// Certificates that listeners may name; none while templates and certificates are read.
    pub(super) certificates: &'a [Certificate],
    pub(super) shared: TemplateDefaults,
}

impl TemplateContext<'_> {
    /// Settings of the secrets of a template's session.
    pub(super) fn secrets(&self, reader: &Reader<'_>, session: &str) -> SecretSettings {
        let TemplateDefaults { interval, rewrite_interval, version_interval, .. } = self.shared;
        let events =
            self.shared.events.is_some_and(|at| self.sessions.has_events(reader, (at, "templates.events"), session));
        SecretSettings { interval, rewrite_interval, version_interval, events, offline: self.offline(reader, session) }
    }

    /// File that keeps the secrets of a template's session across restarts.
    fn offline(&self, reader: &Reader<'_>, session: &str) -> Option<OfflineOptions> {
        let (at, stale) = self.shared.persist?;
        let persist =
            self.sessions.persist(reader, (at, "templates.persist"), session, &format!("{session}.secrets"))?;
        Some(OfflineOptions { persist, max_stale_age: stale })
    }
}

/// Reads all templates of files. Each has its own file.
pub(super) fn read_files(tables: Vec<(String, Reader<'_>)>, context: TemplateContext<'_>) -> Vec<Template> {
    let mut files: BTreeMap<PathBuf, String> =
        context.sinks.iter().map(|sink| (sink.options.path.clone(), format!("sink {}", sink.options.name))).collect();
    let mut read = Vec::new();
    for (name, mut reader) in tables {
        let at = reader.locate("destination").unwrap_or(reader.at);
        let diagnostics = reader.scope.diagnostics;
        let key = reader.key("destination");
        let template = file(&name, reader, context);
        let destination = template.options.file.as_ref().map(|file| file.destination.clone()).unwrap_or_default();
        if !destination.as_os_str().is_empty()
            && let Some(other) = files.insert(destination, format!("template {name}"))
        {
            let message = (ErrorCode::DuplicateSetting, format!("also the file of {other}"));
            diagnostics.error(at, &key, message, "give each one its own file");
        }
        read.push(template);
    }
    read
}

/// Reads all templates of variables.
pub(super) fn read_variables(
    tables: Vec<(String, Reader<'_>)>,
    context: TemplateContext<'_>,
    files: &[Template],
) -> Vec<Template> {
    let variable = |(name, mut reader): (String, Reader<'_>)| {
        let at = reader.at;
        let path = reader.path.clone();
        let refuse = |message: String, advice: &str| reader.scope.diagnostics.error(at, &path, message, advice);
        if !is_variable(&name) {
            refuse(format!("{} is not a variable name", quote(&name)), "write letters, digits and _, no digit first");
        } else if is_reserved(&name) {
            refuse(format!("{name} is never passed to a program"), "choose another name");
        }
        if files.iter().any(|file| file.options.text.name == name) {
            refuse("also the name of a [template]".to_owned(), "rename one of them");
        }
        let session = session(&mut reader, context.sessions);
        let text = text(&name, &mut reader, &session, context.sessions, Vec::new());
        let debounce = reader.duration("debounce", DEFAULT_DEBOUNCE, Duration::ZERO..=Duration::from_mins(5));
        let secrets = context.secrets(&reader, &session);
        reader.finish();
        let options = TemplateOptions { text, file: None, debounce, interval: context.shared.interval, required: true };
        Template { session, options, secrets }
    };
    tables.into_iter().map(variable).collect()
}

fn file(name: &str, mut reader: Reader<'_>, context: TemplateContext<'_>) -> Template {
    let session = session(&mut reader, context.sessions);
    let create_folders = reader.flag("create_folders", false);
    let destination = reader.required("destination", "the file to write, such as \"/etc/app/app.conf\"");
    let destination = destination.and_then(|text| {
        let path = reader.parse(&text, file_path)?;
        if create_folders {
            reader.record_path(&text, &path, PathUse::Replace);
        } else {
            reader.check_parent_folder(&text, &path);
        }
        Some(path)
    });
    let write_folders = write_folders(&mut reader);
    let text = text(name, &mut reader, &session, context.sessions, write_folders);
    if let (Some(at), Some(source), Some(written)) = (reader.locate("destination"), &text.file, &destination)
        && source == written
    {
        let advice = "write another destination: this one would be lost at the first rendering";
        reader.error(at, "destination", "also the template's source", advice);
    }
    let command = output_command(&mut reader);
    let mode = reader.private_mode(DEFAULT_FILE_MODE, "the rendered file");
    let file = TemplateFile {
        destination: destination.unwrap_or_default(),
        mode,
        owner: reader.user("owner"),
        group: reader.group("group"),
        create_folders,
        encoding: reader
            .choice("encoding", &[("text", Encoding::Text), ("base64", Encoding::Base64)])
            .unwrap_or_default(),
        backup: reader.flag("backup", false),
        on_missing: on_missing(&mut reader),
        command,
        command_debounce: context.shared.command_debounce,
    };
    let options = TemplateOptions {
        text,
        file: Some(file),
        debounce: reader.duration("debounce", DEFAULT_DEBOUNCE, Duration::ZERO..=Duration::from_mins(5)),
        interval: context.shared.interval,
        required: reader.flag("required", true),
    };
    let secrets = context.secrets(&reader, &session);
    reader.finish();
    Template { session, options, secrets }
}

/// Folders below which `writeToFile` may write.
fn write_folders(reader: &mut Reader<'_>) -> Vec<PathBuf> {
    let folders = reader.list("write_folders").unwrap_or_default();
    let folder = |text: &Text| {
        let path = reader.parse(text, values::path)?;
        reader.record_path(text, &path, PathUse::WriteFolder);
        Some(path)
    };
    folders.iter().filter_map(folder).collect()
}

/// The default mode of a rendered file: the owner writes, the group reads.
const DEFAULT_FILE_MODE: u32 = 0o640;

/// Default of `debounce`.
pub(super) const DEFAULT_DEBOUNCE: Duration = Duration::from_secs(1);

/// The session that `session` names, which must have no wrapped token.
pub(super) fn session(reader: &mut Reader<'_>, sessions: &Sessions) -> String {
    let session = sessions.one_of(reader).unwrap_or_default();
    if sessions.is_wrapped(&session) {
        let at = reader.locate("session").unwrap_or(reader.at);
        let message = format!("session {session} has a wrap_ttl: its token is for one sink");
        reader.error(at, "session", message, "name a session without one");
    }
    session
}

/// Reads the template and compiles it to report its errors.
pub(super) fn text(
    name: &str,
    reader: &mut Reader<'_>,
    session: &str,
    sessions: &Sessions,
    write_folders: Vec<PathBuf>,
) -> TemplateSource {
    let variables = variables(reader);
    let folders = reader.list("read_folders").unwrap_or_default();
    let folder = |text: &Text| {
        let path = reader.parse(text, values::path)?;
        reader.record_path(text, &path, PathUse::ReadFolder);
        Some(path)
    };
    let folders = folders.iter().filter_map(folder).collect();
    let left = reader.value("left_delimiter").unwrap_or_else(|| "{{".to_owned());
    let right = reader.value("right_delimiter").unwrap_or_else(|| "}}".to_owned());
    let allows_missing_keys = !reader.flag("error_on_missing_key", true);
    let (at, file, text) = contents(reader);
    let key = reader.key(if file.is_some() { "source" } else { "contents" });
    let source = TemplateSource {
        name: name.to_owned(),
        file,
        text: text.unwrap_or_default(),
        left,
        right,
        variables,
        folders,
        write_folders,
        allows_missing_keys,
    };
    let compiled = templates::Template::compile(source.clone());
    if compiled.as_ref().is_ok_and(templates::Template::reads_secrets) {
        reject_without_secrets(reader, at, &key, session, sessions);
    }
    if let Err(errors) = compiled {
        for wrong in errors {
            let message = match &source.file {
                Some(file) if wrong.line > 0 => {
                    format!("{}:{}:{}: {}", file.display(), wrong.line, wrong.column, wrong.message)
                }
                Some(file) => format!("{}: {}", file.display(), wrong.message),
                None => wrong.to_string(),
            };
            reader.scope.diagnostics.error(at, &key, message, "see docs/templates.md");
        }
    }
    source
}

/// Reports a key that reads secrets through a session whose server stores none.
pub(super) fn reject_without_secrets(reader: &Reader<'_>, at: Location, key: &str, session: &str, sessions: &Sessions) {
    let Some(kind) = sessions.kind_without_secrets(session) else { return };
    let kind = server::kind(kind);
    let message = format!("reads secrets, but the server of session {session}, of kind \"{kind}\", stores none");
    let advice = "name a session of a Vault or OpenBao server (kind = \"vault\" or \"openbao\")";
    reader.scope.diagnostics.missing(at, key, message, advice);
}

/// Reads the template's text: the file of `source`, or `contents`.
fn contents(reader: &mut Reader<'_>) -> (Location, Option<PathBuf>, Option<String>) {
    let source = reader.text("source");
    let contents = reader.verbatim("contents");
    match (source, contents) {
        (Some(source), None) => {
            let path = reader.parse(&source, values::secret_file_path);
            if let Some(path) = &path {
                reader.record_path(&source, path, PathUse::Read);
            }
            let text = path.as_deref().filter(|_| !source.unknown).and_then(|path| match secret::read_text(path) {
                Ok(text) => {
                    warn_if_writable_by_others(reader, source.at, path);
                    Some(text.expose_secret().to_owned())
                }
                Err(error) => {
                    let message =
                        keyward_telemetry::error_chain::format_chain(&error).replace("a secret", "a template");
                    reader.scope.diagnostics.missing_on_host(source.at, &source.key, message, "create the template");
                    None
                }
            });
            (source.at, path, text)
        }
        (None, Some((at, text))) => (at, None, Some(text)),
        (Some(source), Some(_)) => {
            reader.conflict("contents", "source", "a template has one text");
            (source.at, None, None)
        }
        (None, None) => {
            if reader.locate("contents").is_none() {
                reader.missing("source", "name the template's file, or write it as contents");
            }
            (reader.at, None, None)
        }
    }
}

/// Warns of a template file that others can write: its author can read every secret of the session.
fn warn_if_writable_by_others(reader: &Reader<'_>, at: Location, path: &Path) {
    let Ok(metadata) = std::fs::metadata(path) else { return };
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 != 0 {
        let message = format!("other users can write this file (mode {mode:04o}), and so read the session's secrets");
        let advice = format!("run `chmod go-w {}`", path.display());
        reader.scope.diagnostics.warning(at, &reader.key("source"), (ErrorCode::UnsafePermissions, message), advice);
    }
}
