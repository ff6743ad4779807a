//! Constants in Go's syntax.

use crate::templates::engine::tree::ExprKind;
use crate::templates::engine::value::Failure;

/// Parses a number with an optional sign.
pub(super) fn number(text: &str) -> Result<ExprKind, Failure> {
    let plain = text.replace('_', "");
    let (is_negative, digits) = match plain.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, body) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', _, ..] if lower.bytes().all(|byte| byte.is_ascii_digit()) => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if body.chars().all(|c| c.is_digit(radix)) && !body.is_empty() {
        let Ok(number) = i128::from_str_radix(body, radix) else { return Ok(ExprKind::TooLarge) };
        let number = if is_negative { -number } else { number };
        return Ok(i64::try_from(number).map_or(ExprKind::TooLarge, ExprKind::Int));
    }
    let number = match radix {
        16 => hexadecimal(body),
        8 | 2 => None,
        _ => body.parse().ok(),
    };
    match number {
        Some(number) if f64::is_finite(number) => Ok(ExprKind::Float(if is_negative { -number } else { number })),
        _ => Err(Failure::new("bad number syntax")),
    }
}

/// Parses a hexadecimal mantissa with a binary exponent.
fn hexadecimal(body: &str) -> Option<f64> {
    let (mantissa, exponent) = body.split_once('p')?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut value = 0.0;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let shift = i32::try_from(fraction.len()).ok()?.checked_mul(4)?;
    Some(value * 2.0_f64.powi(exponent.checked_sub(shift)?))
}

/// Parses a character in single quotes; it is its number.
pub(super) fn character(quoted: &str) -> Result<ExprKind, Failure> {
    let error = || Failure::new("malformed character");
    let inner = quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).ok_or_else(error)?;
    let mut chars = inner.chars();
    let code = match chars.next().ok_or_else(error)? {
        '\\' => match escape(&mut chars, '\'').ok_or_else(error)? {
            Escaped::Char(c) => u32::from(c),
            Escaped::Byte(byte) => u32::from(byte),
        },
        c => u32::from(c),
    };
    if chars.next().is_some() { Err(error()) } else { Ok(ExprKind::Int(i64::from(code))) }
}

/// Removes the double quotes and escapes of a string.
pub(super) fn unquote(quoted: &str) -> Result<String, Failure> {
    let error = || Failure::new("invalid escape in a string");
    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or_else(error)?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        let c = match c {
            '\\' => match escape(&mut chars, '"').ok_or_else(error)? {
                Escaped::Char(c) => c,
                Escaped::Byte(byte) => {
                    bytes.push(byte);
                    continue;
                }
            },
            c => c,
        };
        bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| Failure::new("a string is not UTF-8"))
}

enum Escaped {
    Char(char),
    Byte(u8),
}

/// Reads an escape after its backslash.
fn escape(chars: &mut std::str::Chars<'_>, mark: char) -> Option<Escaped> {
    let c = match chars.next()? {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' => '\\',
        c if c == mark => c,
        'x' => return Some(Escaped::Byte(u8::try_from(digits(chars, 2, 16, 0)?).ok()?)),
        'u' => char::from_u32(digits(chars, 4, 16, 0)?)?,
        'U' => char::from_u32(digits(chars, 8, 16, 0)?)?,
        c => return Some(Escaped::Byte(u8::try_from(digits(chars, 2, 8, c.to_digit(8)?)?).ok()?)),
    };
    Some(Escaped::Char(c))
}

/// Reads this many digits after a first one.
fn digits(chars: &mut std::str::Chars<'_>, count: usize, radix: u32, first: u32) -> Option<u32> {
    (0..count).try_fold(first, |code, _| code.checked_mul(radix)?.checked_add(chars.next()?.to_digit(radix)?))
}
