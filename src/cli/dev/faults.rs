//! `keyward dev break`, `heal` and `env`: from another terminal.

use std::path::Path;

use clap::Args;
use keyward_app::dev::DevEndpoints;
use keyward_app::dev::faults::{BOTH_HEALED, Fault, FaultSwitch};

use crate::cli::{Exit, print, print_line};

/// Break something.
#[derive(Debug, Args)]
pub(super) struct Break {
    /// The fault
    #[arg(value_name = "FAULT", value_enum)]
    fault: Fault,
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
        block_on(FaultSwitch::new(&endpoints)?.start(self.fault))?;
        let guide = self.fault.guide();
        print_line(&format!("broken: {}\n\nlook:", guide.broken));
        for (command, shows) in guide.observations {
            print_line(&format!("  {command}\n      {shows}"));
        }
        print_line(&format!("\nends: {}", guide.end));
        Ok(Exit::Ok)
    }
}

impl Heal {
    pub(super) fn run(self, dir: &Path) -> anyhow::Result<Exit> {
        let endpoints = DevEndpoints::find(dir)?;
        let switch = FaultSwitch::new(&endpoints)?;
        let faults = self.fault.map_or_else(|| Fault::ALL.to_vec(), |fault| vec![fault]);
        let mut healed = Vec::new();
        for fault in faults {
            if block_on(switch.is_on(fault))? {
                block_on(switch.heal(fault))?;
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
