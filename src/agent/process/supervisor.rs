//! Starts the child, passes signals on, and does to it what the policy says, until it is told to stop.

use rustix::process::Signal;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::Options;
use super::policy::{OnChange, RestartPolicy, Verdict};
use crate::backoff::random_unit;
use crate::clock::{Clock, ClockReading};
use crate::command::{self, ChildProcess, CommandSpec, EnvVars, ProvidedEnv};
use crate::credential_watch::{Availability, CredentialWatch, any_changed};
use crate::health::HealthHandle;
use crate::metrics::{Metrics, ProcessStartLabels};

/// What the child waits for, each with its name: variables, and files.
pub type Inputs = Vec<(String, CredentialWatch<ProvidedEnv>)>;

/// What a supervisor works with.
#[derive(Debug)]
pub struct Parts {
    /// Signals to pass on.
    pub signals: mpsc::Receiver<Signal>,
    /// Where the time comes from.
    pub clock: Clock,
    /// Where to say whether the child runs.
    pub health: HealthHandle,
    /// Where starts are counted.
    pub metrics: Metrics,
}

/// Runs one child.
#[derive(Debug)]
pub struct Supervisor {
    options: Options,
    parts: Parts,
    awaited: Awaited,
}

/// What the child waits for.
#[derive(Debug)]
struct Awaited {
    inputs: Inputs,
    /// What takes their place.
    others: watch::Receiver<Inputs>,
}

/// How a child came to its end.
enum End {
    /// By itself, or it could not be started: the code that tells how.
    Itself(u8),
    /// We were told to stop.
    Stopped(u8),
    /// A variable has changed.
    Changed,
}

impl Supervisor {
    /// One that has started nothing yet. Other inputs may take their place while it runs.
    pub fn new(options: Options, mut inputs: watch::Receiver<Inputs>, parts: Parts) -> Self {
        let first = inputs.borrow_and_update().clone();
        let awaited = Awaited { inputs: first, others: inputs };
        Self { options, parts, awaited }
    }

    /// Runs the child once all that it waits for is there. Returns the code to end with: the child's, once it has ended for
    /// good, or `None` where it was told to stop before there was a child.
    pub async fn run(mut self, stop: CancellationToken) -> Option<u8> {
        let mut policy = RestartPolicy::new(self.options.restart);
        let mut reason = "first";
        loop {
            let variables = stop.run_until_cancelled(self.gathered()).await?;
            let started = self.parts.clock.now();
            self.parts.metrics.child_starts.get_or_create(&ProcessStartLabels { reason }).inc();
            match self.start(variables, &stop).await {
                End::Stopped(code) => return Some(code),
                End::Changed => reason = "changed",
                End::Itself(code) => match policy.ended(code == 0, started, self.parts.clock.now(), random_unit()) {
                    Verdict::End => return Some(code),
                    Verdict::StartAfter(wait) => {
                        self.parts.health.not_ready(format!("it ended with code {code}, and is started again"));
                        reason = "ended";
                        stop.run_until_cancelled(self.parts.clock.sleep(wait)).await?;
                    }
                },
            }
        }
    }

    /// The variables, once all that the child waits for is there.
    async fn gathered(&mut self) -> EnvVars {
        loop {
            match self.awaited.now() {
                Ok(variables) => return variables,
                Err(name) => self.parts.health.not_ready(format!("waiting for {name}")),
            }
            self.awaited.news().await;
        }
    }

    /// Starts the child and attends to it until it has ended.
    async fn start(&mut self, variables: EnvVars, stop: &CancellationToken) -> End {
        let all = self.options.variables.clone().with(&variables);
        let program = CommandSpec { command: self.options.command.clone(), variables: all };
        let running = match program.start(true) {
            Ok(running) => running,
            Err(error) => {
                tracing::error!(event = "child.failed", program = self.options.command[0], %error, "it cannot be started");
                // As a shell tells it.
                return End::Itself(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 });
            }
        };
        tracing::info!(event = "child.started", pid = running.id(), "the child was started");
        self.parts.health.ready();
        self.parts.metrics.child_running.set(1);
        let end = self.attend(running, variables, stop).await;
        self.parts.metrics.child_running.set(0);
        end
    }

    async fn attend(&mut self, mut running: ChildProcess, mut seen: EnvVars, stop: &CancellationToken) -> End {
        let clock = self.parts.clock.clone();
        // When the variables, which are changing, are taken to be still; and the latest moment for it.
        let mut still: Option<(ClockReading, ClockReading)> = None;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    tracing::info!(event = "child.stopping", "the child is told to stop");
                    return End::Stopped(self.end(running).await);
                }
                ended = running.ended() => {
                    let code = ended.as_ref().map_or(1, |status| command::exit_code(*status));
                    let how = ended.map_or_else(|error| error.to_string(), command::describe_exit);
                    tracing::warn!(event = "child.ended", how, "the child has ended");
                    return End::Itself(code);
                }
                Some(signal) = self.parts.signals.recv() => running.signal(signal),
                () = self.awaited.news() => {
                    let now = clock.now();
                    let latest = still.map_or(now + self.options.debounce * 4, |(_, latest)| latest);
                    let quiet = now + self.options.debounce;
                    still = Some((if quiet.boot < latest.boot { quiet } else { latest }, latest));
                }
                () = clock.sleep_until_some(still.map(|(quiet, _)| quiet)) => {
                    still = None;
                    // One that is not there now is waited for.
                    let Ok(now) = self.awaited.now() else { continue };
                    if now == seen {
                        continue;
                    }
                    seen = now;
                    match self.options.on_change {
                        OnChange::Ignore => {}
                        OnChange::Signal(signal) => {
                            tracing::info!(event = "child.signalled", "a variable has changed: the child is told");
                            running.signal(signal);
                        }
                        OnChange::Restart => {
                            tracing::info!(event = "child.restarting", "a variable has changed: the child is restarted");
                            self.end(running).await;
                            return End::Changed;
                        }
                    }
                }
            }
        }
    }

    /// Tells the child to end, and kills it where it does not in time. The code is 0 where it ended of the signal.
    async fn end(&self, mut running: ChildProcess) -> u8 {
        use std::os::unix::process::ExitStatusExt as _;
        let signal = self.options.stop_signal;
        running.signal(signal);
        let ended = tokio::select! {
            ended = running.ended() => ended,
            () = self.parts.clock.sleep(self.options.stop_timeout) => {
                tracing::warn!(event = "child.killed", "the child did not end in time and is killed");
                running.kill();
                running.ended().await
            }
        };
        match ended {
            Ok(status) if status.signal() == Some(signal.as_raw()) => 0,
            Ok(status) => command::exit_code(status),
            Err(_) => 1,
        }
    }
}

impl Awaited {
    /// The variables as they are, or what is not there.
    fn now(&mut self) -> Result<EnvVars, String> {
        let mut variables = EnvVars::default();
        for (name, watch) in &mut self.inputs {
            match watch.current().availability {
                Availability::Unavailable { .. } => return Err(name.clone()),
                Availability::Available(provision) => match &*provision {
                    ProvidedEnv::Variable(variable, value) => variables.set(variable.clone(), value.clone()),
                    ProvidedEnv::Variables(several) => variables = variables.with(several),
                    ProvidedEnv::File => {}
                },
            }
        }
        Ok(variables)
    }

    /// Returns when something of what the child waits for has changed, or something else has taken its place.
    async fn news(&mut self) {
        let others = tokio::select! {
            () = any_changed(self.inputs.iter_mut().map(|(_, watch)| watch)) => false,
            changed = self.others.changed() => match changed {
                Ok(()) => true,
                // Who could have brought others has ended, as we are about to.
                Err(_) => std::future::pending().await,
            },
        };
        if others {
            self.inputs.clone_from(&self.others.borrow_and_update());
        }
    }
}
