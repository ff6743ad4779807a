//! `keyward run --exit-after-auth`: the outputs that are written once, and their completion.

use std::time::Duration;

use keyward_agent::session_status::SessionStatusRegistry;
use keyward_app::App;
use keyward_config::Config;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::{Component, Health};
use keyward_telemetry::time_format::format_duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Keeps only the sessions, sinks and templates of a configuration.
///
/// # Errors
/// A session revokes its token at the end, so that nothing that is written would be of use.
pub(super) fn retain_outputs(mut config: Config) -> Result<Config, String> {
    if let Some(session) = config.sessions.iter().find(|session| session.lifecycle.revoke_on_exit) {
        return Err(format!(
            "--exit-after-auth would revoke the token that it writes: session {} has revoke_on_exit = true; remove one of the two",
            session.name
        ));
    }
    config.listeners.clear();
    config.env_templates.clear();
    config.process = None;
    #[cfg(feature = "acl")]
    {
        config.acl = None;
    }
    #[cfg(feature = "gateway")]
    {
        config.gateway = None;
    }
    Ok(config)
}

/// Reason why not everything was written.
pub(super) enum OnceError {
    /// A login has failed.
    Login(String),
    /// The timeout is over.
    TimedOut(String),
}

const FIRST_REPORT: Duration = Duration::from_secs(5);

/// Watches for the moment when everything is written.
pub(super) struct ReadinessWatch {
    health: Health,
    session_statuses: SessionStatusRegistry,
    changes: watch::Receiver<u64>,
    timeout: Option<Duration>,
    start: Instant,
    /// Time of the next line about what is missing, and the wait after it.
    next_report: (Instant, Duration),
}

impl ReadinessWatch {
    /// Starts the `timeout`.
    pub(super) fn new(app: &App, timeout: Option<Duration>) -> Self {
        let health = app.health().clone();
        let session_statuses = app.session_statuses().clone();
        let changes = health.changes();
        let start = Instant::now();
        let next_report = (start + FIRST_REPORT, FIRST_REPORT);
        Self { health, session_statuses, changes, timeout, start, next_report }
    }

    /// Lists the components that are not ready yet, in one line.
    pub(super) fn missing(&self) -> String {
        let components = self.health.components();
        let missing = components.iter().filter(|(_, component)| component.required && !component.started);
        let reason = |(name, component): (&String, &Component)| format!("{name}: {}", component.describe());
        missing.map(reason).collect::<Vec<_>>().join("; ")
    }

    /// Returns once every required component has been ready, a login has failed, or the timeout is over; with a timeout failed logins
    /// are retried. Logs at growing intervals which components are missing.
    pub(super) async fn outcome(&mut self) -> Result<(), OnceError> {
        loop {
            if self.health.is_started() {
                return Ok(());
            }
            // A failure of the process before is counted too, and has no error here.
            let mut sessions = self.session_statuses.sessions().into_iter().filter(|(_, session)| !session.serving);
            let failed =
                sessions.find_map(|(name, session)| Some((name, session.last_error?, session.last_error_code)));
            if let Some((name, error, code)) = failed.filter(|_| self.timeout.is_none()) {
                return Err(OnceError::Login(ErrorCode::tag(code, &format!("session {name}: {error}"))));
            }
            let end = self.timeout.and_then(|timeout| self.start.checked_add(timeout));
            let is_over = async {
                match end {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Ok(()) = self.changes.changed() => {}
                () = is_over => {
                    let after = format_duration(self.timeout.unwrap_or_default());
                    return Err(OnceError::TimedOut(format!("not everything was written within {after}: {}", self.missing())));
                }
                () = tokio::time::sleep_until(self.next_report.0) => {
                    let waited_seconds = self.start.elapsed().as_secs();
                    tracing::info!(event = "run.waiting", missing = self.missing(), waited_seconds, "waiting for outputs");
                    let pause = self.next_report.1 * 2;
                    self.next_report = (Instant::now() + pause, pause);
                }
            }
        }
    }
}
