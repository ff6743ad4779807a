//! `keyward dev break`, `heal` and `env`: from another terminal.

use std::path::Path;

use clap::Args;
use keyward_app::dev::faults::{BOTH_HEALED, Fault, FaultSwitch};
use keyward_app::dev::{DevAgent, DevEndpoints};

use super::reaction::{Observation, follow, show_fault, show_recovery};
use crate::cli::{Exit, print, print_line};

/// Break something.
#[derive(Debug, Args)]
pub(super) struct Break {
    /// The fault
    #[arg(value_name = "FAULT", value_enum)]
    fault: Fault,
    /// Show each further change of the status, until the fault is healed and everything works again
    #[arg(short, long)]
    watch: bool,
}

/// Clear faults.
#[derive(Debug, Args)]
pub(super) struct Heal {
    /// The fault [default: all]
    #[arg(value_name = "FAULT", value_enum)]
    fault: Option<Fault>,
}

impl Break {
    pub(super) fn run(self, dir: &Path) -> anyhow::Result<Exit> {
        let endpoints = DevEndpoints::find(dir)?;
        block_on(self.run_beside(&endpoints))
    }

    async fn run_beside(self, endpoints: &DevEndpoints) -> anyhow::Result<Exit> {
        let switch = FaultSwitch::new(endpoints)?;
        let agent = DevAgent::new(endpoints)?;
        let was_on = switch.is_on(self.fault).await?;
        let before = Observation::take(&agent).await?;
        switch.start(self.fault).await?;
        let guide = self.fault.guide();
        print_line(&format!("broken: {}", guide.broken));
        let shown = show_fault(&agent, self.fault, &before, was_on).await?;
        print_line("\nlook:");
        for (command, shows) in guide.observations {
            print_line(&format!("  {command}\n      {shows}"));
        }
        print_line(&format!("\nends: {}", guide.end));
        if self.watch {
            follow(&agent, &switch, self.fault, shown).await?;
        }
        Ok(Exit::Ok)
    }
}

impl Heal {
    pub(super) fn run(self, dir: &Path) -> anyhow::Result<Exit> {
        let endpoints = DevEndpoints::find(dir)?;
        block_on(self.run_beside(&endpoints))
    }

    async fn run_beside(self, endpoints: &DevEndpoints) -> anyhow::Result<Exit> {
        let switch = FaultSwitch::new(endpoints)?;
        let agent = DevAgent::new(endpoints)?;
        let before = Observation::take(&agent).await?;
        let faults = self.fault.map_or_else(|| Fault::ALL.to_vec(), |fault| vec![fault]);
        let mut healed = Vec::new();
        for fault in faults {
            if switch.is_on(fault).await? {
                switch.heal(fault).await?;
                print_line(&format!("healed: {}", fault.name()));
                healed.push(fault);
            }
        }
        match (healed.as_slice(), self.fault) {
            // Its tokens were revoked once, which nothing undoes.
            ([], Some(Fault::Token)) => print_line(Fault::Token.guide().healed),
            ([], Some(fault)) => print_line(&format!("the fault {} was not on", fault.name())),
            ([], None) => print_line("no fault was on"),
            ([fault], _) => print_line(fault.guide().healed),
            _ => print_line(BOTH_HEALED),
        }
        if !healed.is_empty() {
            show_recovery(&agent, &healed, &before).await?;
        }
        Ok(Exit::Ok)
    }
}

/// Prints the variables.
pub(super) fn print_env(dir: &Path) -> anyhow::Result<Exit> {
    print(DevEndpoints::find(dir)?.exports().as_bytes());
    Ok(Exit::Ok)
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
