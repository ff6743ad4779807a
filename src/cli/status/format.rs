//! Formats a status and its judgement as lines. Pure.

use super::document::{Caller, Callers, Platform, Session, StatusDocument, Timestamp};
use super::judge::{Item, Report, Running, State, Step};
use crate::cli::output::harmless;
use crate::count_format::format_count;

/// A line, with the state that it begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) state: Option<State>,
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
        let word = format!("{:width$}", state.text(), width = STATE_WIDTH);
        if !in_colour {
            return format!("{word}{}", self.text);
        }
        let colour = match state {
            State::Ok => "\x1b[32m",
            State::AtRisk => "\x1b[33m",
            State::Down => "\x1b[1;31m",
        };
        format!("{colour}{word}\x1b[0m{}", self.text)
    }
}

/// Width of the column of states.
pub(super) const STATE_WIDTH: usize = 9;

/// Formats a status and its judgement at a time by the clock of its process.
pub(super) fn format_status(status: &StatusDocument, report: &Report, now: Timestamp) -> Vec<Line> {
    let mut lines = vec![Line::plain(format_title(status, report, now))];
    let width = report.items.iter().map(|item| item.component.chars().count()).max().unwrap_or_default() + 2;
    for item in &report.items {
        let details = format_item(status, item, now);
        for (index, text) in details.into_iter().enumerate() {
            let text = harmless(&text).replace(['\n', '\t'], " ");
            lines.push(if index == 0 {
                Line { state: Some(item.state), text: format!("{:width$}{text}", item.component).trim_end().to_owned() }
            } else {
                Line::plain(format!("{:indent$}{text}", "", indent = STATE_WIDTH + width))
            });
        }
    }
    lines.extend(status.platform.as_ref().map(|platform| Line::plain(format_platform(platform))));
    lines.extend(status.callers.iter().flat_map(format_callers).map(Line::plain));
    lines
}

fn format_title(status: &StatusDocument, report: &Report, now: Timestamp) -> String {
    let ready = if status.ready { "ready" } else { "not ready" };
    let up = status.started_at.map(|started| format!("; up {}", format_span(started.until(now)))).unwrap_or_default();
    let pid = status.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
    format!("keyward {}: {}, {ready}{up}{pid}", status.version, report.state.text())
}

/// Formats one session or component: its state first, then what happens, then what it is.
fn format_item(status: &StatusDocument, item: &Item, now: Timestamp) -> Vec<String> {
    let session = item.component.strip_prefix("session/").and_then(|name| status.sessions.get(name));
    let component = status.components.get(&item.component);
    let mut first = Vec::new();
    if let Some(session) = session {
        first.extend(session.serving.then(|| match item.ends_in_seconds {
            Some(left) => format!("ends in {}", format_span(left)),
            None => "never ends".to_owned(),
        }));
        first.extend((session.failures > 1).then(|| format!("{} in a row", format_count(session.failures, "failure"))));
    }
    first.extend(item.reason.as_ref().map(|reason| tag(item.code.as_deref(), reason)));
    let is_quiet = item.state == State::Ok;
    if let Some(component) = component.filter(|_| session.is_none()) {
        first.extend(component.target.clone().filter(|_| is_quiet));
        let updated = component.updated.filter(|_| is_quiet).map(|at| at.until(now));
        first.extend(updated.map(|ago| format!("{} {} ago", update_verb(&item.component), format_span(ago))));
    }
    let mut lines = vec![first.join(", ")];
    let lasted = item.for_seconds.map(|seconds| format!("for {}", format_span(seconds)));
    let happening: Vec<String> = lasted.into_iter().chain(format_happening(item)).collect();
    lines.extend((!happening.is_empty()).then(|| happening.join("; ")));
    lines.extend(session.map(|session| format_session(session, now)));
    if session.is_none() && !is_quiet {
        lines.extend(component.and_then(|component| component.target.clone()));
    }
    lines
}

/// Formats what happens now and next.
fn format_happening(item: &Item) -> Vec<String> {
    let now = item.now.as_ref().map(format_running);
    let next = item.next.map(|next| {
        let span = format_span(next.in_seconds);
        match next.step {
            Step::Renew => format!("renews in {span}"),
            Step::Login => format!("next login in {span}"),
            Step::Retry => format!("next try in {span}"),
        }
    });
    now.into_iter().chain(next).collect()
}

fn format_running(running: &Running) -> String {
    let doing = match running.activity.as_str() {
        "proof" => "getting an identity token",
        "login" => "logging in",
        "renewal" => "renewing",
        "lookup" => "looking the token up",
        other => other,
    };
    let gives_up = running.gives_up_after_seconds.map(|after| format!(", gives up at {}", format_span(after)));
    format!("{doing} for {}{}", format_span(running.for_seconds), gives_up.unwrap_or_default())
}

/// Formats the identity, server, role and policies of a session.
fn format_session(session: &Session, now: Timestamp) -> String {
    let policies = match (session.policies.as_slice(), session.serving) {
        (_, false) => String::new(),
        ([], true) => ", no policies".to_owned(),
        (all, true) => format!(", policies {}", all.join(", ")),
    };
    let checked = session.last_checked.map(|at| format!(", checked {} ago", format_span(at.until(now))));
    let role = if session.role.is_empty() { String::new() } else { format!(", role {}", session.role) };
    let Session { identity, server, .. } = session;
    format!("{identity} at {server}{role}{policies}{}", checked.unwrap_or_default())
}

fn format_platform(platform: &Platform) -> String {
    let product = platform.product.as_deref().unwrap_or("of an unknown edition");
    let release = platform.release.as_ref().map(|release| format!(", release {release}")).unwrap_or_default();
    let api = platform.api_version.as_ref().map(|version| format!(", API {version}")).unwrap_or_default();
    harmless(&format!("platform {}: {product}{release}{api}", platform.upstream))
}

/// Formats the requests of each caller, and those of processes that are none.
fn format_callers(callers: &Callers) -> Vec<String> {
    let one = |its: &Caller| {
        let Caller { name, connections, admitted, refused } = its;
        harmless(&format!("caller {name}: {connections} connections, {admitted} requests admitted, {refused} refused"))
    };
    let unmatched = (callers.unmatched > 0).then(|| format!("no caller: {} requests refused", callers.unmatched));
    callers.callers.iter().map(one).chain(unmatched).collect()
}

/// Returns the verb for the last success of a component.
fn update_verb(component: &str) -> &'static str {
    match component.split('/').next() {
        Some("sink" | "template") => "written",
        Some("process") => "started",
        Some("derived_token") => "made",
        _ => "loaded",
    }
}

fn tag(code: Option<&str>, reason: &str) -> String {
    code.map_or_else(|| reason.to_owned(), |code| format!("{reason} [{code}]"))
}

/// Formats a time span in at most two units, such as `35 s`, `14 min`, `3 h 12 min` or `4 d 3 h`.
pub(super) fn format_span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |more: u64, unit: &str, less: u64, smaller: &str| match less {
        0 => format!("{more} {unit}"),
        less => format!("{more} {unit} {less} {smaller}"),
    };
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{minutes} min"),
        7_200..172_800 => two(hours, "h", minutes % 60, "min"),
        _ => two(days, "d", hours % 24, "h"),
    }
}

/// Formats that no agent answers, for a watch that goes on.
pub(super) fn format_absence(error: &str, gone_for: u64) -> Vec<Line> {
    let text = format!("{} (for {})", harmless(error), format_span(gone_for));
    vec![Line { state: Some(State::Down), text }]
}

#[cfg(test)]
mod tests;
