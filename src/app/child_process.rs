//! The child process, built from its options.

use keyward_agent::process::{ProcessInputs, ProcessOptions, Supervisor, SupervisorDeps};
use keyward_machine::tasks::TaskError;
use rustix::process::Signal;
use tokio::sync::{mpsc, watch};

use super::reconciler::{Group, Plan};
use super::session::PlanContext;

/// The child process: at most one, and another while that one stops.
pub(super) type ChildProcesses = Group<ProcessOptions, ChildHandle>;

/// Channels to and from a child process.
pub(super) struct ChildHandle {
    inputs: watch::Sender<ProcessInputs>,
    signals: mpsc::Sender<Signal>,
    /// Exit code of a child process that has ended for good. Nobody reads that of a replaced one.
    exit_code: mpsc::Receiver<u8>,
}

/// Plans the child process, which waits for `inputs`.
pub(super) fn plan(
    running: &ChildProcesses,
    inputs: &ProcessInputs,
    context: &PlanContext<'_>,
) -> anyhow::Result<Plan<ProcessOptions, ChildHandle>> {
    let mut plan = context.plan();
    let shared = context.shared;
    if let Some(options) = &context.config.process {
        running.plan(&mut plan, running.claim("process", &[]), options.clone(), |claim| {
            let (inputs, awaited) = watch::channel(inputs.clone());
            let (signals, signal_receiver) = mpsc::channel(16);
            let (exit_codes, exit_code) = mpsc::channel(1);
            let deps = SupervisorDeps {
                signals: signal_receiver,
                launcher: shared.launcher.clone(),
                clock: shared.clock.clone(),
                health: shared.health.register("process", true, "not started yet"),
                metrics: shared.metrics.clone(),
            };
            let supervisor = Supervisor::new(options.clone(), awaited, deps);
            let stop = claim.stop.clone();
            let work = async move {
                if let Some(code) = supervisor.run(stop).await {
                    let _ = exit_codes.send(code).await;
                }
            };
            Ok((ChildHandle { inputs, signals, exit_code }, Box::pin(work)))
        })?;
    }
    Ok(plan)
}

/// Stops a removed or replaced child process, gives a kept one its new inputs, and starts one that was built.
pub(super) fn commit(children: &mut ChildProcesses, plan: Plan<ProcessOptions, ChildHandle>, inputs: &ProcessInputs) {
    for part in children.take_ended(&plan) {
        children.stop(part.claim);
    }
    for child in children.running.values() {
        child.handle.inputs.send_replace(inputs.clone());
    }
    children.start(plan);
}

/// Sends a signal to the child process.
pub(super) fn forward_signal(children: &ChildProcesses, signal: Signal) {
    for child in children.running.values() {
        let _ = child.handle.signals.try_send(signal);
    }
}

/// Waits for the exit code of a child process that ended for good, or for the failure of its task.
pub(super) async fn wait_for_end(children: &mut ChildProcesses) -> Result<u8, TaskError> {
    let Group { running, tasks, .. } = children;
    let exit_code = async {
        if let Some(child) = running.values_mut().next()
            && let Some(code) = child.handle.exit_code.recv().await
        {
            return code;
        }
        std::future::pending().await
    };
    tokio::select! {
        code = exit_code => Ok(code),
        failure = tasks.wait_for_failure() => Err(failure),
    }
}

/// Stops the child process, before the listeners that it may use. Returns its exit code, if it ran.
pub(super) async fn stop(children: &mut ChildProcesses) -> Option<u8> {
    let (_, mut child) = children.running.pop_first()?;
    child.claim.stop.cancel();
    child.claim.ended.cancelled().await;
    child.handle.exit_code.try_recv().ok()
}
