//! Configuration of other agents -> ours: Vault Agent, Vault Proxy, OpenBao Agent and Proxy, in HCL 1 or JSON.
//!
//! Each key of theirs is told: kept, changed or not supported, with its line. Nothing is left out in silence.

// 0: what is read, and what is written
mod ours;
mod theirs;

// 1: one file a part of theirs
mod server;
mod method;
mod sink;
mod listener;
mod template;
mod process;

use crate::hcl::{self, HclError, Place};

pub use ours::Outcome;
use ours::{Document, Report};
use theirs::Block;

/// A configuration that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// Ours, as TOML.
    pub toml: String,
    /// What became of each key, in the order of the text.
    pub report: Vec<Line>,
}

/// What became of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Where it stands.
    pub at: Place,
    /// The key, from the top of the file.
    pub key: String,
    /// What became of it.
    pub outcome: Outcome,
    /// What it is called now, or why it is not.
    pub words: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { at, key, outcome, words } = self;
        write!(f, "{}:{}: {key}: {outcome}{}{words}", at.line, at.column, if words.is_empty() { "" } else { ": " })
    }
}

/// The one server and the one session that such a configuration has.
const MAIN: &str = "main";

/// Turns a configuration of theirs into one of ours. `openbao` says that the server is an OpenBao.
///
/// # Errors
/// The text is neither HCL 1 nor JSON.
pub fn migrate(text: &str, openbao: bool) -> Result<Migrated, HclError> {
    let object = hcl::read(text)?;
    let report = Report::default();
    let mut document = Document::default();
    let mut top = Block::top(&object, &report);
    server::read(&mut top, &mut document, openbao);
    let auto_auth = method::read(&mut top, &mut document);
    sink::read(&mut document, auto_auth);
    listener::read(&mut top, &mut document);
    template::read(&mut top, &mut document);
    process::read(&mut top, &mut document);
    top.finish();
    Ok(Migrated { toml: document.to_string(), report: report.lines() })
}

#[cfg(test)]
mod tests;
