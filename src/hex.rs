//! Encodes bytes as hexadecimal digits without leaving copies of them in memory.

/// Encodes bytes as lower-case hexadecimal digits.
pub(crate) fn encode_hex(bytes: &[u8]) -> String {
    // One allocation: a string that grows leaves copies of a secret in freed memory.
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or_default();
    let mut text = String::with_capacity(2 * bytes.len() + 1);
    text.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
    text
}
