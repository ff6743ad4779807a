//! `keyward dev`: the whole thing on this machine, with no outside service.

mod reaction;
mod faults;
mod serve;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use keyward_config::Environment;

use super::{Exit, LogChoice};

/// Try the whole chain on this machine.
#[derive(Debug, Args)]
pub(super) struct Dev {
    /// Folder for keys, secrets and state; created at the first start [env: `KEYWARD_DEV_DIR`; default:
    /// `~/.local/state/keyward-dev`]
    #[arg(long, value_name = "FOLDER", global = true)]
    dir: Option<PathBuf>,
    #[command(flatten)]
    serve: serve::Serve,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Break something in the running `keyward dev`, and show how the agent reacts
    #[command(name = "break", after_help = "Examples:\n  keyward dev break server\n  keyward dev break cloud --watch")]
    Break(faults::Break),
    /// End one fault, or all, and show how the agent recovers
    #[command(after_help = "Examples:\n  keyward dev heal\n  keyward dev heal server")]
    Heal(faults::Heal),
    /// Print the variables with which the other commands work against it, with its own configuration
    #[command(after_help = "Example:\n  eval \"$(keyward dev env)\"")]
    Env,
}

impl Dev {
    pub(super) fn run(self, log: &LogChoice) -> anyhow::Result<Exit> {
        let dir = self.dir.map_or_else(|| default_dir(&Environment::current()), Ok)?;
        match self.command {
            None => self.serve.run(&dir, log),
            Some(Command::Break(it)) => it.run(&dir),
            Some(Command::Heal(it)) => it.run(&dir),
            Some(Command::Env) => faults::print_env(&dir),
        }
    }
}

fn default_dir(environment: &Environment) -> anyhow::Result<PathBuf> {
    let folder = |name: &str| environment.variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = || folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    let dir = folder("KEYWARD_DEV_DIR").or_else(|| Some(state()?.join("keyward-dev")));
    dir.context("the home directory is unknown: pass --dir FOLDER")
}
