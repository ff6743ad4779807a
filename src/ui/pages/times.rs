//! Times for people: RFC 3339 with the distance from now.

use std::time::{Duration, SystemTime};

use keyward_telemetry::status::Timestamp;
use keyward_telemetry::time_format::{format_rfc3339, format_span};
use maud::{Markup, html};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Parses a time of RFC 3339.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok().map(SystemTime::from)
}

/// Formats the distance of a time from `now`, such as `in 4 min` or `2 h ago`.
pub(super) fn relative(time: SystemTime, now: SystemTime) -> String {
    let second = Duration::from_secs(1);
    match time.duration_since(now) {
        Ok(ahead) if ahead < second => "now".to_owned(),
        Ok(ahead) => format!("in {}", format_span(ahead.as_secs())),
        Err(past) if past.duration() < second => "now".to_owned(),
        Err(past) => format!("{} ago", format_span(past.duration().as_secs())),
    }
}

/// Builds a time with its distance from `now`; the text itself if it is not a time, nothing if it is empty.
pub(super) fn time(text: &str, now: SystemTime) -> Markup {
    html! {
        @if let Some(at) = parse(text) { time datetime=(text) title=(text) { (relative(at, now)) } } @else { (text) }
    }
}

/// As [`time()`], for a time of the system.
pub(super) fn system_time(at: SystemTime, now: SystemTime) -> Markup {
    time(&format_rfc3339(at), now)
}

/// As [`time()`], for a time of a status; nothing if there is none.
pub(super) fn stamp(at: Option<Timestamp>, now: SystemTime) -> Markup {
    html! { @if let Some(at) = at { (system_time(at.into(), now)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_by_their_distance() {
        let now = parse("2026-01-31T09:00:00Z").unwrap();
        let check = |text: &str, expected: &str| assert_eq!(relative(parse(text).unwrap(), now), expected, "{text}");
        check("2026-01-31T09:00:00Z", "now");
        check("2026-01-31T09:04:32Z", "in 4 min");
        check("2026-01-31T08:00:00Z", "60 min ago");
        check("2026-01-31T07:29:31Z", "90 min ago");
        check("2026-02-02T10:30:00Z", "in 2 d 1 h");
        assert_eq!(time("", now).into_string(), "");
        assert_eq!(time("never", now).into_string(), "never");
    }
}
