//! Configuration of other agents -> ours: Vault Agent, Vault Proxy, OpenBao Agent and Proxy, consul-template, in HCL 1 or JSON.
//!
//! Each key is reported with its line: kept, changed, dropped, or in need of an action. Nothing is dropped in
//! silence, and no caller gets a token that it did not get before: settings that cannot be as narrow are commented out.

// 0: input and output
mod merge;
mod output;
mod input;

// 1: one file per part of the other agent's configuration
mod consul_template;
mod exec;
mod server;
mod cloud_method;
mod method;
mod sink;
mod tls;
mod listener;
mod environment;
mod command;
mod template;
mod process;

use keyward_hcl::{self as hcl, HclError, Node, Object, Position, Value};

use super::diagnostic::Diagnostic;
use input::Block;
pub use output::Outcome;
use output::{Document, Origin, Report, WrittenToml, locate};

/// Result of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// keyward's configuration as TOML.
    pub toml: String,
    /// Outcome of each key, in the order of the file.
    pub report: Vec<ReportLine>,
    /// The key that each line of `toml` comes from.
    origins: Vec<Option<(usize, Origin)>>,
}

impl Migrated {
    /// Adds the errors of the written configuration to the report, each as a required action at the key that it comes from.
    ///
    /// Of the notes only those about templates that this machine lacks count: no other check finds what they may not hold.
    pub fn add_findings(&mut self, errors: &[Diagnostic], notes: &[Diagnostic]) {
        for error in errors {
            self.add_action(error, format!("keyward does not start: {error}"));
        }
        for note in notes.iter().filter(|note| note.key.ends_with(".source")) {
            let detail = format!("{}: run `keyward check` where the template is, which compiles it", note.message);
            self.add_action(note, detail);
        }
        self.report.sort_by_key(|line| (line.file, line.at));
    }

    fn add_action(&mut self, finding: &Diagnostic, detail: String) {
        let origin = finding.position.and_then(|position| self.origins.get(position.line - 1)?.clone());
        let top = || (0, Origin { at: Position { line: 1, column: 1 }, key: finding.key.clone() });
        let (file, Origin { at, key }) = origin.unwrap_or_else(top);
        self.report.push(ReportLine { file, at, key, outcome: Outcome::Action, detail });
    }
}

/// Outcome of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportLine {
    /// Number of the text that it is in, from 0.
    pub file: usize,
    /// Position of the key.
    pub at: Position,
    /// The key, from the top of the file.
    pub key: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The new key, or the reason for the outcome; may be empty.
    pub detail: String,
}

impl std::fmt::Display for ReportLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { at, key, outcome, detail, .. } = self;
        write!(f, "{}:{}: {key}: {outcome}{}{detail}", at.line, at.column, if detail.is_empty() { "" } else { ": " })
    }
}

/// Name of the one server and the one session in a migrated configuration.
const MAIN: &str = "main";

/// File for a token that an operator has to provide.
const TOKEN_FILE: &str = "/etc/keyward/server.token";

/// Converts another agent's configuration into keyward's. `openbao` is true if the server is OpenBao.
pub fn migrate(text: &str, openbao: bool) -> Result<Migrated, HclError> {
    migrate_all(&[text], openbao).map_err(|(_, error)| error)
}

/// The same for several files, such as a folder's: templates and listeners add up; [`merge`] joins the other blocks.
///
/// # Errors
/// A text is neither HCL 1 nor JSON; which one, counted from 0.
pub fn migrate_all(texts: &[&str], openbao: bool) -> Result<Migrated, (usize, HclError)> {
    let mut files = Vec::new();
    let mut starts = Vec::new();
    let mut lines = 0;
    for (number, text) in texts.iter().enumerate() {
        let mut file = hcl::read(text).map_err(|error| (number, error))?;
        shift(&mut file, lines);
        files.push(file);
        starts.push(lines);
        lines += text.split('\n').count();
    }
    let object = merge::join(files);
    let report = Report::default();
    let mut document = Document::default();
    let mut top = Block::top(&object, &report);
    server::read(&mut top, &mut document, openbao);
    let auto_auth = method::read(&mut top, &mut document);
    sink::read(&mut document, auto_auth);
    listener::read(&mut top, &mut document);
    template::read(&mut top, &mut document);
    process::read(&mut top, &mut document);
    consul_template::read(&mut top, &mut document);
    top.finish();
    let WrittenToml { text: toml, origins } = document.write();
    let place = |Origin { at, key }| {
        let (file, at) = locate(&starts, at);
        (file, Origin { at, key })
    };
    let origins = origins.into_iter().map(|origin| origin.map(place)).collect();
    Ok(Migrated { toml, report: report.lines(&starts), origins })
}

/// True if these texts can be read, and none has a block of Vault Agent or Vault Proxy, which do not start without one.
pub fn is_consul_template(texts: &[&str]) -> bool {
    texts.iter().all(|text| hcl::read(text).is_ok_and(|file| !merge::is_vault_agent(&file)))
}

/// Adds this number of lines to an object's positions, so that positions in several files are distinct.
fn shift(object: &mut Object, lines: usize) {
    for item in &mut object.attributes {
        item.at.line += lines;
        shift_node(&mut item.value, lines);
    }
}

fn shift_node(node: &mut Node, lines: usize) {
    node.at.line += lines;
    match &mut node.value {
        Value::Object(object) => shift(object, lines),
        Value::List(items) => items.iter_mut().for_each(|item| shift_node(item, lines)),
        Value::Text(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

#[cfg(test)]
mod tests;
