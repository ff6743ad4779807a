//! Encodes bytes as hexadecimal digits, and back.

/// Encodes bytes as lower-case hexadecimal digits.
pub fn encode_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.extend(encode_hex_byte(*byte).map(char::from));
    }
    text
}

/// Returns the two lower-case hexadecimal digits of a byte.
pub(crate) const fn encode_hex_byte(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[(byte >> 4) as usize], DIGITS[(byte & 15) as usize]]
}

/// Decodes hexadecimal digits of either case into `bytes`. Returns false if the text is not that many digits.
pub fn decode_hex(text: &[u8], bytes: &mut [u8]) -> bool {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.chunks_exact(2);
    text.len() == 2 * bytes.len()
        && bytes.iter_mut().zip(pairs).all(|(byte, pair)| match (digit(pair[0]), digit(pair[1])) {
            (Some(high), Some(low)) => {
                *byte = high << 4 | low;
                true
            }
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_decoded_in_either_case_and_other_texts_are_refused() {
        let mut bytes = [0; 3];
        assert!(decode_hex(b"00aBff", &mut bytes));
        assert_eq!((bytes, encode_hex(&bytes).as_str()), ([0, 0xab, 0xff], "00abff"));
        for text in ["", "00abf", "00abff0", "00abfg", "00ab+f", "00abf\u{fc}"] {
            assert!(!decode_hex(text.as_bytes(), &mut bytes), "{text}");
        }
    }
}
