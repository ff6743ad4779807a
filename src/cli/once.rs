//! `keyward run --exit-after-auth`: the outputs that are written once, and their completion.

use keyward_agent::session_status::SessionStatusRegistry;
use keyward_app::App;
use keyward_config::Config;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::{Component, Health};
use tokio::sync::watch;

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

/// Watches for the moment when everything is written.
pub(super) struct ReadinessWatch {
    health: Health,
    session_statuses: SessionStatusRegistry,
    changes: watch::Receiver<u64>,
}

impl ReadinessWatch {
    pub(super) fn new(app: &App) -> Self {
        let health = app.health().clone();
        let session_statuses = app.session_statuses().clone();
        let changes = health.changes();
        Self { health, session_statuses, changes }
    }

    /// Lists the components that are not ready yet, in one line.
    pub(super) fn missing(&self) -> String {
        let components = self.health.components();
        let missing = components.iter().filter(|(_, component)| component.required && !component.started);
        let reason = |(name, component): (&String, &Component)| format!("{name}: {}", component.describe());
        missing.map(reason).collect::<Vec<_>>().join("; ")
    }

    /// Returns once every required component has been ready.
    pub(super) async fn outcome(&mut self) -> Result<(), String> {
        loop {
            if self.health.is_started() {
                return Ok(());
            }
            // A failure of the process before is counted too, and has no error here.
            let mut sessions = self.session_statuses.sessions().into_iter().filter(|(_, session)| !session.serving);
            let failed =
                sessions.find_map(|(name, session)| Some((name, session.last_error?, session.last_error_code)));
            if let Some((name, error, code)) = failed {
                return Err(ErrorCode::tag(code, &format!("session {name}: {error}")));
            }
            if self.changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
