//! Commands that several outputs share: one run after the last of their changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use keyward_machine::clock::{Clock, ClockReading};
use keyward_machine::command::{CommandError, EnvVars, Launcher};
use parking_lot::Mutex;

use super::{CommandRunner, OutputCommand};

/// The commands of the outputs that run, by program, arguments, time limit and variables. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct SharedCommands(Arc<Mutex<Vec<Weak<SharedCommand>>>>);

impl SharedCommands {
    /// Returns the command that equal ones share.
    fn find_or_add(&self, command: OutputCommand, variables: EnvVars) -> Arc<SharedCommand> {
        let mut all = self.0.lock();
        all.retain(|shared| shared.strong_count() > 0);
        let is_equal = |shared: &Arc<SharedCommand>| shared.command == command && shared.variables == variables;
        if let Some(shared) = all.iter().filter_map(Weak::upgrade).find(is_equal) {
            return shared;
        }
        let (turn, requests) = (tokio::sync::Mutex::default(), Mutex::default());
        let shared = Arc::new(SharedCommand { command, variables, turn, requests });
        all.push(Arc::downgrade(&shared));
        shared
    }
}

/// One command, and the outputs that wait for its next run.
#[derive(Debug)]
struct SharedCommand {
    command: OutputCommand,
    variables: EnvVars,
    /// Held by the task that runs the command, also while it waits for further changes.
    turn: tokio::sync::Mutex<()>,
    requests: Mutex<Requests>,
}

/// Requests for runs, numbered from 1.
#[derive(Debug, Default)]
struct Requests {
    /// Outputs that have the command.
    outputs: usize,
    /// Number of the last request.
    last: u64,
    /// Outputs whose tasks wait, by request.
    waiting: BTreeMap<u64, PathBuf>,
    /// Times of the first and the last request after the beginning of the last run.
    times: Option<(ClockReading, ClockReading)>,
    /// The last failed run, and the last request before it.
    failed: Option<(u64, Arc<CommandError>)>,
    /// The last request before a run that succeeded.
    succeeded: u64,
}

impl Requests {
    /// Returns the result for a change, whose command was first requested by `change` and now by `request`, if a run has begun
    /// since.
    fn result(&self, change: u64, request: u64) -> Option<Result<(), Arc<CommandError>>> {
        if self.succeeded >= change {
            return Some(Ok(()));
        }
        self.failed.as_ref().filter(|(covered, _)| *covered >= request).map(|(_, error)| Err(Arc::clone(error)))
    }
}

impl SharedCommand {
    fn request(self: &Arc<Self>, output: &Path, now: ClockReading) -> Request {
        let mut requests = self.requests.lock();
        requests.last += 1;
        let number = requests.last;
        requests.waiting.insert(number, output.to_owned());
        requests.times = Some((requests.times.map_or(now, |(first, _)| first), now));
        Request { number, shared: Arc::clone(self) }
    }

    /// Waits until no further output has changed for this time, at most four times that. An output that shares the command with
    /// no other does not wait.
    async fn wait_until_quiet(&self, debounce: Duration, clock: &Clock) {
        loop {
            let (outputs, times) = {
                let requests = self.requests.lock();
                (requests.outputs, requests.times)
            };
            let Some((first, last)) = times.filter(|_| outputs > 1) else { return };
            let (quiet, latest) = (last + debounce, first + debounce * 4);
            let until = if quiet.boot < latest.boot { quiet } else { latest };
            if clock.has_reached(until) {
                return;
            }
            clock.sleep_until(until).await;
        }
    }

    /// Begins a run for all that wait. Returns the last request that it is for, and their outputs.
    fn begin(&self) -> (u64, Vec<PathBuf>) {
        let mut requests = self.requests.lock();
        requests.times = None;
        (requests.last, requests.waiting.values().cloned().collect())
    }

    fn is_awaited(&self, output: &Path) -> bool {
        self.requests.lock().waiting.values().any(|waiting| waiting == output)
    }

    fn record(&self, covered: u64, result: &Result<(), Arc<CommandError>>) {
        let mut requests = self.requests.lock();
        match result {
            Ok(()) => requests.succeeded = covered,
            Err(error) => requests.failed = Some((covered, Arc::clone(error))),
        }
    }
}

/// A request for a run; dropping it ends the wait.
struct Request {
    number: u64,
    shared: Arc<SharedCommand>,
}

impl Drop for Request {
    fn drop(&mut self) {
        self.shared.requests.lock().waiting.remove(&self.number);
    }
}

/// Runs the command of one output, together with the outputs that share it.
#[derive(Debug)]
pub(crate) struct SharedCommandRunner {
    shared: Arc<SharedCommand>,
    runner: CommandRunner,
    clock: Clock,
    debounce: Duration,
    /// First request for the output's last change, until a run succeeds.
    change: Option<u64>,
}

impl SharedCommandRunner {
    /// Creates a runner. `debounce` is the quiet time before a run, if other outputs share the command.
    pub(crate) fn new(
        commands: &SharedCommands,
        command: OutputCommand,
        variables: EnvVars,
        debounce: Duration,
        launcher: Launcher,
        clock: Clock,
    ) -> Self {
        let shared = commands.find_or_add(command, variables);
        shared.requests.lock().outputs += 1;
        Self { shared, runner: CommandRunner::new(launcher, clock.clone()), clock, debounce, change: None }
    }

    /// Records a change of the output: no run that has begun is for it.
    pub(crate) const fn record_change(&mut self) {
        self.change = None;
    }

    /// Runs the command for all outputs that wait for it, or waits for the run of another one that begins from now on. Also
    /// succeeds if such a run has succeeded since a failure of the last one.
    pub(crate) async fn run(&mut self, output: &Path) -> Result<(), Arc<CommandError>> {
        let shared = Arc::clone(&self.shared);
        let request = shared.request(output, self.clock.now());
        let change = *self.change.get_or_insert(request.number);
        let _turn = shared.turn.lock().await;
        let earlier = shared.requests.lock().result(change, request.number);
        let result = match earlier {
            Some(result) => result,
            None => self.lead().await,
        };
        if result.is_ok() {
            self.change = None;
        }
        // Before the next turn, whose run is not for this request.
        drop(request);
        result
    }

    /// Runs the command once no further output changes.
    async fn lead(&mut self) -> Result<(), Arc<CommandError>> {
        let shared = Arc::clone(&self.shared);
        shared.wait_until_quiet(self.debounce, &self.clock).await;
        let (covered, outputs) = shared.begin();
        let (command, variables) = (shared.command.clone(), &shared.variables);
        let result = self.runner.run_for(command, variables, outputs, |output| shared.is_awaited(output)).await;
        let result = result.map_err(Arc::new);
        shared.record(covered, &result);
        result
    }

    /// Waits for the change of the markers that is in progress; for a stop, which has cancelled [`SharedCommandRunner::run`].
    pub(crate) async fn finish(&mut self) {
        self.runner.finish().await;
    }
}

impl Drop for SharedCommandRunner {
    fn drop(&mut self) {
        self.shared.requests.lock().outputs -= 1;
    }
}

#[cfg(test)]
mod tests;
