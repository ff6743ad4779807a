//! Formats times and durations for people, logs, status and records.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::{Rfc2822, Rfc3339};

/// Formats a time by RFC 3339, in UTC and whole seconds, such as `2026-01-31T09:00:00Z`. A time before 1970 or after the
/// year 9999 is clamped to that range.
pub fn format_rfc3339(time: SystemTime) -> String {
    to_utc(time).and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
}

/// Formats a time for `Date`, such as `Sun, 29 Nov 2026 17:30:03 GMT` (RFC 9110, 5.6.7). It is clamped like that of
/// [`format_rfc3339`].
pub fn format_http_date(time: SystemTime) -> String {
    to_utc(time).and_then(|time| time.format(&Rfc2822).ok()).unwrap_or_default().replace("+0000", "GMT")
}

fn to_utc(time: SystemTime) -> Option<OffsetDateTime> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = i64::try_from(since).unwrap_or(END_OF_9999).min(END_OF_9999);
    OffsetDateTime::from_unix_timestamp(seconds).ok()
}

const END_OF_9999: i64 = 253_402_300_799;

/// Formats a duration exactly, as the configuration and flags take it: for settings, such as `90d`, `1h 30m` or `250ms`. The largest unit is the
/// day, since months and years have no fixed length.
pub fn format_duration(span: Duration) -> String {
    let days = span.as_secs() / DAY;
    let seconds = span.as_secs() % DAY;
    let rest = Duration::new(seconds, span.subsec_nanos());
    #[expect(clippy::disallowed_methods, reason = "less than a day")]
    let text = humantime::format_duration(rest).to_string();
    match days {
        0 => text,
        _ if rest.is_zero() => format!("{days}d"),
        _ => format!("{days}d {text}"),
    }
}

/// Formats a time span that has passed or is left, in at most two units, such as `35 s`, `14 min`, `3 h 12 min` or `4 d 3 h`.
pub fn format_span(seconds: u64) -> String {
    let minutes = seconds / 60;
    let hours = seconds / 3_600;
    let days = seconds / DAY;
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

/// Converts a duration for a field `..._seconds` of a log event: in seconds, to the millisecond.
#[expect(clippy::cast_precision_loss, reason = "exact for 280,000 years")]
pub fn seconds(duration: Duration) -> f64 {
    // A division is rounded once: whole seconds plus a fraction give 1.2429999999999999 for 1.243.
    duration.as_millis() as f64 / 1000.0
}

/// In seconds.
const DAY: u64 = 86_400;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_duration_is_formatted_in_days_and_smaller_units() {
        let check = |span, expected: &str| assert_eq!(format_duration(span), expected);
        check(Duration::ZERO, "0s");
        check(Duration::from_millis(250), "250ms");
        check(Duration::from_secs(272), "4m 32s");
        check(Duration::from_hours(24), "1d");
        check(Duration::from_hours(32 * 24), "32d");
        check(Duration::from_hours(365 * 24), "365d");
        check(Duration::from_secs(90 * DAY + 5_400), "90d 1h 30m");
    }

    #[test]
    fn a_span_has_at_most_two_units() {
        let check = |seconds, expected: &str| assert_eq!(format_span(seconds), expected);
        check(0, "0 s");
        check(119, "119 s");
        check(120, "2 min");
        check(7_199, "119 min");
        check(7_200, "2 h");
        check(11_520, "3 h 12 min");
        check(172_800, "2 d");
        check(356_400, "4 d 3 h");
    }

    #[test]
    fn a_duration_of_an_event_has_seconds_to_the_millisecond() {
        assert_eq!(seconds(Duration::from_nanos(272_900_999_999)).to_string(), "272.9");
        assert_eq!(seconds(Duration::from_millis(1)).to_string(), "0.001");
        assert_eq!(seconds(Duration::from_millis(1_243)).to_string(), "1.243");
        assert_eq!(seconds(Duration::ZERO).to_string(), "0");
    }

    proptest! {
        #[test]
        fn a_formatted_duration_is_parsed_back(seconds: u64, nanos in 0..1_000_000_000_u32) {
            let span = Duration::new(seconds, nanos);
            prop_assert_eq!(humantime::parse_duration(&format_duration(span)), Ok(span));
        }
    }

    #[test]
    fn a_time_is_formatted_to_the_second_and_clamped() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        assert_eq!(format_rfc3339(time), "2023-11-14T22:13:20Z");
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(i64::MAX.unsigned_abs());
        assert_eq!(format_rfc3339(far), "9999-12-31T23:59:59Z");
        assert_eq!(format_rfc3339(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00Z");
    }
}
