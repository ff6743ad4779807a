//! Times for people: the distance from now, and the time of the clock, in UTC.

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

/// Formats the time of the day in UTC, such as `09:04:32`.
pub(super) fn clock(time: SystemTime) -> String {
    // `2026-01-31T09:04:32Z`
    format_rfc3339(time).get(11..19).unwrap_or_default().to_owned()
}

/// Formats the hour and the minute in UTC, such as `09:04`.
pub(super) fn hour_and_minute(time: SystemTime) -> String {
    clock(time).get(..5).unwrap_or_default().to_owned()
}

/// Builds a time as its distance from `now`; the text itself if it is not a time, nothing if it is empty.
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

/// Builds a time as that of the clock, with its distance from `now` below.
pub(super) fn clock_time(at: SystemTime, now: SystemTime) -> Markup {
    let text = format_rfc3339(at);
    html! { time datetime=(text) title=(text) { (clock(at)) } " " span.minor { (relative(at, now)) } }
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

    #[test]
    fn the_clock_has_hours_minutes_and_seconds() {
        let at = parse("2026-01-31T09:04:32Z").unwrap();
        assert_eq!((clock(at).as_str(), hour_and_minute(at).as_str()), ("09:04:32", "09:04"));
    }
}
