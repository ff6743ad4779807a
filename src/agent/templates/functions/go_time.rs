//! Go's time layouts: the reference time Mon Jan 2 15:04:05 2006, written in the requested form.

use std::fmt::Write as _;
use std::time::SystemTime;

use time::OffsetDateTime;

/// Formats a time in UTC by a layout (<https://pkg.go.dev/time#Layout>); `unix` means the seconds since 1970. Other text is copied.
pub(super) fn format_time(now: SystemTime, layout: &str) -> String {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    if layout == "unix" {
        return since.as_secs().to_string();
    }
    let nanos = i128::try_from(since.as_nanos()).unwrap_or_default();
    let time = OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let mut rest = layout;
    let mut written = String::new();
    while let Some(first) = rest.chars().next() {
        let length = write_fraction(time, rest, &mut written).or_else(|| write_element(time, rest, &mut written));
        let length = length.unwrap_or_else(|| {
            written.push(first);
            first.len_utf8()
        });
        rest = &rest[length..];
    }
    written
}

/// Writes the element that a layout begins with, and returns the element's length.
fn write_element(time: OffsetDateTime, layout: &str, written: &mut String) -> Option<usize> {
    let name = |short: &'static str| {
        // `Jan` in `Janet` is not a month.
        let follows = layout.strip_prefix(short)?.chars().next();
        (!follows.is_some_and(|next| next.is_ascii_lowercase())).then_some(short)
    };
    let hour = time.hour();
    let month = time.month().to_string();
    let day = time.weekday().to_string();
    let hour12 = (hour + 11) % 12 + 1;
    // Longer elements come before their own prefixes.
    let names = ["January", "Monday"].into_iter().find(|long| layout.starts_with(long));
    let element = names.or_else(|| name("Jan")).or_else(|| name("Mon"));
    let element = element.or_else(|| ELEMENTS.into_iter().find(|part| layout.starts_with(part)))?;
    let result = match element {
        "January" => write!(written, "{month}"),
        "Jan" => write!(written, "{month:.3}"),
        "Monday" => write!(written, "{day}"),
        "Mon" => write!(written, "{day:.3}"),
        "MST" => write!(written, "UTC"),
        "2006" => write!(written, "{:04}", time.year()),
        "_2006" => write!(written, "_{:04}", time.year()),
        "06" => write!(written, "{:02}", time.year().rem_euclid(100)),
        "01" => write!(written, "{:02}", u8::from(time.month())),
        "1" => write!(written, "{}", u8::from(time.month())),
        "02" => write!(written, "{:02}", time.day()),
        "_2" => write!(written, "{:2}", time.day()),
        "2" => write!(written, "{}", time.day()),
        "002" => write!(written, "{:03}", time.ordinal()),
        "__2" => write!(written, "{:3}", time.ordinal()),
        "15" => write!(written, "{hour:02}"),
        "03" => write!(written, "{hour12:02}"),
        "3" => write!(written, "{hour12}"),
        "04" => write!(written, "{:02}", time.minute()),
        "4" => write!(written, "{}", time.minute()),
        "05" => write!(written, "{:02}", time.second()),
        "5" => write!(written, "{}", time.second()),
        "PM" => write!(written, "{}", if hour < 12 { "AM" } else { "PM" }),
        "pm" => write!(written, "{}", if hour < 12 { "am" } else { "pm" }),
        zone if zone.starts_with('Z') => write!(written, "Z"),
        zone => write!(written, "{}", zone.replace('-', "+").replace('7', "0")),
    };
    // Writing to a string cannot fail.
    result.ok().map(|()| element.len())
}

/// Elements other than the names of months and days.
const ELEMENTS: [&str; 30] = [
    "2006",
    "_2006",
    "MST",
    "002",
    "__2",
    "01",
    "02",
    "03",
    "04",
    "05",
    "06",
    "15",
    "_2",
    "1",
    "2",
    "3",
    "4",
    "5",
    "PM",
    "pm",
    "-07:00:00",
    "-070000",
    "-07:00",
    "-0700",
    "-07",
    "Z07:00:00",
    "Z070000",
    "Z07:00",
    "Z0700",
    "Z07",
];

/// Writes a fraction of a second if the layout begins with one: a point or a comma, zeros or nines, and no digit after them.
/// Nines drop trailing zeros, and the point if nothing follows it.
fn write_fraction(time: OffsetDateTime, layout: &str, written: &mut String) -> Option<usize> {
    let point = layout.chars().next().filter(|first| ['.', ','].contains(first))?;
    let digits = &layout[1..];
    let digit = digits.chars().next().filter(|first| ['0', '9'].contains(first))?;
    let count = digits.len() - digits.trim_start_matches(digit).len();
    if digits[count..].starts_with(|next: char| next.is_ascii_digit()) {
        return None;
    }
    let nanos = format!("{:09}", time.nanosecond());
    let fraction = format!("{}{}", &nanos[..count.min(9)], "0".repeat(count.saturating_sub(9)));
    let fraction = if digit == '9' { fraction.trim_end_matches('0') } else { &fraction };
    if !fraction.is_empty() {
        written.push(point);
        written.push_str(fraction);
    }
    Some(1 + count)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_has_the_form_of_its_layout() {
        let now = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 120_000_000);
        let check = |layout, expected: &str| assert_eq!(format_time(now, layout), expected, "{layout}");
        check("unix", "1700000000");
        check("2006-01-02T15:04:05Z07:00", "2023-11-14T22:13:20Z");
        check("Mon, 02 Jan 2006 03:04 PM MST", "Tue, 14 Nov 2023 10:13 PM UTC");
        check("Monday, January 06 \u{fc}", "Tuesday, November 23 \u{fc}");
        check("1/2/06 3:4:5pm", "11/14/23 10:13:20pm");
        check("2006-01-02T15:04:05.000Z", "2023-11-14T22:13:20.120Z");
        check("05.999 05,99999 05.0 .0001", "20.12 20,12 20.1 .0011");
        check("Z0700 Z07 -07 -0700 -07:00:00", "Z Z +00 +0000 +00:00:00");
        check("002 __2 _2006 Janet Monk", "318 318 _2023 Janet Monk");
        let early = SystemTime::UNIX_EPOCH + Duration::from_secs(4 * 24 * 3600 + 3661);
        let check = |layout, expected: &str| assert_eq!(format_time(early, layout), expected, "{layout}");
        check("Jan _2 15:04:05", "Jan  5 01:01:01");
        check("__2 002 5 .999|.000", "  5 005 1 |.000");
    }
}
