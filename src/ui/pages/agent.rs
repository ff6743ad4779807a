//! Page of the agent: sessions with their time lines, components, and recent events.

use std::collections::BTreeMap;
use std::time::SystemTime;

use maud::{Markup, html};
use serde::Deserialize;

use super::Frame;
use super::layout::{BadgeKind, badge, facts, table};
use super::timeline::{Timeline, TimelineMark};
use super::times::{parse, system_time, time};
use crate::recent_events::RecentEvent;

/// Fields of `GET /agent/v1/status` that the page shows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(in crate::ui) struct AgentStatus {
    ready: bool,
    sessions: BTreeMap<String, SessionView>,
    components: BTreeMap<String, ComponentView>,
    reload_error: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SessionView {
    identity: String,
    server: String,
    role: String,
    serving: bool,
    policies: Vec<String>,
    obtained: String,
    expires: String,
    next_step: String,
    next_step_at: String,
    last_checked: String,
    failures: u32,
    last_error: Option<String>,
    last_error_code: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ComponentView {
    ready: bool,
    required: bool,
    reason: Option<String>,
    code: Option<String>,
}

/// Most events that the page lists.
const EVENTS: usize = 50;

/// Builds the page.
pub(in crate::ui) fn page(frame: Frame, status: &AgentStatus, events: &[RecentEvent], now: SystemTime) -> Markup {
    frame.page("Agent", "/agent", &live(status, events, now))
}

/// Builds the part of the page that a script refreshes.
pub(in crate::ui) fn live(status: &AgentStatus, events: &[RecentEvent], now: SystemTime) -> Markup {
    html! {
        div id="live" hx-get="/agent/live" hx-trigger="every 5s" hx-swap="outerHTML" {
            p {
                @if status.ready { (badge(BadgeKind::Good, "ready")) } @else { (badge(BadgeKind::Bad, "not ready")) }
                " as of " (system_time(now, now))
            }
            @if let Some(error) = &status.reload_error {
                p.error role="alert" { "The last reload failed: " (error) }
            }
            section aria-labelledby="sessions" {
                h2 id="sessions" { "Sessions" }
                @for (name, session) in &status.sessions { (self::session(name, session, events, now)) }
                @if status.sessions.is_empty() { p { "This listener shows no session." } }
            }
            section aria-labelledby="components" {
                h2 id="components" { "Outputs, listeners and other components" }
                (components(&status.components))
            }
            section aria-labelledby="events" {
                h2 id="events" { "Recent events" }
                (event_table(events, now))
            }
        }
    }
}

fn session(name: &str, session: &SessionView, events: &[RecentEvent], now: SystemTime) -> Markup {
    let next = parse(&session.next_step_at).map(|at| (at, session.next_step.clone()));
    let marks = events.iter().filter(|event| event.field("session") == Some(name)).map(|event| TimelineMark {
        at: event.time,
        failed: event.level <= tracing::Level::WARN,
        label: event.name.clone(),
    });
    let timeline = Timeline { now, expires: parse(&session.expires), next, marks: marks.collect() };
    let next = html! { (session.next_step) " " (time(&session.next_step_at, now)) };
    let code = session.last_error_code.as_deref().map(|code| format!(" [{code}]")).unwrap_or_default();
    html! {
        article.card {
            h3 {
                (name) " "
                @match (session.serving, session.failures) {
                    (true, 0) => (badge(BadgeKind::Good, "OK")),
                    (true, _) => (badge(BadgeKind::Warning, "at risk")),
                    (false, _) => (badge(BadgeKind::Bad, "down")),
                }
            }
            (timeline.draw())
            (facts(&[
                ("Server", html! { (session.server) }),
                ("Role", html! { (session.role) }),
                ("Identity", html! { (session.identity) }),
                ("Policies", html! { (session.policies.join(", ")) }),
                ("Obtained", time(&session.obtained, now)),
                ("Expires", time(&session.expires, now)),
                ("Next", next),
                ("Last checked", time(&session.last_checked, now)),
                ("Failures in a row", html! { @if session.failures > 0 { (session.failures) } }),
                ("Last error", html! { @if let Some(error) = &session.last_error { (error) (code) } }),
            ]))
        }
    }
}

fn components(components: &BTreeMap<String, ComponentView>) -> Markup {
    let rows: Vec<Vec<Markup>> = components
        .iter()
        .map(|(name, component)| {
            let state = match (component.ready, component.required) {
                (true, _) => badge(BadgeKind::Good, "ready"),
                (false, true) => badge(BadgeKind::Bad, "not ready"),
                (false, false) => badge(BadgeKind::Warning, "not ready"),
            };
            let code = component.code.as_deref().map(|code| format!(" [{code}]")).unwrap_or_default();
            vec![html! { (name) }, state, html! { (component.reason.as_deref().unwrap_or_default()) (code) }]
        })
        .collect();
    table("Components", &["Component", "State", "Reason"], &rows)
}

fn event_table(events: &[RecentEvent], now: SystemTime) -> Markup {
    let rows: Vec<Vec<Markup>> = events
        .iter()
        .take(EVENTS)
        .map(|event| {
            let level = match event.level {
                tracing::Level::ERROR => badge(BadgeKind::Bad, "error"),
                tracing::Level::WARN => badge(BadgeKind::Warning, "warning"),
                _ => badge(BadgeKind::Neutral, "info"),
            };
            let fields: Vec<String> = event.fields.iter().map(|(name, text)| format!("{name}={text}")).collect();
            let text = html! { (event.message) " " span.fields { (fields.join(" ")) } };
            vec![system_time(event.time, now), level, html! { code { (event.name) } }, text]
        })
        .collect();
    table("Recent events, the latest first", &["When", "Level", "Event", "Message"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(json: &str) -> AgentStatus {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn texts_are_escaped_and_states_are_told_in_words() {
        let status = status(
            r#"{"ready": false, "unknown": 1, "sessions": {"main": {"server": "<script>", "serving": true, "failures": 2,
                "expires": "2026-01-31T09:04:32Z", "last_error": "refused", "last_error_code": "KW-1203"}},
                "components": {"sink/a": {"ready": false, "required": true, "reason": "disk full"}}}"#,
        );
        let now = parse("2026-01-31T09:00:00Z").unwrap();
        let page = page(Frame::default(), &status, &[], now).into_string();
        for part in ["&lt;script&gt;", "at risk", "in 4m 32s", "refused [KW-1203]", "disk full", "not ready"] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert!(!page.contains("<script>"), "{page}");
    }
}
