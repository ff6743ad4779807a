//! Notifications to the service manager: ready, status, watchdog, stopping (`sd_notify(3)`).

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::ReadyWhen;
use crate::health::Health;
use crate::os;

/// Returns true once the components that `when` names have been ready.
pub(crate) fn is_reached(when: ReadyWhen, health: &Health) -> bool {
    health.components().iter().all(|(name, component)| {
        let counts = match when {
            ReadyWhen::Listener => name.starts_with("listener/"),
            ReadyWhen::Token => name.starts_with("listener/") || name.starts_with("session/"),
            ReadyWhen::Outputs => true,
        };
        !counts || !component.required || component.started
    })
}

/// State last sent to the service manager. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceNotifier(Arc<watch::Sender<Phase>>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Starting,
    Ready,
    Stopping,
}

impl ServiceNotifier {
    /// Sends `RELOADING=1` with its timestamp. Sends nothing before the first `READY=1`: systemd would count the one at
    /// the end of the reload as that.
    pub(crate) fn reloading(&self) {
        if self.phase() == Phase::Ready
            && let Ok(now) = NotifyState::monotonic_usec_now()
        {
            send(&[NotifyState::Reloading, now]);
        }
    }

    /// Sends that the reload is over.
    pub(crate) fn notify_reloaded(&self) {
        if self.phase() == Phase::Ready {
            send(&[NotifyState::Ready]);
        }
    }

    /// Sends that the process is stopping, and that this takes `limit` at most: the service manager allows it that long, also
    /// where the unit's `TimeoutStopSec=` is shorter. From then on only watchdog messages follow.
    pub(crate) fn stopping(&self, limit: Duration) {
        self.0.send_replace(Phase::Stopping);
        let limit = u32::try_from(limit.as_micros()).unwrap_or(u32::MAX);
        send(&[NotifyState::Stopping, NotifyState::Status("stopping"), NotifyState::ExtendTimeoutUsec(limit)]);
    }

    fn phase(&self) -> Phase {
        *self.0.borrow()
    }
}

/// Reports to the service manager until `stop`: READY once `when` holds, and watchdog messages before it, so that
/// an outage at boot is waited out and not restarted.
pub(crate) async fn notify(
    notifier: ServiceNotifier,
    health: Health,
    when: ReadyWhen,
    clock: Clock,
    stop: CancellationToken,
) {
    let (mut changes, mut phases) = (health.changes(), notifier.0.subscribe());
    let watchdog = sd_notify::watchdog_enabled();
    let mut release_at = None;
    loop {
        changes.mark_unchanged();
        phases.mark_unchanged();
        if notifier.phase() == Phase::Starting && is_reached(when, &health) {
            notifier.0.send_replace(Phase::Ready);
            phases.mark_unchanged();
            send(&[NotifyState::Ready]);
            tracing::info!(event = "agent.ready", "ready");
            release_at = Some(clock.now() + START_ENDS_AFTER);
        }
        if release_at.take_if(|at| clock.now().until(*at).is_zero()).is_some()
            && let Err(error) = os::release_program_pages()
        {
            tracing::debug!(error = error.to_string(), "the memory of the start's code stays resident");
        }
        let phase = notifier.phase();
        if phase != Phase::Stopping {
            send(&[NotifyState::Status(&summary(&health))]);
        }
        if watchdog.is_some() {
            send(&[NotifyState::Watchdog]);
        }
        let mut wake = watchdog.map(|watchdog| watchdog / 2);
        if phase == Phase::Starting {
            send(&[NotifyState::ExtendTimeoutUsec(EXTEND_BY_MICROSECONDS)]);
            wake = Some(wake.map_or(EXTEND_EVERY, |wake| wake.min(EXTEND_EVERY)));
        }
        tokio::select! {
            _ = changes.changed(), if phase != Phase::Stopping => {}
            _ = phases.changed() => {}
            () = clock.sleep_until_some(wake.map(|wake| clock.now() + wake)) => {}
            () = clock.sleep_until_some(release_at) => {}
            () = stop.cancelled() => break,
        }
    }
}

/// Time after "ready" until the requests that waited for it are served, so that only the start used their code.
const START_ENDS_AFTER: Duration = Duration::from_secs(4);
const EXTEND_EVERY: Duration = Duration::from_secs(15);
const EXTEND_BY_MICROSECONDS: u32 = 60_000_000;

fn summary(health: &Health) -> String {
    let components = health.components();
    let waiting: Vec<_> = components
        .iter()
        .filter(|(_, component)| component.required && !component.ready)
        .map(|(name, component)| format!("{name}: {}", component.describe()))
        .collect();
    // A line break would begin another assignment.
    let waiting = waiting.join("; ").replace(char::is_control, " ");
    if waiting.is_empty() { "ready".to_owned() } else { format!("waiting for {waiting}") }
}

fn send(state: &[NotifyState<'_>]) {
    // Without a service manager there is nothing to notify.
    let _ = sd_notify::notify(state);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_means_what_was_asked_for() {
        let health = Health::default();
        let listener = health.register("listener/local", true, "not bound yet");
        let session = health.register("session/web", true, "no token yet");
        let sink = health.register("sink/token", true, "not written yet");
        let extra = health.register("sink/extra", false, "not written yet");
        let check = |expected: [bool; 3]| {
            let found =
                [ReadyWhen::Listener, ReadyWhen::Token, ReadyWhen::Outputs].map(|when| is_reached(when, &health));
            assert_eq!(found, expected);
        };
        check([false, false, false]);
        listener.set_ready();
        check([true, false, false]);
        session.set_ready();
        check([true, true, false]);
        assert_eq!(summary(&health), "waiting for sink/token: not written yet");
        sink.set_not_ready("it says\nREADY=1");
        assert_eq!(summary(&health), "waiting for sink/token: it says READY=1");
        sink.set_ready();
        check([true, true, true]);
        drop(extra);
    }
}
