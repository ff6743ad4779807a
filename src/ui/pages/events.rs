//! Recent events of the log, with a filter by level and session.

use std::collections::BTreeSet;
use std::time::SystemTime;

use keyward_telemetry::recent_events::RecentEvent;
use maud::{Markup, html};
use tracing::Level;

use super::layout::{BadgeKind, badge, table};
use super::text::with_codes;
use super::times::clock_time;

/// Most events that the page lists.
const EVENTS: usize = 50;

/// Levels that the form offers, with the least severe level of each.
const LEVELS: [(&str, &str, Level); 3] =
    [("", "All", Level::INFO), ("warning", "Warnings and errors", Level::WARN), ("error", "Errors", Level::ERROR)];

/// Event of a browser that signs in.
const SIGNED_IN: &str = "ui.signed_in";

/// Events that a page shows. Texts that name no level and no session match all.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EventFilter<'a> {
    /// Name of a level in the form.
    pub level: &'a str,
    /// Name of a session.
    pub session: &'a str,
    /// Numbers of the viewer's own sign-ins, which it knows of.
    pub own_sign_ins: &'a [u64],
}

impl EventFilter<'_> {
    /// Returns true for an event of the filter.
    fn matches(&self, event: &RecentEvent) -> bool {
        let least = LEVELS.iter().find(|(name, ..)| *name == self.level).map_or(Level::INFO, |(.., least)| *least);
        event.level <= least
            && (self.session.is_empty() || event.field("session") == Some(self.session))
            && !self.is_own_sign_in(event)
    }

    fn is_own_sign_in(&self, event: &RecentEvent) -> bool {
        let number = event.field("sign_in").and_then(|text| text.parse().ok());
        event.name == SIGNED_IN && number.is_some_and(|number| self.own_sign_ins.contains(&number))
    }

    /// Appends the filter to a path.
    pub(super) fn link(&self, path: &str) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(
            [("level", self.level), ("session", self.session)].iter().filter(|(_, text)| !text.is_empty()),
        );
        let query = query.finish();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
    }

    /// Builds the form. It offers the sessions of the status and those of the events.
    pub(super) fn form<'a>(&self, sessions: impl Iterator<Item = &'a str>, events: &[RecentEvent]) -> Markup {
        let mut names: BTreeSet<&str> = sessions.collect();
        names.extend(events.iter().filter_map(|event| event.field("session")));
        html! {
            form.filters method="get" action="/agent#events" {
                label { "Level" select name="level" {
                    @for (name, label, _) in LEVELS { option value=(name) selected[name == self.level] { (label) } }
                } }
                label { "Session" select name="session" {
                    option value="" { "All" }
                    @for name in names { option value=(name) selected[name == self.session] { (name) } }
                } }
                button.plain type="submit" { "Filter" }
            }
        }
    }
}

/// Builds the list of the events that match, the latest first.
pub(super) fn event_list(events: &[RecentEvent], filter: &EventFilter<'_>, now: SystemTime) -> Markup {
    let matching: Vec<&RecentEvent> = events.iter().filter(|event| filter.matches(event)).collect();
    html! {
        @if matching.len() > EVENTS {
            p.minor { "The latest " (EVENTS) " of " (matching.len()) " events." }
        }
        (event_table(matching.into_iter().take(EVENTS), now))
    }
}

/// Builds a table of events.
pub(super) fn event_table<'a>(events: impl Iterator<Item = &'a RecentEvent>, now: SystemTime) -> Markup {
    let rows: Vec<Vec<Markup>> = events
        .map(|event| {
            let level = match event.level {
                Level::ERROR => badge(BadgeKind::Bad, "error"),
                Level::WARN => badge(BadgeKind::Warning, "warning"),
                _ => badge(BadgeKind::Neutral, "info"),
            };
            let fields: Vec<String> = event.fields.iter().map(|(name, text)| format!("{name}={text}")).collect();
            let message = html! {
                (with_codes(&event.message)) " " code.minor { (event.name) }
                div.fields { (with_codes(&fields.join("  "))) }
            };
            vec![clock_time(event.time, now), level, message]
        })
        .collect();
    table("Events, the latest first", &["Time", "Level", "Event"], &rows, "No event matches.")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn event(level: Level, name: &str, fields: &[(&'static str, &str)]) -> RecentEvent {
        let fields = fields.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        let time = SystemTime::UNIX_EPOCH + Duration::from_hours(1);
        RecentEvent { time, level, name: name.to_owned(), message: "it happened".to_owned(), fields }
    }

    #[test]
    fn events_are_filtered_by_level_and_session() {
        let events = [
            event(Level::INFO, "token.renew.ok", &[("session", "web")]),
            event(Level::WARN, "token.renew.failed", &[("session", "web"), ("code", "KW-1203")]),
            event(Level::ERROR, "sink.failed", &[("session", "db<")]),
        ];
        let listed = |level: &str, session: &str| {
            let filter = EventFilter { level, session, own_sign_ins: &[] };
            let page = event_list(&events, &filter, SystemTime::now()).into_string();
            ["token.renew.ok", "token.renew.failed", "sink.failed"].map(|name| page.contains(name))
        };
        assert_eq!(listed("", ""), [true, true, true]);
        assert_eq!(listed("nonsense", ""), [true, true, true]);
        assert_eq!(listed("warning", ""), [false, true, true]);
        assert_eq!(listed("error", ""), [false, false, true]);
        assert_eq!(listed("", "web"), [true, true, false]);
        assert_eq!(listed("warning", "web"), [false, true, false]);
        let page = event_list(&events, &EventFilter::default(), SystemTime::now()).into_string();
        assert!(page.contains("code=<a href=\"/codes/KW-1203\">") && page.contains("session=db&lt;"), "{page}");
        let filter = EventFilter { level: "warning", session: "a&b", own_sign_ins: &[] };
        assert_eq!(filter.link("/agent/live"), "/agent/live?level=warning&session=a%26b");
    }

    #[test]
    fn sign_ins_are_shown_to_others_alone() {
        let events = [
            event(Level::INFO, SIGNED_IN, &[("sign_in", "4")]),
            event(Level::INFO, "other.event", &[("sign_in", "4")]),
        ];
        let listed = |own_sign_ins: &[u64]| {
            let filter = EventFilter { own_sign_ins, ..EventFilter::default() };
            event_list(&events, &filter, SystemTime::now()).into_string()
        };
        assert!(listed(&[3]).contains(SIGNED_IN) && listed(&[]).contains(SIGNED_IN));
        assert!(!listed(&[3, 4]).contains(SIGNED_IN) && listed(&[3, 4]).contains("other.event"));
    }
}
