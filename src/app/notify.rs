//! What the service manager is told: ready, status, watchdog, stopping (`sd_notify(3)`).

use std::time::Duration;

use sd_notify::NotifyState;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::Ready;
use crate::health::Health;

/// Whether what `when` asks for is there.
pub fn holds(when: Ready, health: &Health) -> bool {
    health.components().iter().all(|(name, component)| {
        let counts = match when {
            Ready::Listener => name.starts_with("listener/"),
            Ready::Token => name.starts_with("listener/") || name.starts_with("session/"),
            Ready::Outputs => true,
        };
        !counts || !component.required || component.started
    })
}

/// Tells the service manager how we are, until `stop`: READY once `when` holds, and until then that we live, so that
/// an outage at boot is waited out and not restarted.
pub async fn tell(health: Health, when: Ready, clock: Clock, stop: CancellationToken) {
    let mut changes = health.changes();
    let watchdog = sd_notify::watchdog_enabled();
    let mut ready = false;
    loop {
        changes.mark_unchanged();
        if !ready && holds(when, &health) {
            ready = true;
            send(&[NotifyState::Ready]);
            tracing::info!(event = "agent.ready", "ready");
        }
        send(&[NotifyState::Status(&summary(&health))]);
        if watchdog.is_some() {
            send(&[NotifyState::Watchdog]);
        }
        let wake = match (ready, watchdog) {
            (false, Some(watchdog)) => Some(EXTEND_EVERY.min(watchdog / 2)),
            (false, None) => Some(EXTEND_EVERY),
            (true, watchdog) => watchdog.map(|watchdog| watchdog / 2),
        };
        if !ready {
            send(&[NotifyState::ExtendTimeoutUsec(EXTEND_BY_MICROSECONDS)]);
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = sleep(&clock, wake) => {}
            () = stop.cancelled() => break,
        }
    }
}

/// Tells the service manager that we are stopping.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// Tells the service manager that a reload begins (`RELOADING=1` with the time that it asks for).
pub fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        send(&[NotifyState::Reloading, now]);
    }
}

/// Tells the service manager that the reload is over.
pub fn reloaded() {
    send(&[NotifyState::Ready]);
}

const EXTEND_EVERY: Duration = Duration::from_secs(15);
const EXTEND_BY_MICROSECONDS: u32 = 60_000_000;

async fn sleep(clock: &Clock, span: Option<Duration>) {
    match span {
        Some(span) => clock.sleep(span).await,
        None => std::future::pending().await,
    }
}

fn summary(health: &Health) -> String {
    let components = health.components();
    let waiting: Vec<_> = components
        .iter()
        .filter(|(_, component)| component.required && !component.ready)
        .map(|(name, component)| match &component.reason {
            Some(reason) => format!("{name}: {reason}"),
            None => name.clone(),
        })
        .collect();
    if waiting.is_empty() { "ready".to_owned() } else { format!("waiting for {}", waiting.join("; ")) }
}

fn send(state: &[NotifyState<'_>]) {
    // Without a service manager there is no one to tell.
    let _ = sd_notify::notify(state);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_means_what_was_asked_for() {
        let health = Health::default();
        let listener = health.component("listener/local", true, "not bound yet");
        let session = health.component("session/web", true, "no token yet");
        let sink = health.component("sink/token", true, "not written yet");
        let extra = health.component("sink/extra", false, "not written yet");
        let check = |wanted: [bool; 3]| {
            let found = [Ready::Listener, Ready::Token, Ready::Outputs].map(|when| holds(when, &health));
            assert_eq!(found, wanted);
        };
        check([false, false, false]);
        listener.ready();
        check([true, false, false]);
        session.ready();
        check([true, true, false]);
        assert_eq!(summary(&health), "waiting for sink/token: not written yet");
        sink.ready();
        check([true, true, true]);
        drop(extra);
    }
}
