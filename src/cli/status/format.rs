//! Formats a status and its evaluation as lines. Pure.

use std::fmt::Write as _;

use keyward_telemetry::status::{
    CallerEntry, CallersEntry, PlatformEntry, ReportItem, SandboxEntry, SessionEntry, StatusDocument, StatusReport,
    StatusState, Timestamp, product_name, update_verb,
};
use keyward_telemetry::time_format::format_span;
use keyward_telemetry::wording::format_count;

use crate::cli::output::strip_control_chars;

/// A line, with the state that it begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) state: Option<StatusState>,
    /// Text after the state.
    pub(super) text: String,
}

impl Line {
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { state: None, text: text.into() }
    }

    /// Formats the line, with colours or without.
    pub(super) fn paint(&self, in_colour: bool) -> String {
        let Some(state) = self.state else { return self.text.clone() };
        let word = format!("{:width$}", state.as_str(), width = STATE_WIDTH);
        if !in_colour {
            return format!("{word}{}", self.text);
        }
        let colour = match state {
            StatusState::Ok => "\x1b[32m",
            StatusState::AtRisk => "\x1b[33m",
            StatusState::Down => "\x1b[1;31m",
        };
        format!("{colour}{word}\x1b[0m{}", self.text)
    }
}

/// Width of the column of states.
pub(super) const STATE_WIDTH: usize = 9;

/// Formats a status and its evaluation at a time by the clock of its process.
pub(super) fn format_status(status: &StatusDocument, report: &StatusReport, now: Timestamp) -> Vec<Line> {
    let mut lines = vec![Line::plain(format_title(status, report, now))];
    lines.extend(format_items(status, &report.items, now));
    lines.extend(status.platform.as_ref().map(|platform| Line::plain(format_platform(platform))));
    lines.extend(status.callers.iter().flat_map(format_callers).map(Line::plain));
    lines.extend(
        status
            .sandbox
            .as_ref()
            .map(|sandbox| Line::plain(strip_control_chars(&format_sandbox(sandbox)).replace('\n', " "))),
    );
    lines
}

/// Formats sessions and components.
pub(super) fn format_items(status: &StatusDocument, items: &[ReportItem], now: Timestamp) -> Vec<Line> {
    let mut lines = Vec::new();
    let width = items.iter().map(|item| item.component.chars().count()).max().unwrap_or_default() + 2;
    for item in items {
        let details = format_item(status, item, now);
        for (index, text) in details.into_iter().enumerate() {
            let text = strip_control_chars(&text).replace(['\n', '\t'], " ");
            lines.push(if index == 0 {
                Line { state: Some(item.state), text: format!("{:width$}{text}", item.component).trim_end().to_owned() }
            } else {
                Line::plain(format!("{:indent$}{text}", "", indent = STATE_WIDTH + width))
            });
        }
    }
    lines
}

/// Formats the parts of the sandbox, and its gaps.
fn format_sandbox(sandbox: &SandboxEntry) -> String {
    let parts = sandbox.parts.join(", ");
    let mut text = match (sandbox.mode.as_str(), sandbox.missing.as_slice()) {
        ("off", _) => "sandbox: off".to_owned(),
        (mode, []) => format!("sandbox: {mode}: {parts} (Landlock ABI {})", sandbox.landlock_abi),
        (mode, missing) => format!("sandbox: {mode}, incomplete: {parts}; {}", missing.join("; ")),
    };
    if !sandbox.denied_replacements.is_empty() {
        let _ = write!(text, "; replacements are not read: {}", sandbox.denied_replacements.join(", "));
    }
    text
}

fn format_title(status: &StatusDocument, report: &StatusReport, now: Timestamp) -> String {
    let ready = if status.ready { "ready" } else { "not ready" };
    let up = status.started_at.map(|started| format!("; up {}", format_span(started.until(now)))).unwrap_or_default();
    let pid = status.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
    format!("keyward {}: {}, {ready}{up}{pid}", status.version, report.state.as_str())
}

/// Formats one session or component: its state first, then what happens, then what it is.
fn format_item(status: &StatusDocument, item: &ReportItem, now: Timestamp) -> Vec<String> {
    let session = item.session().and_then(|name| status.sessions.get(name));
    let component = status.components.get(&item.component);
    let mut first = Vec::new();
    if let Some(session) = session {
        first.extend(session.serving.then(|| match item.ends_in_seconds {
            Some(seconds) => format!("ends in {}", format_span(seconds)),
            None => "never ends".to_owned(),
        }));
        first.extend((session.failures > 1).then(|| format!("{} in a row", format_count(session.failures, "failure"))));
    }
    first.extend(item.describe_reason());
    let is_quiet = item.state == StatusState::Ok;
    if let Some(component) = component.filter(|_| session.is_none()) {
        first.extend(component.target.clone().filter(|_| is_quiet));
        let updated = component.updated.filter(|_| is_quiet).map(|at| at.until(now));
        first.extend(updated.map(|ago| format!("{} {} ago", update_verb(&item.component), format_span(ago))));
    }
    let mut lines = vec![first.join(", ")];
    lines.extend(component.and_then(|component| component.note.clone()));
    lines.extend(Some(item.describe_progress()).filter(|progress| !progress.is_empty()));
    lines.extend(session.map(|session| format_session(session, now)));
    if session.is_none() && !is_quiet {
        lines.extend(component.and_then(|component| component.target.clone()));
    }
    lines
}

/// Formats the identity, server, role and policies of a session.
fn format_session(session: &SessionEntry, now: Timestamp) -> String {
    let policies = match (session.policies.as_slice(), session.serving) {
        (_, false) => String::new(),
        ([], true) => ", no policies".to_owned(),
        (all, true) => format!(", policies {}", all.join(", ")),
    };
    let checked = session.last_checked.map(|at| format!(", checked {} ago", format_span(at.until(now))));
    let role = if session.role.is_empty() { String::new() } else { format!(", role {}", session.role) };
    let SessionEntry { identity, server, .. } = session;
    format!("logs in to {server} by {identity}{role}{policies}{}", checked.unwrap_or_default())
}

fn format_platform(platform: &PlatformEntry) -> String {
    let product = platform.product.as_deref().map_or("of an unknown edition", product_name);
    let release = platform.release.as_ref().map(|release| format!(", release {release}")).unwrap_or_default();
    let api = platform.api_version.as_ref().map(|version| format!(", API {version}")).unwrap_or_default();
    strip_control_chars(&format!("platform {}: {product}{release}{api}", platform.upstream))
}

/// Formats the requests of each caller, and those of processes that are none.
fn format_callers(callers: &CallersEntry) -> Vec<String> {
    let format_caller = |caller: &CallerEntry| {
        let CallerEntry { name, connections, admitted, refused, tokens, .. } = caller;
        let tokens = tokens.map(|tokens| format!(", {tokens} tokens")).unwrap_or_default();
        let requests = format!("{admitted} requests admitted, {refused} refused");
        strip_control_chars(&format!("caller {name}: {connections} connections, {requests}{tokens}"))
    };
    let unmatched = (callers.unmatched > 0).then(|| format!("no caller: {} requests refused", callers.unmatched));
    callers.callers.iter().map(format_caller).chain(unmatched).collect()
}

/// Formats the line for an agent that does not respond, in `--watch`.
pub(super) fn format_absence(error: &str, gone_for: u64) -> Vec<Line> {
    let text = format!("{} (for {})", strip_control_chars(error), format_span(gone_for));
    vec![Line { state: Some(StatusState::Down), text }]
}

#[cfg(test)]
mod tests;
