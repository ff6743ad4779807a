//! Starts the child, passes signals on, and does to it what the policy says, until it is told to stop.

use rustix::process::Signal;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::ProcessOptions;
use super::policy::{OnChange, RestartDecision, RestartPolicy};
use crate::backoff::random_unit;
use crate::clock::{Clock, ClockReading};
use crate::command::{self, ChildProcess, CommandSpec, EnvVars, ProvidedEnv};
use crate::credential_watch::{Availability, CredentialWatch, any_changed};
use crate::health::HealthHandle;
use crate::metrics::{Metrics, ProcessStartLabels};

/// What the child waits for, each with its name: variables, and files.
pub type ProcessInputs = Vec<(String, CredentialWatch<ProvidedEnv>)>;

/// What a supervisor works with.
#[derive(Debug)]
pub struct SupervisorDeps {
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
    options: ProcessOptions,
    deps: SupervisorDeps,
    inputs: InputSet,
}

/// What the child waits for.
#[derive(Debug)]
struct InputSet {
    inputs: ProcessInputs,
    /// What takes their place.
    others: watch::Receiver<ProcessInputs>,
}

/// How a child came to its end.
enum ExitCause {
    /// By itself, or it could not be started: the code that tells how.
    Itself(u8),
    /// We were told to stop.
    Stopped(u8),
    /// A variable has changed.
    Changed,
}

impl Supervisor {
    /// One that has started nothing yet. Other inputs may take their place while it runs.
    pub fn new(options: ProcessOptions, mut inputs: watch::Receiver<ProcessInputs>, deps: SupervisorDeps) -> Self {
        let first = inputs.borrow_and_update().clone();
        let inputs = InputSet { inputs: first, others: inputs };
        Self { options, deps, inputs }
    }

    /// Runs the child once all that it waits for is there. Returns the code to end with: the child's, once it has ended for
    /// good, or `None` where it was told to stop before there was a child.
    pub async fn run(mut self, stop: CancellationToken) -> Option<u8> {
        let mut policy = RestartPolicy::new(self.options.restart);
        let mut reason = "first";
        loop {
            let variables = stop.run_until_cancelled(self.wait_for_inputs()).await?;
            let started = self.deps.clock.now();
            self.deps.metrics.child_starts.get_or_create(&ProcessStartLabels { reason }).inc();
            match self.start(variables, &stop).await {
                ExitCause::Stopped(code) => return Some(code),
                ExitCause::Changed => reason = "changed",
                ExitCause::Itself(code) => match policy.ended(code == 0, started, self.deps.clock.now(), random_unit())
                {
                    RestartDecision::ExitCause => return Some(code),
                    RestartDecision::StartAfter(wait) => {
                        self.deps.health.not_ready(format!("it ended with code {code}, and is started again"));
                        reason = "ended";
                        stop.run_until_cancelled(self.deps.clock.sleep(wait)).await?;
                    }
                },
            }
        }
    }

    /// The variables, once all that the child waits for is there.
    async fn wait_for_inputs(&mut self) -> EnvVars {
        loop {
            match self.inputs.now() {
                Ok(variables) => return variables,
                Err(name) => self.deps.health.not_ready(format!("waiting for {name}")),
            }
            self.inputs.changed().await;
        }
    }

    /// Starts the child and attends to it until it has ended.
    async fn start(&mut self, variables: EnvVars, stop: &CancellationToken) -> ExitCause {
        let all = self.options.variables.clone().with(&variables);
        let program = CommandSpec { command: self.options.command.clone(), variables: all };
        let running = match program.start(true) {
            Ok(running) => running,
            Err(error) => {
                tracing::error!(event = "child.failed", program = self.options.command[0], %error, "it cannot be started");
                // As a shell tells it.
                return ExitCause::Itself(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 });
            }
        };
        tracing::info!(event = "child.started", pid = running.id(), "the child was started");
        self.deps.health.ready();
        self.deps.metrics.child_running.set(1);
        let end = self.attend(running, variables, stop).await;
        self.deps.metrics.child_running.set(0);
        end
    }

    async fn attend(&mut self, mut running: ChildProcess, mut seen: EnvVars, stop: &CancellationToken) -> ExitCause {
        let clock = self.deps.clock.clone();
        // When the variables, which are changing, are taken to be still; and the latest moment for it.
        let mut still: Option<(ClockReading, ClockReading)> = None;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    tracing::info!(event = "child.stopping", "the child is told to stop");
                    return ExitCause::Stopped(self.end(running).await);
                }
                ended = running.ended() => {
                    let code = ended.as_ref().map_or(1, |status| command::exit_code(*status));
                    let how = ended.map_or_else(|error| error.to_string(), command::describe_exit);
                    tracing::warn!(event = "child.ended", how, "the child has ended");
                    return ExitCause::Itself(code);
                }
                Some(signal) = self.deps.signals.recv() => running.signal(signal),
                () = self.inputs.changed() => {
                    let now = clock.now();
                    let latest = still.map_or(now + self.options.debounce * 4, |(_, latest)| latest);
                    let quiet = now + self.options.debounce;
                    still = Some((if quiet.boot < latest.boot { quiet } else { latest }, latest));
                }
                () = clock.sleep_until_some(still.map(|(quiet, _)| quiet)) => {
                    still = None;
                    // One that is not there now is waited for.
                    let Ok(now) = self.inputs.now() else { continue };
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
                        OnChange::RestartMode => {
                            tracing::info!(event = "child.restarting", "a variable has changed: the child is restarted");
                            self.end(running).await;
                            return ExitCause::Changed;
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
            () = self.deps.clock.sleep(self.options.stop_timeout) => {
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

impl InputSet {
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
    async fn changed(&mut self) {
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
