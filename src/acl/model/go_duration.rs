//! Durations in Go's notation, as Consul's API uses them.
//!
//! The format is that of Go's `time.ParseDuration` and `Duration.String`.

use std::fmt::Write as _;

/// Duration in nanoseconds; may be negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GoDuration(pub i64);

const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl GoDuration {
    /// Converts a duration; saturates at the maximum.
    pub(crate) fn from_duration(span: std::time::Duration) -> Self {
        Self(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX))
    }

    /// Converts to a duration; `None` if negative.
    pub(crate) fn to_duration(self) -> Option<std::time::Duration> {
        u64::try_from(self.0).ok().map(std::time::Duration::from_nanos)
    }
}

impl std::str::FromStr for GoDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        // Go needs no unit for zero.
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(InvalidDuration);
        }
        let mut nanos: i128 = 0;
        while !rest.is_empty() {
            let digits = rest.find(|end: char| !end.is_ascii_digit()).unwrap_or(rest.len());
            let (whole, after) = rest.split_at(digits);
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => after.split_at(after.find(|end: char| !end.is_ascii_digit()).unwrap_or(after.len())),
                None => ("", after),
            };
            // An `i64` has 19 digits; the limit also keeps the product with the unit within an `i128`.
            if whole.is_empty() && fraction.is_empty() || whole.len() > 19 {
                return Err(InvalidDuration);
            }
            let end = after.find(|end: char| end.is_ascii_digit() || end == '.').unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            let unit = UNITS.iter().find(|(unit, _)| *unit == name).ok_or(InvalidDuration)?.1;
            let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| InvalidDuration)? };
            nanos += whole * i128::from(unit);
            let mut scale = i128::from(unit);
            // The largest unit has 13 digits: later ones are less than a nanosecond.
            for digit in fraction.bytes().take(18) {
                scale /= 10;
                nanos += i128::from(digit - b'0') * scale;
            }
            if nanos > i128::from(i64::MAX) {
                return Err(InvalidDuration);
            }
            rest = after;
        }
        i64::try_from(if negative { -nanos } else { nanos }).map(Self).map_err(|_| InvalidDuration)
    }
}

impl std::fmt::Display for GoDuration {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nanos = self.0.unsigned_abs();
        if nanos == 0 {
            return formatter.write_str("0s");
        }
        if self.0 < 0 {
            formatter.write_char('-')?;
        }
        let fraction = |formatter: &mut std::fmt::Formatter<'_>, value: u64, unit: u64, name: &str| {
            let whole = value / unit;
            let rest = value % unit;
            write!(formatter, "{whole}")?;
            if rest > 0 {
                let width = unit.ilog10() as usize;
                let digits = format!("{rest:0width$}");
                write!(formatter, ".{}", digits.trim_end_matches('0'))?;
            }
            formatter.write_str(name)
        };
        match nanos {
            0..=999 => write!(formatter, "{nanos}ns"),
            1_000..=999_999 => fraction(formatter, nanos, 1_000, "µs"),
            1_000_000..=999_999_999 => fraction(formatter, nanos, 1_000_000, "ms"),
            _ => {
                let minutes = nanos / 60_000_000_000;
                if minutes >= 60 {
                    write!(formatter, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(formatter, "{}m", minutes % 60)?;
                }
                fraction(formatter, nanos % 60_000_000_000, 1_000_000_000, "s")
            }
        }
    }
}

/// Error: the text is not a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a duration (examples: \"60s\", \"5m\", \"1h30m\")")]
pub(crate) struct InvalidDuration;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_formatted_as_in_go() {
        let check = |text: &str, expected: Option<&str>| {
            let found = text.parse::<GoDuration>().ok().map(|span| span.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check("0", Some("0s"));
        check("0s", Some("0s"));
        check("60s", Some("1m0s"));
        check("5m", Some("5m0s"));
        check("24h", Some("24h0m0s"));
        check("1h1s", Some("1h0m1s"));
        check("1.5h", Some("1h30m0s"));
        check("-5m", Some("-5m0s"));
        check("1ms", Some("1ms"));
        check("1.5ms", Some("1.5ms"));
        check("59.999s", Some("59.999s"));
        check("7ns", Some("7ns"));
        check("1500ns", Some("1.5µs"));
        check(".5s", Some("500ms"));
        for wrong in ["", "-", "5", "5x", "m", ".s", "1d", "s5", "1h2", "9999999999h", "99999999999999999999s", "é"] {
            check(wrong, None);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_formatted_duration_parses_to_the_same_value(nanos: i64) {
            proptest::prop_assume!(nanos != i64::MIN);
            proptest::prop_assert_eq!(GoDuration(nanos).to_string().parse(), Ok(GoDuration(nanos)));
        }
    }
}
