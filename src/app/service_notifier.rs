//! Notifications to the service manager: ready, status, watchdog, stopping (`sd_notify(3)`).

use std::sync::Arc;
use std::time::Duration;

use keyward_config::ReadyWhen;
use keyward_machine::clock::Clock;
use keyward_machine::os;
use keyward_telemetry::health::Health;
use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Returns true once the components that `when` names have been ready.
pub(crate) fn is_reached(when: ReadyWhen, health: &Health) -> bool {
    health.all(|name, component| {
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
            // With `Type=notify-reload` systemd requires the time beside it (sd_notify(3)).
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
    let mut changes = health.changes();
    let mut phases = notifier.0.subscribe();
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
            release_at = Some(clock.now() + RELEASE_AFTER);
        }
        if release_at.is_some_and(|at| clock.now().until(at).is_zero()) {
            release_at = Some(clock.now() + RELEASE_EVERY);
            if let Err(error) = os::release_program_pages() {
                release_at = None;
                tracing::debug!(error = error.to_string(), "the memory of code that ran once stays resident");
            }
        }
        let phase = notifier.phase();
        if phase != Phase::Stopping {
            send(&[NotifyState::Status(&summary(&health))]);
        }
        if watchdog.is_some() {
            send(&[NotifyState::Watchdog]);
        }
        // Half of the interval, as sd_watchdog_enabled(3) recommends.
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
            () = os::page_release_requested() => {
                let soon = clock.now() + RELEASE_AFTER;
                release_at = release_at.map(|at| if at.boot < soon.boot { at } else { soon });
            }
            () = stop.cancelled() => break,
        }
    }
}

/// Time after "ready", and after a call to a server, until what follows it is done, such as the requests that waited for it. A check of
/// the token maps megabytes of code, and the next one is minutes away.
const RELEASE_AFTER: Duration = Duration::from_secs(4);
/// Time between two releases of the program's pages. A busy process maps its pages again by some hundred page faults.
const RELEASE_EVERY: Duration = Duration::from_mins(1);
// Each message allows four intervals more, so that a late one does not end the start (`EXTEND_TIMEOUT_USEC=`, sd_notify(3)).
const EXTEND_EVERY: Duration = Duration::from_secs(15);
const EXTEND_BY_MICROSECONDS: u32 = 60_000_000;

/// Maximum length of the status, in bytes: systemd ignores messages of more than 4096 bytes (`NOTIFY_BUFFER_MAX`).
const MAX_STATUS_BYTES: usize = 2048;
/// Maximum number of components in it.
const MAX_COMPONENTS: usize = 32;
/// Maximum length of one component's reason in it, in bytes.
const MAX_REASON_BYTES: usize = 160;

/// Describes the components that are not ready, as far as there is room. The status is computed at each change of one of them, of which
/// there may be thousands.
fn summary(health: &Health) -> String {
    let (waiting, mut omitted) = health.waiting(MAX_COMPONENTS);
    let mut text = String::new();
    for (name, component) in waiting {
        let mut reason = component.describe();
        if reason.len() > MAX_REASON_BYTES {
            reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
            reason.push_str("...");
        }
        // A line break would begin another assignment.
        let component = format!("{name}: {reason}").replace(char::is_control, " ");
        if text.len() + component.len() <= MAX_STATUS_BYTES {
            text.push_str(if text.is_empty() { "waiting for " } else { "; " });
            text.push_str(&component);
            omitted -= 1;
        }
    }
    match omitted {
        0 if text.is_empty() => "ready".to_owned(),
        0 => text,
        _ => format!("{text}; and {omitted} more"),
    }
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
