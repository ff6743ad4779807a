//! `keyward man`: a manual page for each command.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_mangen::Man;

use super::Exit;

/// Write the manual pages.
#[derive(Debug, Args)]
pub(super) struct ManualPages {
    /// Folder for the pages, one file for each command; created if it does not exist
    #[arg(long, value_name = "FOLDER")]
    dir: PathBuf,
}

impl ManualPages {
    pub(super) fn run(self, command: Command) -> anyhow::Result<Exit> {
        let failed = || format!("cannot write manual pages to {}", self.dir.display());
        std::fs::create_dir_all(&self.dir).with_context(failed)?;
        let mut command = command.disable_help_subcommand(true);
        command.build();
        let mut commands = vec![command];
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().cloned());
            let page =
                Man::new(command).source(concat!("keyward ", env!("CARGO_PKG_VERSION"))).manual("keyward manual");
            page.generate_to(&self.dir).with_context(failed)?;
        }
        Ok(Exit::Ok)
    }
}
