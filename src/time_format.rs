//! Formats times for logs, status and records.

use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Formats a time by RFC 3339, in UTC and whole seconds, such as `2026-01-31T09:00:00Z`. A time before 1970 or after the
/// year 9999 is clamped to that range.
pub(crate) fn format_rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = i64::try_from(since).unwrap_or(END_OF_9999).min(END_OF_9999);
    OffsetDateTime::from_unix_timestamp(seconds).ok().and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
}

const END_OF_9999: i64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_is_formatted_to_the_second_and_clamped() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        assert_eq!(format_rfc3339(time), "2023-11-14T22:13:20Z");
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(i64::MAX.unsigned_abs());
        assert_eq!(format_rfc3339(far), "9999-12-31T23:59:59Z");
        assert_eq!(format_rfc3339(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00Z");
    }
}
