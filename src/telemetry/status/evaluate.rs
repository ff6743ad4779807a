//! Evaluates a status: whether each session and component works, is about to fail, or is down. Pure: the time is passed in.

use serde::Serialize;

use super::document::{ActivityEntry, ActivityKind, ComponentEntry, SessionEntry, StatusDocument, Timestamp};

/// State of a session or component. The order is that of severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusState {
    /// It works.
    Ok,
    /// It works, and fails at a known or unknown time unless something changes.
    AtRisk,
    /// It does not work.
    Down,
}

impl StatusState {
    /// Returns the state for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::AtRisk => "AT RISK",
            Self::Down => "DOWN",
        }
    }
}

/// Evaluation of a whole process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StatusReport {
    /// The worst state. A component that is down counts as at risk if the process is ready without it.
    pub state: StatusState,
    /// Evaluation of each session and component.
    #[serde(rename = "report")]
    pub items: Vec<ReportItem>,
}

/// Evaluation of one session or component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportItem {
    /// Name of the component, such as `session/web`.
    pub component: String,
    /// Its state.
    pub state: StatusState,
    /// The process is ready only if it is.
    pub(crate) required: bool,
    /// Reason of a state other than OK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Code of the error that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Time for which it has been down, or for which its warning has lasted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) for_seconds: Option<u64>,
    /// Time until the session's token ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_in_seconds: Option<u64>,
    /// Call in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) now: Option<RunningCall>,
    /// Next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<ReportedStep>,
}

/// A call in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct RunningCall {
    pub activity: ActivityKind,
    pub for_seconds: u64,
    /// Time from its start to its time limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gives_up_after_seconds: Option<u64>,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ReportedStep {
    #[serde(rename = "step")]
    pub kind: StepKind,
    pub in_seconds: u64,
}

/// Kind of a next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Renew the token.
    Renew,
    /// Replace the token by a login, or log in for the first time.
    Login,
    /// Try again after a failure.
    Retry,
}

/// Evaluates a status at a time by the clock of its process.
pub fn evaluate(status: &StatusDocument, now: Timestamp) -> StatusReport {
    let mut items = Vec::new();
    for (name, session) in &status.sessions {
        let component = format!("session/{name}");
        items.push(evaluate_session(component.as_str(), session, status.components.get(&component), now));
    }
    let is_session = |name: &str| name.strip_prefix("session/").is_some_and(|name| status.sessions.contains_key(name));
    let other_components = status.components.iter().filter(|(name, _)| !is_session(name));
    items.extend(other_components.map(|(name, component)| evaluate_component(name, component, now)));
    items.sort_by_key(|item| kind_order(&item.component));
    if let Some(error) = &status.reload_error {
        let reason = format!("the last reload failed; the previous configuration stays in use: {error}");
        items.push(ReportItem {
            reason: Some(reason),
            state: StatusState::AtRisk,
            ..ReportItem::new("configuration", false)
        });
    }
    let effective = |item: &ReportItem| if item.required { item.state } else { item.state.min(StatusState::AtRisk) };
    StatusReport { state: items.iter().map(effective).max().unwrap_or(StatusState::Ok), items }
}

impl ReportItem {
    /// Returns the name of the session that this is about.
    pub fn session(&self) -> Option<&str> {
        self.component.strip_prefix("session/")
    }

    /// Returns the name of the certificate that this is about.
    pub fn certificate(&self) -> Option<&str> {
        self.component.strip_prefix("certificate/")
    }

    fn new(component: &str, required: bool) -> Self {
        Self {
            component: component.to_owned(),
            state: StatusState::Ok,
            required,
            reason: None,
            code: None,
            for_seconds: None,
            ends_in_seconds: None,
            now: None,
            next: None,
        }
    }
}

/// Order in which kinds of components are shown: along the path of a token.
fn kind_order(component: &str) -> usize {
    let kind = component.split('/').next().unwrap_or_default();
    KINDS.iter().position(|candidate| *candidate == kind).unwrap_or(KINDS.len())
}

const KINDS: [&str; 9] =
    ["session", "derived_token", "sink", "template", "certificate", "process", "listener", "credential", "gateway"];

fn evaluate_session(
    name: &str,
    session: &SessionEntry,
    component: Option<&ComponentEntry>,
    now: Timestamp,
) -> ReportItem {
    let (state, reason, code) = session_state(session, component, now);
    let down_since = component.filter(|component| !component.ready).and_then(|component| component.since);
    ReportItem {
        state,
        reason,
        code,
        for_seconds: down_since.filter(|_| state == StatusState::Down).map(|since| since.until(now)),
        ends_in_seconds: session.expires.filter(|_| session.serving).map(|ends| now.until(ends)),
        now: session.activity.as_ref().map(|activity| running(activity, now)),
        next: next_step(session, now),
        ..ReportItem::new(name, component.is_none_or(|component| component.required))
    }
}

/// Returns state, reason and code of a session.
fn session_state(
    session: &SessionEntry,
    component: Option<&ComponentEntry>,
    now: Timestamp,
) -> (StatusState, Option<String>, Option<String>) {
    let error = || (session.last_error.clone(), session.last_error_code.clone());
    let is_refused = component.is_some_and(|component| !component.ready);
    let has_ended = session.expires.is_some_and(|ends| ends <= now);
    if !session.serving || is_refused || has_ended {
        // A replacing session serves the previous token until its own login.
        let inherits = !session.serving && component.is_some_and(|component| component.ready);
        let state = if inherits { StatusState::AtRisk } else { StatusState::Down };
        let reason = component.and_then(|component| component.reason.clone());
        let code = component.and_then(|component| component.code.clone());
        let fallback = if has_ended { "the token has expired" } else { "there is no token yet" };
        let (last_error, last_code) = error();
        let reason = reason.or(last_error).unwrap_or_else(|| fallback.to_owned());
        return (state, Some(reason), code.or(last_code));
    }
    let (last_error, code) = error();
    if session.failures > 0 || last_error.is_some() {
        return (StatusState::AtRisk, Some(last_error.unwrap_or_else(|| "the last attempt failed".to_owned())), code);
    }
    let Some(ends) = session.expires else { return (StatusState::Ok, None, None) };
    let lease = session.obtained.map(|obtained| obtained.until(ends));
    if lease.is_some_and(|lease| now.until(ends).saturating_mul(10) < lease) {
        let reason = "90 % of the lease has passed, and the token is neither renewed nor replaced";
        return (StatusState::AtRisk, Some(reason.to_owned()), None);
    }
    let is_late = session.next_step_at.is_none_or(|next| next >= ends);
    if is_late && session.activity.is_none() {
        return (StatusState::AtRisk, Some("no renewal or login is due before the token ends".to_owned()), None);
    }
    (StatusState::Ok, None, None)
}

fn running(activity: &ActivityEntry, now: Timestamp) -> RunningCall {
    let gives_up = activity.since.zip(activity.deadline);
    RunningCall {
        activity: activity.kind,
        for_seconds: activity.since.map(|since| since.until(now)).unwrap_or_default(),
        gives_up_after_seconds: gives_up.map(|(since, deadline)| since.until(deadline)),
    }
}

fn next_step(session: &SessionEntry, now: Timestamp) -> Option<ReportedStep> {
    let is_failing = session.failures > 0;
    let kind = match session.next_step.as_str() {
        "renew" | "login" if is_failing => StepKind::Retry,
        "renew" => StepKind::Renew,
        "login" => StepKind::Login,
        _ => return None,
    };
    // A look-up delays nothing; a login or a renewal is the step itself.
    if session.activity.as_ref().is_some_and(|activity| activity.kind != ActivityKind::Lookup) {
        return None;
    }
    Some(ReportedStep { kind, in_seconds: now.until(session.next_step_at?) })
}

fn evaluate_component(name: &str, component: &ComponentEntry, now: Timestamp) -> ReportItem {
    let item = ReportItem::new(name, component.required);
    let lasted = |since: Option<Timestamp>| since.map(|since| since.until(now));
    if !component.ready {
        return ReportItem {
            state: if component.keeps_previous { StatusState::AtRisk } else { StatusState::Down },
            reason: Some(component.reason.clone().unwrap_or_else(|| "not ready".to_owned())),
            code: component.code.clone(),
            for_seconds: lasted(component.since),
            next: component.next_try.map(|at| ReportedStep { kind: StepKind::Retry, in_seconds: now.until(at) }),
            ..item
        };
    }
    match &component.warning {
        Some(warning) => ReportItem {
            state: StatusState::AtRisk,
            reason: Some(warning.reason.clone()),
            code: warning.code.clone(),
            for_seconds: lasted(warning.since),
            ..item
        },
        None => item,
    }
}

#[cfg(test)]
mod tests;
