//! `keyward migrate`: another agent's configuration -> ours on standard output, what became of each key on standard error.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::{Exit, say_error};
use crate::atomic_file::{self, Attributes};
use crate::config::migrate::{self, Outcome};
use crate::config::{self, Environment, Purpose};
use crate::hcl;

/// Turn the configuration of Vault Agent, Vault Proxy or OpenBao Agent into one of ours.
#[derive(Debug, Args)]
pub(super) struct Migrate {
    /// Their configuration, in HCL or JSON
    file: PathBuf,
    /// Where to write ours; a file that is there already is left alone [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The server is an OpenBao
    #[arg(long)]
    openbao: bool,
}

impl Migrate {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let theirs = self.file.display();
        let text = read(&self.file).with_context(|| format!("cannot read {theirs}"))?;
        let migrated = match migrate::migrate(&text, self.openbao) {
            Ok(migrated) => migrated,
            Err(error) => {
                say_error(&format!("{theirs}: {error}"));
                return Ok(Exit::ConfigInvalid);
            }
        };
        match &self.out {
            None => {
                let _ = std::io::stdout().write_all(migrated.toml.as_bytes());
            }
            Some(out) if out.exists() => {
                say_error(&format!("{} is there already; name another file, or move it away", out.display()));
                return Ok(Exit::Taken);
            }
            Some(out) => {
                let attributes = Attributes { mode: 0o644, owner: None, group: None };
                atomic_file::replace(out, migrated.toml.as_bytes(), &attributes)?;
            }
        }
        let tell = |line: &str| drop(writeln!(std::io::stderr(), "{line}"));
        for line in &migrated.report {
            tell(&format!("{theirs}:{line}"));
        }
        let count = |outcome| migrated.report.iter().filter(|line| line.outcome == outcome).count();
        let (kept, changed, not) = (count(Outcome::Kept), count(Outcome::Changed), count(Outcome::NotSupported));
        tell(&format!("{kept} kept, {changed} changed, {not} not supported"));

        let name = self.out.clone().unwrap_or_else(|| "(what was written)".into());
        let outcome = config::of_text(&name, &migrated.toml, &Environment::of_this_process(), Purpose::Check);
        for remark in &outcome.mistakes {
            tell(&format!("{remark} (error)"));
        }
        for remark in &outcome.warnings {
            tell(&format!("{remark} (warning)"));
        }
        Ok(if outcome.mistakes.is_empty() { Exit::Ok } else { Exit::ConfigInvalid })
    }
}

fn read(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    // One byte more than is taken, so that what is too long is told by the reader.
    std::fs::File::open(file)?.take(hcl::MAX_SIZE as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
