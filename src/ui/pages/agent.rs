//! Page of the agent: problems first, sessions with their time lines, certificates, components, and recent events.

use std::time::{Duration, SystemTime};

use keyward_telemetry::recent_events::RecentEvent;
use keyward_telemetry::status::{
    ReportItem, SessionEntry, StatusDocument, StatusReport, StatusState, StepKind, evaluate, update_verb,
};
use keyward_telemetry::time_format::format_span;
use maud::{Markup, html};

use super::Frame;
use super::certificates::certificates_section;
use super::events::{EventFilter, event_list};
use super::layout::{facts, table};
use super::problems::{state_and_problems, state_badge};
use super::text::rich;
use super::timeline::{Timeline, TimelineMark};
use super::times::{clock, stamp};

/// Path of the parts of the page that a script refreshes.
pub(crate) const LIVE: &str = "/agent/live";

/// Facts that the page shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentView<'a> {
    pub status: &'a StatusDocument,
    /// Events, the latest first.
    pub events: &'a [RecentEvent],
    pub filter: EventFilter<'a>,
    pub now: SystemTime,
}

/// Parts of the page that change by themselves, each with the id of the element that holds it. The elements around them stay:
/// an open list remains open, and a form keeps its input.
struct LiveParts {
    state: Markup,
    sessions: Markup,
    certificates: Markup,
    working_count: Markup,
    working: Markup,
    events: Markup,
}

const STATE: &str = "state";
const SESSIONS: &str = "session-cards";
const CERTIFICATES: &str = "certificate-cards";
const WORKING_COUNT: &str = "working-count";
const WORKING: &str = "working-rows";
const EVENTS: &str = "event-rows";

impl AgentView<'_> {
    /// Builds the page.
    pub(crate) fn page(&self, frame: Frame) -> Markup {
        let parts = self.live_parts();
        let sessions = self.status.sessions.keys().map(String::as_str);
        let content = html! {
            div hx-get=(self.filter.link(LIVE)) hx-trigger="every 5s" hx-swap="none" {}
            div id=(STATE) { (parts.state) }
            section aria-labelledby="sessions" {
                h2 id="sessions" { "Sessions" }
                div id=(SESSIONS) { (parts.sessions) }
            }
            div id=(CERTIFICATES) { (parts.certificates) }
            section aria-labelledby="components" {
                h2 id="components" { "Outputs, listeners and other components" }
                details.fold {
                    summary { span id=(WORKING_COUNT) { (parts.working_count) } }
                    div id=(WORKING) { (parts.working) }
                }
            }
            section aria-labelledby="events" {
                h2 id="events" { "Recent events" }
                (self.filter.form(sessions, self.events))
                div id=(EVENTS) { (parts.events) }
            }
        };
        frame.page("Agent", "/agent", &content)
    }

    /// Builds the parts of the page that a script puts into their places.
    pub(crate) fn live(&self) -> Markup {
        let parts = self.live_parts();
        let places = [
            (STATE, parts.state),
            (SESSIONS, parts.sessions),
            (CERTIFICATES, parts.certificates),
            (WORKING_COUNT, parts.working_count),
            (WORKING, parts.working),
            (EVENTS, parts.events),
        ];
        html! { @for (id, content) in &places { div id=(id) hx-swap-oob="innerHTML" { (content) } } }
    }

    /// Evaluates the status as `keyward status` does.
    fn live_parts(&self) -> LiveParts {
        let report = evaluate(self.status, self.now.into());
        let session = |item: &ReportItem| Some((item.clone(), self.status.sessions.get(item.session()?)?));
        let sessions: Vec<_> = report.items.iter().filter_map(session).collect();
        let (working_count, working) = self.working_components(&report);
        LiveParts {
            state: state_and_problems(self.status, &report, &self.about()),
            sessions: html! {
                @for (item, session) in &sessions { (self.session_card(item, session)) }
                @if sessions.is_empty() { p.empty { "This listener shows no session." } }
            },
            certificates: certificates_section(self.status, &report, self.now),
            working_count,
            working,
            events: event_list(self.events, &self.filter, self.now),
        }
    }

    /// Version and age of the process, and the time of the page.
    fn about(&self) -> Markup {
        let StatusDocument { version, started_at, pid, .. } = self.status;
        html! {
            @if !version.is_empty() { "keyward " (version) ", " }
            @if let Some(started) = started_at { "up " (format_span(started.until(self.now.into()))) ", " }
            @if let Some(pid) = pid { "pid " (pid) ", " }
            "as seen at " (clock(self.now)) " UTC"
        }
    }

    fn session_card(&self, item: &ReportItem, session: &SessionEntry) -> Markup {
        let name = item.session().unwrap_or_default();
        let now = self.now;
        // The legend of the time line has the next step of a session that works.
        let is_in_legend = item.state == StatusState::Ok && item.next.is_some();
        html! {
            article.card id={ "session-" (name) } {
                h3 { (name) " " (state_badge(item.state)) }
                @if let Some(reason) = item.describe_reason() { p.reason { (rich(&reason)) } }
                (self.timeline(name, item, session).draw())
                (facts(&[
                    ("Server", html! { (session.server) }),
                    ("Identity", html! { (session.identity) }),
                    ("Role", html! { (session.role) }),
                    ("Policies", html! { (session.policies.join(", ")) }),
                    ("Progress", html! { @if !is_in_legend { (item.describe_progress()) } }),
                    ("Last checked", stamp(session.last_checked, now)),
                    ("Failures in a row", html! { @if session.failures > 0 { (session.failures) } }),
                ]))
            }
        }
    }

    fn timeline(&self, name: &str, item: &ReportItem, session: &SessionEntry) -> Timeline {
        let marks = self.events.iter().filter(|event| event.field("session") == Some(name)).map(|event| TimelineMark {
            at: event.time,
            failed: event.level <= tracing::Level::WARN,
            label: event.name.clone(),
        });
        let next = item.next.map(|next| {
            let verb = match next.kind {
                StepKind::Renew => "renews",
                StepKind::Login => "logs in",
                StepKind::Retry => "retries",
            };
            (self.now + Duration::from_secs(next.in_seconds), verb.to_owned())
        });
        Timeline {
            now: self.now,
            obtained: session.obtained.filter(|_| session.serving).map(Into::into),
            expires: session.expires.map(Into::into),
            next,
            marks: marks.collect(),
        }
    }

    /// Lists what works beside the sessions and certificates; the rest is among the problems. Returns its count in words, and the list.
    fn working_components(&self, report: &StatusReport) -> (Markup, Markup) {
        let has_card = |item: &ReportItem| {
            item.session().is_some_and(|name| self.status.sessions.contains_key(name)) || item.certificate().is_some()
        };
        let others: Vec<&ReportItem> = report.items.iter().filter(|item| !has_card(item)).collect();
        let working: Vec<&ReportItem> = others.iter().copied().filter(|item| item.state == StatusState::Ok).collect();
        let count = html! {
            (working.len()) " of " (others.len()) " are OK"
            @if working.len() < others.len() { ", the others are among the problems" }
        };
        let row = |item: &&ReportItem| {
            let component = self.status.components.get(&item.component);
            let target = component.and_then(|component| component.target.as_deref()).unwrap_or_default();
            let updated = component.and_then(|component| component.updated);
            let success = html! {
                @if updated.is_some() { (update_verb(&item.component)) " " (stamp(updated, self.now)) }
            };
            let note = component.and_then(|component| component.note.as_deref()).unwrap_or_default();
            vec![
                html! { (item.component) },
                state_badge(item.state),
                html! { (target) @if !note.is_empty() { div.minor { (rich(note)) } } },
                success,
            ]
        };
        let rows: Vec<Vec<Markup>> = working.iter().map(row).collect();
        let heads = ["Component", "State", "Target", "Last success"];
        (count, table("Components that are OK", &heads, &rows, "No component is OK."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::times::parse;

    fn shown(json: &str) -> (String, String) {
        let status: StatusDocument = serde_json::from_str(json).unwrap();
        let now = parse("2026-01-31T09:00:00Z").unwrap();
        let view = AgentView { status: &status, events: &[], filter: EventFilter::default(), now };
        (view.page(Frame::default()).into_string(), view.live().into_string())
    }

    #[test]
    fn texts_are_escaped_and_states_are_those_of_the_evaluation() {
        let (page, live) = shown(
            r#"{"ready": false, "unknown": 1, "sessions": {"main": {"server": "<script>", "serving": true, "failures": 2,
                "obtained": "2026-01-31T08:00:00Z", "expires": "2026-01-31T09:04:32Z", "next_step": "renew",
                "next_step_at": "2026-01-31T09:00:12Z", "last_error": "refused", "last_error_code": "KW-1203"}},
                "components": {"session/main": {"ready": true, "required": true},
                "sink/a": {"ready": false, "required": true, "reason": "disk full", "since": "2026-01-31T08:57:00Z",
                "target": "/run/a"}, "sink/b": {"ready": true, "target": "/run/b"}}}"#,
        );
        for part in [
            "&lt;script&gt;",
            "AT RISK",
            "ends in 4 min",
            "refused [<a href=\"/codes/KW-1203\">KW-1203</a>]",
            "retries at 09:00:12, in 12 s",
            "disk full",
            "3 min",
            "/run/a",
            "Not ready",
            "DOWN",
            "id=\"session-main\"",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
            assert!(live.contains(part), "{part} is not in {live}");
        }
        assert!(!page.contains("<script>") && !page.contains("as of now"), "{page}");
        let (problems, rest) = page.split_once("id=\"sessions\"").unwrap();
        assert!(problems.contains("sink/a") && !problems.contains("sink/b"), "{problems}");
        let folded = rest.split_once("<details").unwrap().1.split_once("</details>").unwrap().0;
        assert!(folded.contains("1 of 2 are OK, the others are among the problems"), "{folded}");
        assert!(folded.contains("sink/b") && !folded.contains("sink/a"), "{folded}");
    }

    #[test]
    fn a_call_in_flight_and_a_token_that_nobody_renews_are_told() {
        let (page, _) = shown(
            r#"{"ready": true, "sessions": {"main": {"serving": true, "obtained": "2026-01-31T08:00:00Z",
                "expires": "2026-01-31T09:05:00Z", "activity": {"kind": "renewal", "since": "2026-01-31T08:59:50Z",
                "deadline": "2026-01-31T09:00:20Z"}}}, "reload_error": "an unknown key"}"#,
        );
        for part in ["renewing", "90 % of the lease has passed", "an unknown key"] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }
}
