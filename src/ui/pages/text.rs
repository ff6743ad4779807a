//! Texts of other parts on a page: error codes become links to their explanation, and text between backticks becomes code.

use keyward_telemetry::error_code::ErrorCode;
use maud::{Markup, html};

/// Length of a code such as `KW-1203`, in bytes.
const CODE_LENGTH: usize = 7;

/// Builds a text with its codes as links, and without its pairs of backticks.
pub(super) fn rich(text: &str) -> Markup {
    let pieces: Vec<&str> = text.split('`').collect();
    // One backtick without another is a character like any other.
    if pieces.len().is_multiple_of(2) {
        return with_codes(text);
    }
    html! {
        @for (index, piece) in pieces.iter().enumerate() {
            @if index % 2 == 1 { code { (piece) } } @else { (with_codes(piece)) }
        }
    }
}

/// Builds a text with its codes as links.
pub(super) fn with_codes(text: &str) -> Markup {
    html! {
        @for (piece, code) in split_at_codes(text) {
            @if let Some(code) = code { a href=(code_link(code)) { (piece) } } @else { (piece) }
        }
    }
}

/// Path of the explanation of a code.
pub(super) fn code_link(code: ErrorCode) -> String {
    format!("/codes/{code}")
}

/// Splits a text before and after each code; the pieces together are the text.
fn split_at_codes(text: &str) -> Vec<(&str, Option<ErrorCode>)> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut from = 0;
    while let Some(found) = rest[from..].find("KW-") {
        let start = from + found;
        let end = start + CODE_LENGTH;
        let code = rest.get(start..end).and_then(|code| code.parse().ok());
        let goes_on = rest.get(end..).is_some_and(|after| after.starts_with(|next: char| next.is_ascii_alphanumeric()));
        match code.filter(|_| !goes_on) {
            Some(code) => {
                pieces.push((&rest[..start], None));
                pieces.push((&rest[start..end], Some(code)));
                (rest, from) = (&rest[end..], 0);
            }
            None => from = start + "KW-".len(),
        }
    }
    pieces.push((rest, None));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_links_and_backticks_are_code() {
        let check = |text: &str, expected: &str| assert_eq!(rich(text).into_string(), expected, "{text}");
        check("refused [KW-1203]", r#"refused [<a href="/codes/KW-1203">KW-1203</a>]"#);
        check("KW-1203KW-1203", r#"KW-1203<a href="/codes/KW-1203">KW-1203</a>"#);
        check("KW-12034, KW-0000, KW-", "KW-12034, KW-0000, KW-");
        check("run `chmod <f>` now", "run <code>chmod &lt;f&gt;</code> now");
        check("a ` alone", "a ` alone");
        check("KW-é1203 KW-120é", "KW-é1203 KW-120é");
    }
}
