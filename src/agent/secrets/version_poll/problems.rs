//! Refusals and outages of the poll: logged once, with the remedy, and shown in the status.

use keyward_telemetry::error_code::ErrorCode;

use super::{Polled, VersionPoll};
use crate::secrets::SecretRequest;
use crate::server_client::{CallError, TokenVerdict};

/// Reason why a version is not known.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) kind: ProblemKind,
    code: Option<ErrorCode>,
    error: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProblemKind {
    /// By a policy.
    Denied,
    /// By another refusal of this path.
    Refused,
    /// The server cannot be reached or is in trouble.
    Outage,
}

impl VersionPoll {
    /// Records that a version cannot be read; returns the poll's outcome. `logs` is true for one spelling of a path.
    pub(super) fn record_error(
        &mut self,
        request: &SecretRequest,
        path: &str,
        error: &CallError,
        logs: bool,
    ) -> &'static str {
        let kind = match error.verdict() {
            TokenVerdict::Denied => ProblemKind::Denied,
            TokenVerdict::Refused => ProblemKind::Refused,
            TokenVerdict::Unavailable => ProblemKind::Outage,
            // The session looks its token up, and logs in again.
            TokenVerdict::Dead | TokenVerdict::Suspect => return "failed",
        };
        let polled = self.secrets.entry(request.clone()).or_default();
        let earlier = polled.problem.replace(Problem { kind, code: error.code(), error: error.to_string() });
        let is_new = earlier.is_none_or(|earlier| earlier.kind != kind);
        if logs && is_new && kind != ProblemKind::Outage {
            self.log_refusal(path, error, kind);
        }
        if kind == ProblemKind::Denied {
            self.pause(request);
            return "denied";
        }
        "failed"
    }

    fn log_refusal(&self, path: &str, error: &CallError, kind: ProblemKind) {
        let code = error.code().map(ErrorCode::as_str);
        let error = error.to_string();
        let consequence = self.consequence();
        if kind == ProblemKind::Denied {
            tracing::warn!(
                event = "agent.secret.version_denied",
                path,
                code,
                error,
                "may not read the version of a secret, so that {consequence}; add to the policy: path \"{path}\" {{ capabilities = [\"read\"] }}"
            );
        } else {
            tracing::warn!(
                event = "agent.secret.version_failed",
                path,
                code,
                error,
                "the server refuses the version of a secret, so that {consequence}; see whether the secret was deleted"
            );
        }
    }

    const fn consequence(&self) -> &'static str {
        if self.interval.is_some() { CHANGES_WAIT } else { "it is read whenever the connection of events begins" }
    }

    /// Logs the beginning and the end of a time in which versions cannot be asked for.
    pub(super) fn update_outage(&mut self, path: &str) {
        let now = self.clock.now();
        let is_outage =
            |secret: &&Polled| matches!(&secret.problem, Some(problem) if problem.kind == ProblemKind::Outage);
        let Some(problem) = self.secrets.values().find(is_outage).and_then(|secret| secret.problem.as_ref()) else {
            if let Some(lasted_seconds) = self.outage.record_success(now) {
                tracing::info!(
                    event = "agent.secret.version_poll.recovered",
                    lasted_seconds,
                    "the versions of secrets can be read again"
                );
            }
            return;
        };
        if self.outage.record_failure(now) {
            tracing::warn!(
                event = "agent.secret.version_poll.failed",
                path,
                code = problem.code.map(ErrorCode::as_str),
                error = problem.error,
                "cannot ask for the versions of secrets, so that {CHANGES_WAIT}; see whether the server is reachable"
            );
        }
    }

    /// Shows which secrets are not followed.
    pub(super) fn report(&self) {
        let problems =
            self.secrets.iter().filter_map(|(request, secret)| Some((&request.path, secret.problem.as_ref()?)));
        let Some((first, problem)) = problems.clone().min_by_key(|(_, problem)| problem.kind != ProblemKind::Denied)
        else {
            return self.health.clear_warning();
        };
        let same = problems.filter(|(_, other)| other.kind == problem.kind).count();
        let more = if same == 1 { String::new() } else { format!(" and {} more", same - 1) };
        let consequence = self.consequence();
        let text = match problem.kind {
            ProblemKind::Denied => format!("the policy denies the metadata of {first}{more}: {consequence}"),
            _ => format!("cannot read the version of {first}{more}: {consequence}: {}", problem.error),
        };
        self.health.warn(problem.code, text);
    }
}

/// Result of a version that is not known.
const CHANGES_WAIT: &str = "changes wait for the interval";
