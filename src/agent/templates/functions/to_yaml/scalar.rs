//! Texts in YAML: plain, in quotes, or as a block.

use super::{WIDTH, Writer};

/// Properties of a text that decide how it can be written.
#[derive(Debug, Default)]
struct Properties {
    has_special: bool,
    has_break: bool,
    has_indicator: bool,
    begins_with_blank: bool,
    ends_with_blank: bool,
    ends_with_space: bool,
    has_space_after_break: bool,
    has_break_after_space: bool,
}

const fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

const fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{1_0000}'..)
}

fn inspect(text: &str) -> Properties {
    let mut found =
        Properties { has_indicator: text.starts_with("---") || text.starts_with("..."), ..Properties::default() };
    let chars: Vec<char> = text.chars().collect();
    let is_blank = |at: usize| chars.get(at).is_none_or(|c| matches!(c, ' ' | '\t') || is_break(*c));
    for (at, c) in chars.iter().copied().enumerate() {
        let (is_first, is_last) = (at == 0, at + 1 == chars.len());
        let previous = at.checked_sub(1).map(|at| chars[at]);
        found.has_indicator |= match c {
            '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`'
                if is_first =>
            {
                true
            }
            '?' | '-' if is_first => is_blank(at + 1),
            ':' => is_blank(at + 1),
            '#' => is_blank(at - 1),
            _ => false,
        };
        found.has_special |= !is_printable(c);
        if c == ' ' {
            found.begins_with_blank |= is_first;
            found.ends_with_blank |= is_last;
            found.ends_with_space |= is_last;
            found.has_space_after_break |= previous.is_some_and(is_break);
        } else if is_break(c) {
            found.has_break = true;
            found.begins_with_blank |= is_first;
            found.ends_with_blank |= is_last;
            found.has_break_after_space |= previous == Some(' ');
        }
    }
    found
}

/// Writes a text. `indent` is that of its further lines, which only a value has.
pub(super) fn write(writer: &mut Writer, text: &str, indent: usize, is_value: bool) {
    let found = inspect(text);
    let is_never_plain = found.has_special || found.has_break_after_space || found.has_space_after_break;
    let wants_block = text.contains('\n');
    let can_be_block = is_value && !found.ends_with_space && !found.has_break_after_space && !found.has_special;
    if wants_block && can_be_block {
        return write_block(writer, text, indent);
    }
    if wants_block || is_other_type(text) || found.has_special || found.has_break_after_space {
        return write_double(writer, text, indent, is_value);
    }
    if is_never_plain || found.has_break || found.has_indicator || found.begins_with_blank || found.ends_with_blank {
        // Single quotes cannot hold a break before a space.
        if found.has_space_after_break {
            return write_double(writer, text, indent, is_value);
        }
        return write_single(writer, text, indent, is_value);
    }
    write_folded(writer, text, indent, is_value, |_, _| false);
}

/// Writes characters; a space beyond the width of a line becomes a line end.
fn write_folded(
    writer: &mut Writer,
    text: &str,
    indent: usize,
    is_value: bool,
    escape: impl Fn(&mut Writer, char) -> bool,
) {
    let mut chars = text.chars().peekable();
    let mut is_after_space = false;
    let mut is_first = true;
    while let Some(c) = chars.next() {
        let is_inner = !is_first && chars.peek().is_some_and(|next| *next != ' ');
        if c == ' ' && is_value && is_inner && !is_after_space && writer.column > WIDTH {
            writer.line(indent);
        } else if !escape(writer, c) {
            writer.push_char(c);
        }
        is_after_space = c == ' ';
        is_first = false;
    }
}

fn write_single(writer: &mut Writer, text: &str, indent: usize, is_value: bool) {
    writer.push("'");
    write_folded(writer, text, indent, is_value, |writer, c| {
        if c == '\'' {
            writer.push("''");
        }
        c == '\''
    });
    writer.push("'");
}

fn write_double(writer: &mut Writer, text: &str, indent: usize, is_value: bool) {
    writer.push("\"");
    let mut chars = text.chars().peekable();
    let (mut is_after_space, mut is_first) = (false, true);
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        if c == ' ' && is_value && !is_after_space && !is_first && next.is_some() && writer.column > WIDTH {
            writer.line(indent);
            if next == Some(' ') {
                writer.push("\\");
            }
        } else {
            write_escaped(writer, c);
        }
        is_after_space = c == ' ';
        is_first = false;
    }
    writer.push("\"");
}

fn write_escaped(writer: &mut Writer, c: char) {
    let code = u32::from(c);
    let escape = match c {
        '\0' => "\\0",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\u{b}' => "\\v",
        '\u{c}' => "\\f",
        '\r' => "\\r",
        '\u{1b}' => "\\e",
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{85}' => "\\N",
        '\u{a0}' => "\\_",
        '\u{2028}' => "\\L",
        '\u{2029}' => "\\P",
        c if is_printable(c) => return writer.push_char(c),
        _ if code <= 0xff => return writer.push(&format!("\\x{code:02X}")),
        _ if code <= 0xffff => return writer.push(&format!("\\u{code:04X}")),
        _ => return writer.push(&format!("\\U{code:08X}")),
    };
    writer.push(escape);
}

/// Writes lines as a block, whose head says what happens to the line ends after them.
fn write_block(writer: &mut Writer, text: &str, indent: usize) {
    writer.push("|");
    if text.starts_with([' ', '\n']) {
        writer.push("2");
    }
    match text.strip_suffix('\n') {
        None => writer.push("-"),
        Some(rest) if rest.is_empty() || rest.ends_with('\n') => writer.push("+"),
        Some(_) => {}
    }
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        if line.is_empty() {
            writer.line(0);
        } else {
            writer.line(indent);
            writer.push(line);
        }
    }
}

/// Returns true if a parser of YAML 1.1 or 1.2 would read the plain text as another type.
pub(super) fn is_other_type(text: &str) -> bool {
    const WORDS: [&str; 31] = [
        "", "~", "null", "Null", "NULL", "y", "Y", "yes", "Yes", "YES", "n", "N", "no", "No", "NO", "on", "On", "ON",
        "off", "Off", "OFF", "true", "True", "TRUE", "false", "False", "FALSE", ".nan", ".NaN", ".NAN", ".inf",
    ];
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    WORDS.contains(&text)
        || [".inf", ".Inf", ".INF"].contains(&unsigned)
        || is_number(unsigned)
        || is_sixties(unsigned)
        || is_date(text)
}

fn is_number(unsigned: &str) -> bool {
    let plain = unsigned.replace('_', "");
    let digits = plain.to_ascii_lowercase();
    let radix = |prefix: &str, radix: u32| {
        digits.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_digit(radix)))
    };
    let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return false;
    }
    is_integer || radix("0x", 16) || radix("0o", 8) || radix("0b", 2) || is_decimal(&plain)
}

fn is_decimal(plain: &str) -> bool {
    let (mantissa, exponent) = match plain.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (plain, None),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    is_digits(whole)
        && is_digits(fraction)
        && (!whole.is_empty() || !fraction.is_empty())
        && exponent.is_none_or(|digits| !digits.is_empty() && is_digits(digits))
}

/// Returns true for numbers to the base of sixty, such as `1:30`.
fn is_sixties(unsigned: &str) -> bool {
    let mut parts = unsigned.split(':');
    let Some(first) = parts.next() else { return false };
    let rest: Vec<&str> = parts.collect();
    let is_part = |(at, part): (usize, &&str)| {
        let part = if at + 1 == rest.len() { part.split_once('.').map_or(*part, |(whole, _)| whole) } else { part };
        part.len() <= 2 && part.parse::<u8>().is_ok_and(|number| number < 60)
    };
    first.starts_with(|c: char| c.is_ascii_digit())
        && first.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
        && !rest.is_empty()
        && rest.iter().enumerate().all(is_part)
}

/// Returns true for a date, or a date and a time.
fn is_date(text: &str) -> bool {
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let parts: Vec<&str> = date.split('-').collect();
    let in_range = |part: &str, max: u8| {
        (1..=2).contains(&part.len()) && part.parse::<u8>().is_ok_and(|number| (1..=max).contains(&number))
    };
    let is_day = matches!(parts.as_slice(), [year, month, day]
        if year.len() == 4 && year.bytes().all(|byte| byte.is_ascii_digit()) && in_range(month, 12) && in_range(day, 31));
    is_day && time.is_none_or(|time| time.starts_with(|c: char| c.is_ascii_digit()) && time.contains(':'))
}
