//! Page of the agent: sessions with their time lines, components, and recent events.

use std::time::{Duration, SystemTime};

use keyward_telemetry::recent_events::RecentEvent;
use keyward_telemetry::status::{
    ReportItem, SessionEntry, StatusDocument, StatusReport, StatusState, StepKind, evaluate, update_verb,
};
use maud::{Markup, html};

use super::Frame;
use super::layout::{BadgeKind, badge, facts, table};
use super::timeline::{Timeline, TimelineMark};
use super::times::{stamp, system_time};

/// Most events that the page lists.
const EVENTS: usize = 50;

/// Builds the page.
pub(crate) fn page(frame: Frame, status: &StatusDocument, events: &[RecentEvent], now: SystemTime) -> Markup {
    frame.page("Agent", "/agent", &live(status, events, now))
}

/// Builds the part of the page that a script refreshes. It evaluates the status as `keyward status` does.
pub(crate) fn live(status: &StatusDocument, events: &[RecentEvent], now: SystemTime) -> Markup {
    let report = evaluate(status, now.into());
    let session = |item: &ReportItem| Some((item.clone(), status.sessions.get(item.session()?)?));
    let sessions: Vec<_> = report.items.iter().filter_map(session).collect();
    html! {
        div id="live" hx-get="/agent/live" hx-trigger="every 5s" hx-swap="outerHTML" {
            p {
                (state_badge(report.state)) " "
                @if status.ready { "ready" } @else { "not ready" } " as of " (system_time(now, now))
            }
            section aria-labelledby="sessions" {
                h2 id="sessions" { "Sessions" }
                @for (item, session) in &sessions { (session_card(item, session, events, now)) }
                @if sessions.is_empty() { p { "This listener shows no session." } }
            }
            section aria-labelledby="components" {
                h2 id="components" { "Outputs, listeners and other components" }
                (components(status, &report, now))
            }
            section aria-labelledby="events" {
                h2 id="events" { "Recent events" }
                (event_table(events, now))
            }
        }
    }
}

fn state_badge(state: StatusState) -> Markup {
    let kind = match state {
        StatusState::Ok => BadgeKind::Good,
        StatusState::AtRisk => BadgeKind::Warning,
        StatusState::Down => BadgeKind::Bad,
    };
    badge(kind, state.as_str())
}

fn session_card(item: &ReportItem, session: &SessionEntry, events: &[RecentEvent], now: SystemTime) -> Markup {
    let name = item.session().unwrap_or_default();
    let marks = events.iter().filter(|event| event.field("session") == Some(name)).map(|event| TimelineMark {
        at: event.time,
        failed: event.level <= tracing::Level::WARN,
        label: event.name.clone(),
    });
    let next = item.next.map(|next| {
        let verb = match next.kind {
            StepKind::Renew => "renews",
            StepKind::Login => "logs in",
            StepKind::Retry => "tries again",
        };
        (now + Duration::from_secs(next.in_seconds), verb.to_owned())
    });
    let timeline = Timeline {
        now,
        obtained: session.obtained.filter(|_| session.serving).map(Into::into),
        expires: session.expires.map(Into::into),
        next,
        marks: marks.collect(),
    };
    html! {
        article.card {
            h3 { (name) " " (state_badge(item.state)) }
            @if let Some(reason) = item.describe_reason() { p { (reason) } }
            (timeline.draw())
            (facts(&[
                ("Server", html! { (session.server) }),
                ("Role", html! { (session.role) }),
                ("Identity", html! { (session.identity) }),
                ("Policies", html! { (session.policies.join(", ")) }),
                ("Obtained", stamp(session.obtained, now)),
                ("Expires", stamp(session.expires, now)),
                ("Now and next", html! { (item.describe_progress()) }),
                ("Last checked", stamp(session.last_checked, now)),
                ("Failures in a row", html! { @if session.failures > 0 { (session.failures) } }),
            ]))
        }
    }
}

/// Lists everything that is evaluated beside the sessions with a card.
fn components(status: &StatusDocument, report: &StatusReport, now: SystemTime) -> Markup {
    let has_card = |item: &ReportItem| item.session().is_some_and(|name| status.sessions.contains_key(name));
    let rows: Vec<Vec<Markup>> = report
        .items
        .iter()
        .filter(|item| !has_card(item))
        .map(|item| {
            let component = status.components.get(&item.component);
            let target = component.and_then(|component| component.target.as_deref()).unwrap_or_default();
            let updated = component.and_then(|component| component.updated);
            let success = html! { @if updated.is_some() { (update_verb(&item.component)) " " (stamp(updated, now)) } };
            let details = html! {
                (item.describe_reason().unwrap_or_default())
                @if item.state != StatusState::Ok { div.fields { (item.describe_progress()) } }
            };
            vec![html! { (item.component) }, state_badge(item.state), html! { (target) }, success, details]
        })
        .collect();
    table("Components", &["Component", "State", "Target", "Last success", "Reason"], &rows)
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
    use crate::pages::times::parse;

    fn shown(json: &str) -> String {
        let status: StatusDocument = serde_json::from_str(json).unwrap();
        page(Frame::default(), &status, &[], parse("2026-01-31T09:00:00Z").unwrap()).into_string()
    }

    #[test]
    fn texts_are_escaped_and_states_are_those_of_the_evaluation() {
        let page = shown(
            r#"{"ready": false, "unknown": 1, "sessions": {"main": {"server": "<script>", "serving": true, "failures": 2,
                "obtained": "2026-01-31T08:00:00Z", "expires": "2026-01-31T09:04:32Z", "next_step": "renew",
                "next_step_at": "2026-01-31T09:00:12Z", "last_error": "refused", "last_error_code": "KW-1203"}},
                "components": {"session/main": {"ready": true, "required": true},
                "sink/a": {"ready": false, "required": true, "reason": "disk full", "since": "2026-01-31T08:57:00Z",
                "target": "/run/a"}, "sink/b": {"ready": true, "warning": {"reason": "somebody changed it"}}}}"#,
        );
        for part in [
            "&lt;script&gt;",
            "AT RISK",
            "in 4 min",
            "refused [KW-1203]",
            "retries in 12 s",
            "disk full",
            "for 3 min",
            "/run/a",
            "somebody changed it",
            "not ready",
            "DOWN",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert!(!page.contains("<script>"), "{page}");
        assert_eq!(page.matches("session/main").count(), 0, "a session has one place: {page}");
    }

    #[test]
    fn a_call_in_flight_and_a_token_that_nobody_renews_are_told() {
        let page = shown(
            r#"{"ready": true, "sessions": {"main": {"serving": true, "obtained": "2026-01-31T08:00:00Z",
                "expires": "2026-01-31T09:05:00Z", "activity": {"kind": "renewal", "since": "2026-01-31T08:59:50Z",
                "deadline": "2026-01-31T09:00:20Z"}}}, "reload_error": "an unknown key"}"#,
        );
        for part in ["renewing for 10 s, gives up after 30 s", "90 % of the lease has passed", "an unknown key"] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }
}
