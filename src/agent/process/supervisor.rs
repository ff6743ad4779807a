//! Runs the child process: starts it, forwards signals, and restarts it as the policy decides.

use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use keyward_credentials::backoff::random_unit;
use keyward_machine::clock::{Clock, ClockReading};
use keyward_machine::command::{self, ChildProcess, CommandError, CommandSpec, EnvVars, Launcher};
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::time_format::format_rfc3339;
use rustix::process::Signal;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::ProcessOptions;
use super::inputs::{InputSet, ProcessInputs};
use super::metrics::{ProcessMetrics, ProcessStartLabels};
use super::policy::{OnChange, RestartDecision, RestartPolicy};
use super::restart_limit::RestartLimiter;

/// Collaborators of a [`Supervisor`].
#[derive(Debug)]
pub struct SupervisorDeps {
    /// Signals to forward.
    pub signals: mpsc::Receiver<Signal>,
    /// Starts the program.
    pub launcher: Launcher,
    /// Source of the current time.
    pub clock: Clock,
    /// Reports whether the process runs.
    pub health: HealthHandle,
    /// Metrics that this work updates.
    pub metrics: Metrics,
}

/// Runs one process.
#[derive(Debug)]
pub struct Supervisor {
    options: ProcessOptions,
    deps: SupervisorDeps,
    inputs: InputSet,
    limiter: RestartLimiter,
}

/// Time after which a process that has not started is reported.
const START_DELAY: Duration = Duration::from_secs(10);

/// Time after which a killed process that has not ended is reported, and at a stop no longer waited for. The kernel cannot end a process that
/// waits uninterruptibly, as for a network file system that does not answer.
pub const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Cause of a process's end.
enum ExitCause {
    /// It exited with this code.
    Exited(u8),
    /// It could not be started; the error, and the exit code that a POSIX shell has for it.
    NotStarted(String, u8),
    /// The agent stops; the process exited with this code.
    Stopped(u8),
    /// A variable changed.
    InputChanged,
}

impl Supervisor {
    /// Creates a supervisor. `inputs` may be replaced while it runs.
    pub fn new(options: ProcessOptions, inputs: watch::Receiver<ProcessInputs>, deps: SupervisorDeps) -> Self {
        let inputs = InputSet::new(inputs);
        deps.health.set_target(options.command[0].clone());
        let limiter = RestartLimiter::new(options.max_restarts_per);
        Self { options, deps, inputs, limiter }
    }

    /// Runs the process once all inputs are available. Returns the exit code for the agent, or `None` where `stop` was cancelled
    /// before the first start.
    pub async fn run(mut self, stop: CancellationToken) -> Option<u8> {
        let mut policy = RestartPolicy::new(self.options.restart);
        let mut reason = "first";
        loop {
            let variables = stop.run_until_cancelled(self.wait_for_inputs()).await?;
            policy.record_start(self.deps.clock.now());
            self.deps.metrics.get::<ProcessMetrics>().starts.get_or_create(&ProcessStartLabels { reason }).inc();
            let (code, error_code, error) = match self.start(variables, &stop).await {
                ExitCause::Stopped(code) => return Some(code),
                ExitCause::InputChanged => {
                    reason = "changed";
                    continue;
                }
                ExitCause::Exited(code) => {
                    (code, ErrorCode::ProcessEnded, format!("exited with code {code}; restarting"))
                }
                ExitCause::NotStarted(error, code) => (code, ErrorCode::ProcessNotStarted, error),
            };
            match policy.decide(code == 0, self.deps.clock.now(), random_unit()) {
                RestartDecision::Exit => return Some(code),
                RestartDecision::RestartAfter(wait) => {
                    self.deps.health.set_failed(error_code, error);
                    self.deps.health.set_retry_at(self.deps.clock.now() + wait);
                    reason = "ended";
                    stop.run_until_cancelled(self.deps.clock.sleep(wait)).await?;
                }
            }
        }
    }

    /// Waits until all inputs are available, and returns the variables.
    async fn wait_for_inputs(&mut self) -> EnvVars {
        loop {
            match self.inputs.now() {
                Ok(variables) => return variables,
                Err(name) => self.deps.health.set_not_ready(format!("waiting for {name}")),
            }
            self.inputs.changed().await;
        }
    }

    /// Starts the process and supervises it until it has ended.
    async fn start(&mut self, variables: EnvVars, stop: &CancellationToken) -> ExitCause {
        let all = self.options.variables.clone().merged_with(&variables);
        let program = CommandSpec { command: self.options.command.clone(), variables: all };
        // Signals for a program that does not run: the next one has no handlers yet, and might end by them.
        while self.deps.signals.try_recv().is_ok() {}
        let running = match stop.run_until_cancelled(self.launch(&program)).await {
            None => return ExitCause::Stopped(0),
            Some(Ok(running)) => running,
            Some(Err(error)) => {
                tracing::error!(
                    event = "process.failed",
                    program = self.options.command[0],
                    code = ErrorCode::ProcessNotStarted.as_str(),
                    error = error.to_string(),
                    "the child process cannot be started"
                );
                // The exit codes of a shell (POSIX.1-2017, Shell Command Language, 2.8.2).
                let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
                return ExitCause::NotStarted(format!("it cannot be started: {error}"), code);
            }
        };
        tracing::info!(event = "process.started", pid = running.id(), "the child process was started");
        let pid = running.id().map(|pid| format!(", pid {pid}")).unwrap_or_default();
        self.deps.health.set_target(format!("{}{pid}", self.options.command[0]));
        self.deps.health.record_update();
        self.deps.health.set_ready();
        self.deps.metrics.get::<ProcessMetrics>().running.set(1);
        let end = self.supervise(running, variables, stop).await;
        self.withdraw_postponement();
        self.deps.metrics.get::<ProcessMetrics>().running.set(0);
        end
    }

    /// Starts the program, and reports one that does not start.
    async fn launch(&self, program: &CommandSpec) -> io::Result<ChildProcess> {
        let mut started = pin!(self.deps.launcher.start(program, true));
        tokio::select! {
            started = &mut started => return started,
            () = self.deps.clock.sleep(START_DELAY) => {}
        }
        let error = CommandError::StartTimedOut { after: START_DELAY }.to_string();
        tracing::warn!(
            event = "process.start_delayed",
            program = self.options.command[0],
            code = ErrorCode::ProcessNotStarted.as_str(),
            error,
            "the child process has not started yet"
        );
        self.deps.health.set_failed(ErrorCode::ProcessNotStarted, error);
        started.await
    }

    async fn supervise(&mut self, mut running: ChildProcess, mut used: EnvVars, stop: &CancellationToken) -> ExitCause {
        let clock = self.deps.clock.clone();
        // End of the debounce interval, and the latest time that further changes can move it to.
        let mut debounce: Option<(ClockReading, ClockReading)> = None;
        // Time of a restart that the limit does not allow yet.
        let mut postponed: Option<ClockReading> = None;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    tracing::info!(event = "process.stopping", "stopping the child process");
                    return ExitCause::Stopped(self.end(running, stop).await);
                }
                ended = running.wait() => {
                    let code = ended.as_ref().map_or(1, |status| command::exit_code(*status));
                    let exit_status = ended.map_or_else(|error| error.to_string(), command::describe_exit);
                    tracing::warn!(event = "process.ended", code = ErrorCode::ProcessEnded.as_str(), exit_status, "the child process has ended");
                    return ExitCause::Exited(code);
                }
                Some(signal) = self.deps.signals.recv() => running.signal(signal),
                () = self.inputs.changed() => {
                    let now = clock.now();
                    // Bounded: inputs that change all the time must not delay the reaction for ever.
                    let latest = debounce.map_or(now + self.options.debounce * 4, |(_, latest)| latest);
                    let quiet = now + self.options.debounce;
                    debounce = Some((if quiet.boot < latest.boot { quiet } else { latest }, latest));
                }
                () = clock.sleep_until_some(debounce.map(|(quiet, _)| quiet).or(postponed)) => {
                    debounce = None;
                    // A missing input is waited for, and a value that is as it was is no change; the process keeps its variables.
                    let Some(now) = self.inputs.now().ok().filter(|now| *now != used) else {
                        postponed = None;
                        self.withdraw_postponement();
                        continue;
                    };
                    match self.options.on_change {
                        OnChange::Ignore => used = now,
                        OnChange::Signal(signal) => {
                            used = now;
                            tracing::info!(event = "process.signalled", "a variable changed; signaling the child process");
                            running.signal(signal);
                        }
                        OnChange::Restart => {
                            if let Err(at) = self.limiter.try_restart(&clock) {
                                self.report_postponement(at, postponed.is_none());
                                postponed = Some(at);
                                continue;
                            }
                            tracing::info!(event = "process.restarting", "a variable changed; restarting the child process");
                            self.end(running, stop).await;
                            return ExitCause::InputChanged;
                        }
                    }
                }
            }
        }
    }

    /// Reports that the restart for a changed variable waits until `at`; in the log if it `is_new`.
    fn report_postponement(&self, at: ClockReading, is_new: bool) {
        let next_restart = format_rfc3339(self.deps.clock.now().wall_time_of(at));
        let limit = self.options.max_restarts_per.map(|limit| limit.to_string()).unwrap_or_default();
        self.deps.health.warn(
            None,
            format!(
                "a variable changed; max_restarts_per = \"{limit}\" allows the restart at {next_restart}, and the process has the \
                 previous value until then"
            ),
        );
        self.deps.metrics.get::<ProcessMetrics>().restart_pending.set(1);
        if is_new {
            tracing::warn!(
                event = "process.restart_postponed",
                limit,
                next_restart,
                "a variable changed; the limit of restarts postpones that of the child process"
            );
        }
    }

    /// Withdraws such a report.
    fn withdraw_postponement(&self) {
        self.deps.health.clear_warning();
        self.deps.metrics.get::<ProcessMetrics>().restart_pending.set(0);
    }

    /// Asks the process to end, and kills it after the timeout. Returns its exit code; 0 if the stop signal ended it, 1 if it was
    /// given up.
    async fn end(&self, mut running: ChildProcess, stop: &CancellationToken) -> u8 {
        use std::os::unix::process::ExitStatusExt as _;
        let signal = self.options.stop_signal;
        running.signal(signal);
        let ended = tokio::select! {
            ended = running.wait() => ended,
            () = self.deps.clock.sleep(self.options.stop_timeout) => {
                tracing::warn!(event = "process.killed", "the child process did not stop in time; killing it");
                running.kill();
                self.wait_for_killed(&mut running, stop).await
            }
        };
        match ended {
            Ok(status) if status.signal() == Some(signal.as_raw()) => 0,
            Ok(status) => command::exit_code(status),
            Err(_) => 1,
        }
    }

    /// Waits for the end of a killed process. One that does not end in time is reported, and waited for until the agent stops.
    async fn wait_for_killed(&self, running: &mut ChildProcess, stop: &CancellationToken) -> io::Result<ExitStatus> {
        tokio::select! {
            ended = running.wait() => return ended,
            () = self.deps.clock.sleep(KILL_TIMEOUT) => {}
        }
        let error = format!(
            "it was killed and has not ended within {} s: the kernel waits for a device or a file system; restore that, or restart the \
             machine",
            KILL_TIMEOUT.as_secs()
        );
        tracing::error!(
            event = "process.stuck",
            pid = running.id(),
            code = ErrorCode::ProcessStuck.as_str(),
            error,
            "the killed child process does not end"
        );
        self.deps.health.set_failed(ErrorCode::ProcessStuck, error.clone());
        tokio::select! {
            ended = running.wait() => ended,
            () = stop.cancelled() => Err(io::Error::other(error)),
        }
    }
}

#[cfg(test)]
mod tests;
