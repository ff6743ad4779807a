//! `keyward run`: the agent, until it is told to stop.

use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{ConfigFiles, Exit, LogChoice, say_error};
use crate::app::logging::{self, LogLevel, Logging};
use crate::app::{App, Signals};
use crate::config::{self, Config, Environment, Purpose, Remark};
use crate::http::listen::Inherited;

pub(super) fn run(files: &ConfigFiles, choice: &LogChoice) -> anyhow::Result<Exit> {
    crate::sys::forbid_core_dumps()?;
    let environment = Environment::of_this_process();
    let (config, warnings) = match load(files, &environment) {
        Ok(loaded) => loaded,
        Err(mistakes) => {
            for mistake in mistakes {
                say_error(&mistake);
            }
            return Ok(Exit::Config);
        }
    };
    let (_logging, log) = start_log(choice, &config.log)?;
    tell(&warnings);
    let runtime = runtime(&config)?;
    let inherited = inherited(&environment)?;
    let ended = runtime.block_on(async {
        let (signals, relay) = listen_for_signals(files.clone(), environment)?;
        let app = App::build(config, log, inherited).await?;
        tokio::select! {
            ended = app.run(signals) => ended,
            never = relay => never.map(|()| 0),
        }
    });
    // A name look-up or a write that hangs in the system must not hold the end up.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended.map(|code| if code == 0 { Exit::Ok } else { Exit::OfProgram(code) })
}

/// The sockets that the service manager passed.
pub(super) fn inherited(environment: &Environment) -> std::io::Result<Inherited> {
    let variable = |name: &str| environment.variables.get(name).map(String::as_str);
    Inherited::take(variable("LISTEN_PID"), variable("LISTEN_FDS"), variable("LISTEN_FDNAMES"))
}

/// One thread serves an agent best; the access-control service signs and stores beside, which takes more.
#[cfg_attr(
    not(feature = "access"),
    expect(unused_variables, reason = "only the access-control service makes a difference")
)]
pub(super) fn runtime(config: &Config) -> std::io::Result<tokio::runtime::Runtime> {
    #[cfg(feature = "access")]
    if config.access.is_some() {
        return tokio::runtime::Builder::new_multi_thread().enable_all().build();
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Starts the log as the command line says, and where it says nothing, the configuration. Gives the means to change
/// its level on reload, unless the command line has fixed it.
pub(super) fn start_log(choice: &LogChoice, log: &config::Log) -> anyhow::Result<(Logging, Option<LogLevel>)> {
    let targets = logging::targets(choice.level.as_ref().unwrap_or(log));
    let logging = logging::start(targets, choice.format.unwrap_or(log.format)).context("cannot start the log")?;
    let level = choice.level.is_none().then(|| logging.level.clone());
    Ok((logging, level))
}

/// Reads the configuration for a run, with what is probably not meant in it; or its mistakes.
fn load(files: &ConfigFiles, environment: &Environment) -> Result<(Config, Vec<Remark>), Vec<String>> {
    let outcome = config::load(&files.config, environment, Purpose::Run);
    let mistakes = outcome.mistakes.iter().map(ToString::to_string).collect();
    outcome.config.map(|config| (config, outcome.warnings)).ok_or(mistakes)
}

fn tell(warnings: &[Remark]) {
    for warning in warnings {
        tracing::warn!(event = "config.warning", "{warning}");
    }
}

/// Turns SIGTERM and SIGINT into a stop, SIGHUP into a reload; SIGUSR1, SIGUSR2 and SIGWINCH are for the child.
fn listen_for_signals(
    files: ConfigFiles,
    environment: Environment,
) -> anyhow::Result<(Signals, impl Future<Output = anyhow::Result<()>>)> {
    let mut hangup = signal(SignalKind::hangup())?;
    let (reload, reloads) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let (pass, passed) = mpsc::channel(16);
    let signals = Signals { stop: stop.clone(), reloads, passed };
    let mut first = signal(SignalKind::user_defined1())?;
    let mut second = signal(SignalKind::user_defined2())?;
    let mut window = signal(SignalKind::window_change())?;
    let relay = async move {
        let stopped = stop_signals(stop);
        tokio::pin!(stopped);
        loop {
            // A child that takes none for a while misses those that find no room, as it would those that are pending.
            let to_child = tokio::select! {
                Some(()) = hangup.recv() => None,
                Some(()) = first.recv() => Some(Signal::USR1),
                Some(()) = second.recv() => Some(Signal::USR2),
                Some(()) = window.recv() => Some(Signal::WINCH),
                ended = &mut stopped => return ended,
            };
            if let Some(signal) = to_child {
                let _ = pass.try_send(signal);
                continue;
            }
            // The channel holds one: a storm of signals becomes one reload after the other.
            // Off this thread: user databases and files may be slow.
            let (files, environment) = (files.clone(), environment.clone());
            let loading = tokio::task::spawn_blocking(move || load(&files, &environment));
            let reloading = async {
                let loaded = loading.await.unwrap_or_else(|error| Err(vec![error.to_string()]));
                let loaded = loaded.map(|(config, warnings)| {
                    tell(&warnings);
                    config
                });
                let _ = reload.send(loaded).await;
            };
            tokio::select! {
                () = reloading => {}
                ended = &mut stopped => return ended,
            }
        }
    };
    Ok((signals, relay))
}

/// Cancels `stop` on the first SIGTERM or SIGINT.
///
/// # Errors
/// There was a second one: whoever sent it wants the end at once.
pub(super) async fn stop_signals(stop: CancellationToken) -> anyhow::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            Some(()) = term.recv() => {}
            Some(()) = interrupt.recv() => {}
        }
        anyhow::ensure!(!stop.is_cancelled(), "told to stop twice: ended at once");
        stop.cancel();
    }
}
