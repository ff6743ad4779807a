//! Timestamps of records and API responses.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Wall-clock time from 1970 to 2554 with nanoseconds, so that an `ExpirationTime` that a client sends back is
/// unchanged. Serialized as RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp {
    nanos: u64,
}

impl Timestamp {
    /// Converts a system time; saturates at the ends of the range.
    pub fn from_system_time(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self { nanos: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Returns the time `span` later; saturates.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self { nanos: self.nanos.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)) }
    }

    /// Returns the duration since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos.saturating_sub(earlier.nanos))
    }

    /// Returns whole seconds since 1970.
    pub fn unix_seconds(self) -> u64 {
        self.nanos / 1_000_000_000
    }

    /// Returns a string that sorts like the time.
    pub(crate) fn sort_key(self) -> String {
        format!("{:020}", self.nanos)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = OffsetDateTime::from_unix_timestamp_nanos(self.nanos.into()).map_err(|_| fmt::Error)?;
        formatter.write_str(&time.format(&Rfc3339).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| InvalidTimestamp)?;
        u64::try_from(time.unix_timestamp_nanos()).map(|nanos| Self { nanos }).map_err(|_| InvalidTimestamp)
    }
}

impl TryFrom<String> for Timestamp {
    type Error = InvalidTimestamp;

    fn try_from(text: String) -> Result<Self, InvalidTimestamp> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> Self {
        time.to_string()
    }
}

/// Error: the text is not an RFC 3339 time from 1970 to 2554.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a time from 1970 to 2554 in RFC 3339 (example: \"2030-01-02T03:04:05Z\")")]
pub struct InvalidTimestamp;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_round_trip_to_the_nanosecond() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(text.parse::<Timestamp>().ok().map(|time| time.to_string()).as_deref(), expected, "{text}");
        };
        check("2030-01-02T03:04:05.123456789Z", Some("2030-01-02T03:04:05.123456789Z"));
        check("2030-01-02T03:04:05+02:00", Some("2030-01-02T01:04:05Z"));
        check("1970-01-01T00:00:00Z", Some("1970-01-01T00:00:00Z"));
        check("0001-01-01T00:00:00Z", None);
        check("9999-01-01T00:00:00Z", None);
        check("tomorrow", None);
    }

    #[test]
    fn keys_sort_as_the_times_do() {
        let early = Timestamp::from_system_time(UNIX_EPOCH + Duration::from_secs(9));
        let late = early.after(Duration::from_secs(1_000_000_000));
        assert!(early.sort_key() < late.sort_key());
        assert_eq!(late.since(early), Duration::from_secs(1_000_000_000));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(Timestamp::from_system_time(UNIX_EPOCH + Duration::from_secs(1 << 40)).to_string().len(), 30);
    }
}
