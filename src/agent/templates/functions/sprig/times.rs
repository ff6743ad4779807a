//! Durations.

use super::cast::to_text;
use crate::templates::engine::Value;
use crate::templates::functions::NamedFunction;

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("sprig_duration", 1, 1, |args| {
        let seconds = match args.value(0)? {
            Value::Text(text) => text.parse().unwrap_or_default(),
            Value::Int64(seconds) => *seconds,
            // As in sprig, a number of another type is none.
            _ => 0,
        };
        Ok(Value::text(format_seconds(seconds)))
    }),
    ("sprig_durationRound", 1, 1, |args| {
        let seconds = match args.value(0)? {
            Value::Int64(nanoseconds) => nanoseconds / 1_000_000_000,
            other => parse_duration(&to_text(other)?).unwrap_or_default(),
        };
        Ok(Value::text(round(seconds.unsigned_abs())))
    }),
];

/// Formats seconds as Go formats a duration.
fn format_seconds(seconds: i64) -> String {
    let sign = if seconds < 0 { "-" } else { "" };
    let seconds = seconds.unsigned_abs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{rest}s"),
        (0, minutes) => format!("{sign}{minutes}m{rest}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{rest}s"),
    }
}

/// Parses a duration of Go to whole seconds.
fn parse_duration(text: &str) -> Option<i64> {
    const UNITS: [(&str, f64); 7] =
        [("ms", 1e-3), ("us", 1e-6), ("\u{b5}s", 1e-6), ("ns", 1e-9), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut sum = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let (unit, seconds) = UNITS.iter().find(|(unit, _)| rest[end..].starts_with(unit))?;
        sum += number * seconds;
        rest = &rest[end + unit.len()..];
    }
    Some(super::cast::truncate(sum))
}

/// Keeps the largest unit.
fn round(seconds: u64) -> String {
    const UNITS: [(u64, &str); 5] = [(31_536_000, "y"), (2_592_000, "mo"), (86_400, "d"), (3600, "h"), (60, "m")];
    let unit = UNITS.iter().find(|(length, _)| seconds >= *length);
    unit.map_or_else(|| format!("{seconds}s"), |(length, name)| format!("{}{name}", seconds / length))
}
