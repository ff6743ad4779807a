//! Parsers of single values, such as durations, modes, paths and names, and texts of them.

use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use keyward_machine::os;
use keyward_telemetry::time_format::format_duration;
pub(super) use keyward_telemetry::wording::did_you_mean;
use url::Host;

use super::tree::quote;

/// Error about a single value, with advice.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ValueError {
    /// Follows the value, such as `is not a duration`.
    pub(super) message: String,
    /// Advice on what to write instead.
    pub(super) advice: String,
    /// The value could be a misplaced secret, and is not printed.
    pub(super) secret: bool,
}

/// Builds the error of an invalid value that may be printed.
pub(super) fn invalid<T>(message: impl Into<String>, advice: impl Into<String>) -> Result<T, ValueError> {
    Err(ValueError { message: message.into(), advice: advice.into(), secret: false })
}

/// Builds the error of an invalid value that must not be printed.
pub(super) fn invalid_secret<T>(message: impl Into<String>, advice: impl Into<String>) -> Result<T, ValueError> {
    Err(ValueError { message: message.into(), advice: advice.into(), secret: true })
}

/// Returns advice about an invalid host or address: `default_advice`, or to write the name in ASCII.
pub(super) fn host_advice<'a>(text: &str, default_advice: &'a str) -> &'a str {
    if text.is_ascii() { default_advice } else { "write the host's name in ASCII, as DNS has it (xn--...)" }
}

/// Parses a duration in `range`, such as `30s`, `5m` or `1h 30m`.
pub(super) fn duration(text: &str, range: &RangeInclusive<Duration>) -> Result<Duration, ValueError> {
    let bounds = format!("write one from {} to {}", format_duration(*range.start()), format_duration(*range.end()));
    let trimmed = text.trim();
    if trimmed.starts_with('-') {
        return invalid("is negative", bounds);
    }
    if !trimmed.is_empty() && trimmed.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return invalid("has no unit", "write one such as 500ms, 30s, 5m or 1h");
    }
    // Longer numbers overflow inside the parser.
    if trimmed.len() > 32 || trimmed.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 11) {
        return invalid("is out of range", bounds);
    }
    match humantime::parse_duration(trimmed) {
        Ok(duration) if range.contains(&duration) => Ok(duration),
        Ok(_) => invalid("is out of range", bounds),
        Err(humantime::DurationError::UnknownUnit { unit, .. }) if !unit.is_empty() => {
            invalid(format!("has the unknown unit {}", quote(&unit)), "units are ms, s, m, h and d")
        }
        Err(_) => invalid("is not a duration", "write one such as 500ms, 30s, 5m or 1h"),
    }
}

/// Parses an octal mode of three or four digits.
pub(super) fn mode(text: &str) -> Result<u32, ValueError> {
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if digits && mode <= 0o777 => Ok(mode),
        Ok(_) if digits => invalid("sets bits beyond read, write and execute", "write one from 0000 to 0777"),
        _ => invalid("is not a mode", "write three or four octal digits, such as \"0640\""),
    }
}

/// Parses an absolute path, and removes doubled and trailing slashes and `.`.
pub(super) fn path(text: &str) -> Result<PathBuf, ValueError> {
    let path = Path::new(text);
    if !path.is_absolute() {
        return invalid("is not an absolute path", "start it with /");
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return invalid("contains ..", "write the path without ..");
    }
    Ok(path.components().collect())
}

/// Parses the path of a secret file; never prints the value, which may be a misplaced secret.
pub(super) fn secret_file_path(text: &str) -> Result<PathBuf, ValueError> {
    path(text).map_err(|error| ValueError { secret: true, ..error })
}

/// Parses one of several keywords.
pub(super) fn choice<T: Copy>(text: &str, keywords: &[(&str, T)]) -> Result<T, ValueError> {
    if let Some((_, value)) = keywords.iter().find(|(keyword, _)| *keyword == text) {
        Ok(*value)
    } else {
        let keywords: Vec<_> = keywords.iter().map(|(keyword, _)| format!("\"{keyword}\"")).collect();
        invalid("is not a known value", format!("write {}", join_alternatives(&keywords)))
    }
}

/// Joins keywords as `a, b or c`.
pub(super) fn join_alternatives(keywords: &[String]) -> String {
    match keywords {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// True if a string can name a session, sink, listener or server: it becomes part of file names and metrics.
pub(super) fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Formats owner and group of a file as `, owner app, group app`, by name where this machine has one; empty without either.
pub(super) fn describe_owner(owner: Option<u32>, group: Option<u32>) -> String {
    let owner = owner.map(|id| format!(", owner {}", os::user_name(id).unwrap_or_else(|| id.to_string())));
    let group = group.map(|id| format!(", group {}", os::group_name(id).unwrap_or_else(|| id.to_string())));
    owner.into_iter().chain(group).collect()
}

/// Parses the name of a host, or an address, without scheme and port; returns it in lower case.
pub(super) fn host(text: &str) -> Result<String, ValueError> {
    let form = "write only the name, without scheme and port";
    match Host::parse(text) {
        Ok(_) if text.contains('*') => invalid("is not a host name", "write each name: wildcards are not supported"),
        Ok(_) => Ok(text.to_ascii_lowercase()),
        Err(_) => invalid("is not a host name", host_advice(text, form)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_bounds() {
        let range = Duration::from_millis(100)..=Duration::from_hours(1);
        let check = |text: &str, expected: Result<u64, &str>| {
            let found = duration(text, &range).map(|duration| duration.as_millis());
            let found = found.as_ref().map_err(|error| error.message.as_str());
            assert_eq!(found.copied(), expected.map(u128::from), "{text}");
        };
        check("30s", Ok(30_000));
        check(" 1m 30s ", Ok(90_000));
        check("1.5s", Ok(1_500));
        check("100ms", Ok(100));
        check("1h", Ok(3_600_000));
        check("99ms", Err("is out of range"));
        check("61m", Err("is out of range"));
        check("5M", Err("is out of range"));
        check("-5s", Err("is negative"));
        check("30", Err("has no unit"));
        check("3sek", Err("has the unknown unit \"sek\""));
        check("soon", Err("is not a duration"));
        check(" ", Err("is not a duration"));
        check("18446744073709551615s 1000000000ns", Err("is out of range"));
    }

    #[test]
    fn modes_are_octal_digits() {
        let check = |text: &str, expected: Result<u32, &str>| {
            assert_eq!(mode(text).as_ref().map_err(|error| error.message.as_str()).copied(), expected, "{text}");
        };
        check("0640", Ok(0o640));
        check("600", Ok(0o600));
        check("0o640", Err("is not a mode"));
        check("+640", Err("is not a mode"));
        check("0888", Err("is not a mode"));
        check("64", Err("is not a mode"));
        check("4755", Err("sets bits beyond read, write and execute"));
    }

    #[test]
    fn only_a_near_name_is_offered() {
        let names = ["address", "ca_file", "role"];
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(did_you_mean(name, &names), expected.map(|name| format!("did you mean {name}?")), "{name}");
        };
        check("adress", Some("address"));
        check("roel", Some("role"));
        check("ca_fiel", Some("ca_file"));
        check("nothing_like_it", None);
        check("", None);
    }

    #[test]
    fn owner_and_group_have_their_names_where_the_machine_knows_them() {
        assert_eq!(describe_owner(Some(0), Some(0)), ", owner root, group root");
        assert_eq!(describe_owner(None, Some(4_242_424)), ", group 4242424");
        assert_eq!(describe_owner(None, None), "");
    }
}
