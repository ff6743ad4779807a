//! Integers in Go's syntax.

/// Parses an integer with an optional sign and the prefixes `0x`, `0o`, `0b` and `0`.
pub(super) fn parse_integer(text: &str) -> Option<i128> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] if digits.is_ascii() => (8, &digits[1..]),
        _ => (10, digits),
    };
    // No second sign, which Rust would parse.
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let number = i128::from_str_radix(digits, radix).ok()?;
    Some(if is_negative { -number } else { number })
}
