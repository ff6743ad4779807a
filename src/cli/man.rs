//! `keyward man`: a manual page for each command.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command};

use super::Exit;

/// Write the manual pages.
#[derive(Debug, Args)]
pub(super) struct Man {
    /// Folder for the pages, one file for each command; created if it does not exist
    #[arg(long, value_name = "FOLDER")]
    dir: PathBuf,
}

impl Man {
    pub(super) fn run(self, command: Command) -> anyhow::Result<Exit> {
        let failed = || format!("cannot write manual pages to {}", self.dir.display());
        std::fs::create_dir_all(&self.dir).with_context(failed)?;
        clap_mangen::generate_to(command, &self.dir).with_context(failed)?;
        Ok(Exit::Ok)
    }
}
