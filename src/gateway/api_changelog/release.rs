//! Releases of Terraform Enterprise.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::date::ApiDate;

/// A release, ordered by age: those named by month, such as `v202207-1`, precede those with a version, such as `1.0.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// `vYYYYMM-N`: year, month, number.
    Monthly(u16, u8, u16),
    /// `MAJOR.MINOR.PATCH`.
    Numbered(u32, u32, u32),
}

/// The text is not a comparable release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a release such as v202207-1 or 1.0.3")]
pub struct InvalidRelease;

impl Release {
    /// Returns true if this release is `since` or a later one.
    pub(crate) fn includes(self, since: Self) -> bool {
        self.cmp(&since) != Ordering::Less
    }

    /// Returns true if this release is older than a date: its name has an earlier month. A release with a version is
    /// later than the whole history.
    pub(crate) fn predates(self, date: ApiDate) -> bool {
        match self {
            Self::Monthly(year, month, _) => (i32::from(year), month) < date.year_and_month(),
            Self::Numbered(..) => false,
        }
    }
}

impl FromStr for Release {
    type Err = InvalidRelease;

    fn from_str(text: &str) -> Result<Self, InvalidRelease> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let read = || {
            if let Some((day, number)) = text.split_once('-') {
                if day.len() != 6 || !digits(day) || !digits(number) {
                    return None;
                }
                let year = day[..4].parse().ok()?;
                let month = day[4..].parse().ok()?;
                return (1..=12).contains(&month).then_some(Self::Monthly(year, month, number.parse().ok()?));
            }
            let parts: Vec<&str> = text.split('.').collect();
            let [major, minor, patch] = parts[..] else { return None };
            [major, minor, patch].into_iter().all(digits).then_some(Self::Numbered(
                major.parse().ok()?,
                minor.parse().ok()?,
                patch.parse().ok()?,
            ))
        };
        read().ok_or(InvalidRelease)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Monthly(year, month, number) => write!(f, "v{year:04}{month:02}-{number}"),
            Self::Numbered(major, minor, patch) => write!(f, "{major}.{minor}.{patch}"),
        }
    }
}

impl Serialize for Release {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn releases_are_ordered_by_age() {
        let order = [
            "v202012-1",
            "v202103-1",
            "v202112-1",
            "v202207-1",
            "v202207-2",
            "v202208-10",
            "v202507-1",
            "1.0.0",
            "1.0.3",
            "1.0.10",
            "1.1.0",
            "1.2.1",
            "2.0.0",
        ];
        let read: Vec<Release> = order.iter().map(|text| text.parse().unwrap()).collect();
        assert!(read.is_sorted_by(|one, next| one < next), "{read:?}");
        assert_eq!(read.iter().map(ToString::to_string).collect::<Vec<_>>(), order);
    }

    #[test]
    fn a_release_predates_the_months_after_its_own() {
        for (release, date, expected) in [
            ("v202012-1", "2021-03-08", true),
            ("v202105-2", "2021-06-08", true),
            ("v202106-1", "2021-06-08", false),
            ("v202106-1", "2021-06-30", false),
            ("v202112-1", "2021-06-08", false),
            ("1.0.3", "2024-10-14", false),
        ] {
            let found = release.parse::<Release>().unwrap().predates(date.parse().unwrap());
            assert_eq!(found, expected, "{release} {date}");
        }
    }

    #[test]
    fn incomparable_texts_are_rejected() {
        for text in [
            "",
            "v",
            "latest",
            "v2022-1",
            "v202213-1",
            "v202207",
            "v202207-",
            "1",
            "1.0",
            "1.0.x",
            "1.0.3-beta",
            "é20220-1",
        ] {
            assert_eq!(text.parse::<Release>(), Err(InvalidRelease), "{text}");
        }
    }

    proptest! {
        #[test]
        fn releases_format_as_they_parse(year in 2000u16..2100, month in 1u8..=12, n in 0u16.., a: u32, b: u32, c: u32) {
            for release in [Release::Monthly(year, month, n), Release::Numbered(a, b, c)] {
                prop_assert_eq!(release.to_string().parse(), Ok(release));
            }
            prop_assert!(Release::Numbered(a, b, c).includes(Release::Monthly(year, month, n)));
        }
    }
}
