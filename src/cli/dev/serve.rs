//! `keyward dev` itself, until it is stopped or its tour ends.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use keyward_app::Signals;
use keyward_app::dev::{self, DevCloud, take_the_tour};
use keyward_app::logging::{self, Logging};
use keyward_config::{Log, LogFormat};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cli::run::{start_log, stop_signals};
use crate::cli::{Exit, LogChoice, print_line, print_warning};

/// Flags of `keyward dev` without a command.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// The cloud to emulate
    #[arg(long, value_enum, default_value_t)]
    cloud: DevCloud,
    /// First of twelve ports in a row [default: free ports]
    #[arg(long, value_name = "PORT")]
    first_port: Option<u16>,
    /// Run the whole chain once, with each fault and its end, print each step, and exit
    #[arg(long)]
    once: bool,
}

impl Serve {
    pub(super) fn run(self, dir: &Path, log: &LogChoice) -> anyhow::Result<Exit> {
        keyward_machine::os::forbid_core_dumps()?;
        if let Some(first) = self.first_port {
            // Before the folder is made.
            dev::check_first_port(first)?;
        }
        let folder = dev::DevDir::lock(dir)?;
        let _logging = if self.once {
            // The tour says what each fault does; warnings about it would only repeat that.
            start_log(log, &Log { level: tracing::Level::ERROR.into(), targets: [].into(), format: LogFormat::Text })?.0
        } else {
            log_to(&folder.log_file(), log)?
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let stop = CancellationToken::new();
            let signals = stop_signals(stop.clone())?;
            tokio::pin!(signals);
            let dev = tokio::select! {
                built = dev::Dev::build(folder, self.first_port, self.cloud) => built?,
                () = stop.cancelled() => return Ok(Exit::Ok),
                twice = &mut signals => return twice.map(|()| Exit::Ok),
            };
            let (_kept, reloads) = mpsc::channel(1);
            let guide = dev.guide();
            let endpoints = dev.endpoints;
            let mut emulated = dev.emulated;
            let emulated_stop = emulated.stop_token();
            let running = async {
                let ran = Box::pin(dev.app.run(Signals::new(stop.clone(), reloads))).await;
                stop.cancel();
                ran
            };
            let driver = async {
                if let Err(error) = endpoints.bootstrap_acl().await {
                    print_warning(&format!("`keyward acl` has no token here: {error:#}"));
                }
                if self.once {
                    let tour = tokio::select! {
                        tour = take_the_tour(&endpoints) => tour,
                        () = stop.cancelled() => Err(anyhow::anyhow!("stopped before the tour ended")),
                        twice = signals => twice.map(|()| Vec::new()),
                    };
                    stop.cancel();
                    return tour;
                }
                print_line(&guide);
                tokio::select! {
                    ended = signals => ended.map(|()| Vec::new()),
                    failure = emulated.wait_for_failure() => Err(failure.into()),
                    () = stop.cancelled() => Ok(Vec::new()),
                }
            };
            let (ran, drove) = tokio::join!(running, driver);
            emulated_stop.cancel();
            emulated.run(Duration::from_secs(5)).await?;
            ran?;
            for line in drove? {
                print_line(&line);
            }
            Ok(Exit::Ok)
        })
    }
}

/// Starts the log in a file, which begins anew at each start.
fn log_to(path: &Path, choice: &LogChoice) -> anyhow::Result<Logging> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    let file = file.with_context(|| format!("cannot write the log {}", path.display()))?;
    let usual = Log { level: tracing::Level::INFO.into(), targets: [].into(), format: LogFormat::Text };
    let targets = logging::targets(choice.level.as_ref().unwrap_or(&usual));
    logging::start_in(targets, choice.format.unwrap_or(LogFormat::Text), file).context("cannot start the log")
}
