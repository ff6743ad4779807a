//! `keyward dev`: the whole thing on this machine, with no outside service.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::run::{start_log, stop_signals};
use super::{Exit, LogChoice, say};
use crate::app::Signals;
use crate::app::dev::{self, take_the_tour};
use crate::config::{Environment, Log, LogFormat};

/// Try the whole chain on this machine.
#[derive(Debug, Args)]
pub(super) struct Dev {
    /// Folder for keys, secrets and state; created at the first start [default: `~/.local/state/keyward-dev`]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// First of eleven ports in a row [default: free ports]
    #[arg(long, value_name = "PORT")]
    first_port: Option<u16>,
    /// Run the whole chain once, print each step, and exit
    #[arg(long)]
    once: bool,
}

impl Dev {
    pub(super) fn run(self, log: &LogChoice) -> anyhow::Result<Exit> {
        crate::os::forbid_core_dumps()?;
        let dir = self.dir.map_or_else(|| default_dir(&Environment::current()), Ok)?;
        let level = if self.once { tracing::Level::WARN } else { tracing::Level::INFO };
        let _logging = start_log(log, &Log { level: level.into(), targets: [].into(), format: LogFormat::Text })?;
        let options = dev::Options { dir, first_port: self.first_port };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let stop = CancellationToken::new();
            let signals = stop_signals(stop.clone())?;
            tokio::pin!(signals);
            let dev = tokio::select! {
                built = dev::Dev::build(&options) => built?,
                () = stop.cancelled() => return Ok(Exit::Ok),
                twice = &mut signals => return twice.map(|()| Exit::Ok),
            };
            let (_kept, reloads) = mpsc::channel(1);
            let guide = dev.guide();
            let mut emulated = dev.emulated;
            let emulated_stop = emulated.stop_token();
            let running = async {
                let ran = dev.app.run(Signals::new(stop.clone(), reloads)).await;
                stop.cancel();
                ran
            };
            let driver = async {
                if self.once {
                    let tour = tokio::select! {
                        tour = take_the_tour(&dev.places) => tour,
                        () = stop.cancelled() => Err(anyhow::anyhow!("stopped before the tour ended")),
                        twice = signals => twice.map(|()| Vec::new()),
                    };
                    stop.cancel();
                    return tour;
                }
                say(&guide);
                tokio::select! {
                    ended = signals => ended.map(|()| Vec::new()),
                    failure = emulated.failed() => Err(failure.into()),
                    () = stop.cancelled() => Ok(Vec::new()),
                }
            };
            let (ran, drove) = tokio::join!(running, driver);
            emulated_stop.cancel();
            emulated.run(Duration::from_secs(5)).await?;
            ran?;
            for line in drove? {
                say(&line);
            }
            Ok(Exit::Ok)
        })
    }
}

fn default_dir(environment: &Environment) -> anyhow::Result<PathBuf> {
    let folder = |name: &str| environment.variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    state.map(|state| state.join("keyward-dev")).context("no home folder is known: say --dir FOLDER")
}
