//! Texts and characters in Go's quotes.

use std::fmt::Write as _;

/// Quotes a text as a string of Go; with `ascii`, other characters are escaped.
pub(in crate::templates) fn quote(text: &str, ascii: bool) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    text.chars().for_each(|c| push_escaped(&mut quoted, c, '"', ascii));
    quoted.push('"');
    quoted
}

/// Quotes a character.
pub(super) fn quote_char(c: char, ascii: bool) -> String {
    let mut quoted = String::from("'");
    push_escaped(&mut quoted, c, '\'', ascii);
    quoted.push('\'');
    quoted
}

/// Returns true if a text can stand between backquotes: one line without a backquote.
pub(super) fn fits_in_backquotes(text: &str) -> bool {
    text.chars().all(|c| c != '`' && c != '\u{feff}' && c != '\u{7f}' && (c >= ' ' || c == '\t'))
}

fn push_escaped(quoted: &mut String, c: char, mark: char, ascii: bool) {
    let short = match c {
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\u{c}' => 'f',
        '\n' => 'n',
        '\r' => 'r',
        '\t' => 't',
        '\u{b}' => 'v',
        '\\' => '\\',
        c if c == mark => mark,
        c => {
            if is_printable(c) && (c.is_ascii() || !ascii) {
                quoted.push(c);
                return;
            }
            let code = u32::from(c);
            // Writing to a string cannot fail.
            let _ = match code {
                0..0x20 | 0x7f => write!(quoted, "\\x{code:02x}"),
                0x20..0x1_0000 => write!(quoted, "\\u{code:04x}"),
                _ => write!(quoted, "\\U{code:08x}"),
            };
            return;
        }
    };
    quoted.push('\\');
    quoted.push(short);
}

/// Returns true for letters, marks, numbers, punctuation, symbols and the space.
pub(in crate::templates) fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // Rust escapes the same classes, and after the first character no marks.
    format!("{:?}", format!("a{c}")).chars().nth(2) != Some('\\')
}
