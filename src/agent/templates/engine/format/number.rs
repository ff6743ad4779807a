//! Numbers by verb.

use super::directive::Flags;
use crate::templates::engine::float::format_float;
use crate::templates::engine::output::Buffer;
use crate::templates::engine::quote::{is_printable, quote_char};

/// Most digits of a floating-point number; Rust formats no more than 65535.
const MAX_PRECISION: usize = 10_000;

/// Formats an integer; returns false if it has no such verb.
pub(super) fn format_integer(out: &mut Buffer, flags: &Flags, number: i128, verb: char) -> bool {
    let absolute = number.unsigned_abs();
    let as_char = || u32::try_from(number).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
    let (digits, prefix) = match verb {
        'd' | 'v' => (absolute.to_string(), ""),
        'b' => (format!("{absolute:b}"), if flags.sharp { "0b" } else { "" }),
        'o' => (format!("{absolute:o}"), if flags.sharp { "0" } else { "" }),
        'O' => (format!("{absolute:o}"), "0o"),
        'x' => (format!("{absolute:x}"), if flags.sharp { "0x" } else { "" }),
        'X' => (format!("{absolute:X}"), if flags.sharp { "0X" } else { "" }),
        'c' => {
            flags.pad(out, as_char().encode_utf8(&mut [0; 4]));
            return true;
        }
        'q' => {
            flags.pad(out, &quote_char(as_char(), flags.plus));
            return true;
        }
        'U' => {
            let c = as_char();
            let name = if flags.sharp && is_printable(c) { format!(" '{c}'") } else { String::new() };
            flags.pad(
                out,
                &format!("U+{absolute:0width$X}{name}", width = flags.precision.unwrap_or(4).clamp(4, MAX_PRECISION)),
            );
            return true;
        }
        _ => return false,
    };
    if number == 0 && flags.precision == Some(0) {
        Flags { zero: false, ..flags.clone() }.pad(out, "");
        return true;
    }
    let sign = sign(flags, number < 0);
    let wanted = match (flags.precision, flags.width) {
        (Some(precision), _) => precision,
        (None, Some(width)) if flags.zero => width.saturating_sub(sign.len()),
        _ => 0,
    };
    let zeros = "0".repeat(wanted.saturating_sub(digits.len()));
    Flags { zero: false, ..flags.clone() }.pad(out, &format!("{sign}{prefix}{zeros}{digits}"));
    true
}

/// Formats a secret's number by a verb for numbers, where Go writes that it is none; returns false for another verb.
pub(super) fn format_digits(out: &mut Buffer, flags: &Flags, digits: &str, verb: char) -> bool {
    match verb {
        'd' | 'b' | 'o' | 'O' | 'c' | 'U' => {
            digits.parse().is_ok_and(|number: i64| format_integer(out, flags, i128::from(number), verb))
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            digits.parse().is_ok_and(|number: f64| format_floating(out, flags, number, verb))
        }
        _ => false,
    }
}

const fn sign(flags: &Flags, is_negative: bool) -> &'static str {
    match () {
        () if is_negative => "-",
        () if flags.plus => "+",
        () if flags.space => " ",
        () => "",
    }
}

/// Formats a floating-point number; returns false if it has no such verb.
pub(super) fn format_floating(out: &mut Buffer, flags: &Flags, number: f64, verb: char) -> bool {
    let (verb, precision) = match verb {
        'v' | 'g' => (b'g', flags.precision),
        'G' => (b'G', flags.precision),
        'e' => (b'e', flags.precision.or(Some(6))),
        'E' => (b'E', flags.precision.or(Some(6))),
        'f' | 'F' => (b'f', flags.precision.or(Some(6))),
        _ => return false,
    };
    let written = format_float(number, verb, precision.map(|precision| precision.min(MAX_PRECISION)), flags.sharp);
    let body = written.trim_start_matches(['-', '+']);
    let is_negative = written.starts_with('-');
    let sign = if number.is_infinite() && !is_negative { "+" } else { sign(flags, is_negative) };
    let zeros = match flags.width {
        Some(width) if flags.zero && number.is_finite() => width.saturating_sub(sign.len() + body.len()),
        _ => 0,
    };
    Flags { zero: false, ..flags.clone() }.pad(out, &format!("{sign}{}{body}", "0".repeat(zeros)));
    true
}
