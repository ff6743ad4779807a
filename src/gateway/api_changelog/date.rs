//! Dates of the API history.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use time::{Date, Month};

/// A date, with or without leading zeros: `2024-2-8` is `2024-02-08`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiDate(Date);

/// The text is not a date.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a date; write it as 2024-02-08")]
pub struct InvalidDate(String);

impl ApiDate {
    /// The earliest date. A change has it until its row is known.
    pub(super) const fn earliest() -> Self {
        Self(Date::MIN)
    }

    /// Returns year and month.
    pub(super) fn year_and_month(self) -> (i32, u8) {
        (self.0.year(), u8::from(self.0.month()))
    }

    /// Returns midnight UTC in seconds since 1970.
    pub(crate) fn unix_seconds(self) -> i64 {
        self.0.midnight().assume_utc().unix_timestamp()
    }
}

impl FromStr for ApiDate {
    type Err = InvalidDate;

    fn from_str(text: &str) -> Result<Self, InvalidDate> {
        let number = |part: &str, digits: std::ops::RangeInclusive<usize>| {
            let plain = digits.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| part.parse::<u16>().ok()).flatten()
        };
        let read = || {
            let mut parts = text.trim().split('-');
            let year = number(parts.next()?, 4..=4)?;
            let month = Month::try_from(u8::try_from(number(parts.next()?, 1..=2)?).ok()?).ok()?;
            let day = u8::try_from(number(parts.next()?, 1..=2)?).ok()?;
            if parts.next().is_some() {
                return None;
            }
            Date::from_calendar_date(year.into(), month, day).ok().map(Self)
        };
        read().ok_or_else(|| InvalidDate(text.chars().take(40).collect()))
    }
}

impl fmt::Display for ApiDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.0.to_calendar_date();
        write!(f, "{year:04}-{:02}-{day:02}", u8::from(month))
    }
}

impl Serialize for ApiDate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_parse_with_and_without_zeros() {
        let date: ApiDate = "2024-2-8".parse().unwrap();
        assert_eq!(date, "2024-02-08".parse().unwrap());
        assert_eq!(date.to_string(), "2024-02-08");
        assert_eq!("2021-06-8".parse::<ApiDate>().unwrap().unix_seconds(), 1_623_110_400);
        assert!(date < "2024-2-20".parse().unwrap());
    }

    #[test]
    fn invalid_dates_are_rejected() {
        for text in
            ["", "2024", "2024-02", "2024-13-01", "2023-02-29", "24-02-08", "2024-02-08-1", "2024-+2-8", "x-y-z"]
        {
            assert!(text.parse::<ApiDate>().is_err(), "{text}");
        }
    }
}
