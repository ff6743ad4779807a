//! Makes a server's text safe for logs and errors, and parses `Date` and `Retry-After`.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// Longest text of a server that is kept, in characters: enough for the errors that Azure nests in it.
const MAX_TEXT_LENGTH: usize = 1000;

/// Removes control characters, credentials and excess length from a server's text. `sent` is the call's credential,
/// which a server might echo.
pub fn sanitize(text: &str, sent: &str) -> String {
    let text = if sent.is_empty() { text.to_owned() } else { text.replace(sent, REDACTED) };
    let mut clean = String::new();
    for (index, word) in text.split(' ').enumerate() {
        if index > 0 {
            clean.push(' ');
        }
        if looks_secret(word) {
            clean.push_str(REDACTED);
        } else {
            clean.extend(word.chars().flat_map(|character| {
                let safe = !character.is_control() && !is_invisible(character);
                let escaped = (!safe).then(|| character.escape_default());
                safe.then_some(character).into_iter().chain(escaped.into_iter().flatten())
            }));
        }
        if clean.len() > MAX_TEXT_LENGTH * 4 {
            break;
        }
    }
    match clean.char_indices().nth(MAX_TEXT_LENGTH) {
        Some((end, _)) => format!("{}...", &clean[..end]),
        None => clean,
    }
}

/// Returns true if a word looks like a JWT or a Vault token.
fn looks_secret(word: &str) -> bool {
    let starts = |prefix: &str, length: usize| word.find(prefix).is_some_and(|at| word.len() - at > length);
    starts("eyJ", 20) || ["hvs.", "hvb.", "hvr."].iter().any(|prefix| starts(prefix, 8))
}

/// Returns true for characters that reorder or hide text on a terminal: bidirectional controls and zero-width
/// characters.
const fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

const REDACTED: &str = "[redacted]";

/// Parses the `Date` of a response.
pub fn parse_date_header(headers: &HeaderMap) -> Option<SystemTime> {
    parse_date(headers.get(http::header::DATE)?.to_str().ok()?)
}

/// Parses `Retry-After` (RFC 9110, 10.2.3): seconds, or a date, which is relative to the response's own date. The
/// result is clamped to 1 second to 15 minutes; `None` if it is malformed.
pub fn parse_retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        parse_date(value)?.duration_since(now).unwrap_or_default()
    };
    Some(wait.clamp(MIN_WAIT, MAX_WAIT))
}

// A 0 would have all clients return at once; a date with a wrong clock may lie days ahead.
const MIN_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_mins(15);

fn parse_date(value: &str) -> Option<SystemTime> {
    OffsetDateTime::parse(value, &Rfc2822).ok().map(SystemTime::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_clamped_and_malformed_values_are_ignored() {
        let now = parse_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let check = |value: &'static str, expected: Option<u64>| {
            let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, value.parse().unwrap())]);
            assert_eq!(parse_retry_after(&headers, now), expected.map(Duration::from_secs), "{value}");
        };
        check("7", Some(7));
        check(" 7 ", Some(7));
        check("0", Some(1));
        check("999999", Some(900));
        check("99999999999999999999999", Some(900));
        check("-1", None);
        check("+5", None);
        check("1.5", None);
        check("soon", None);
        check("", None);
        check("Sun, 06 Nov 1994 08:50:37 GMT", Some(60));
        check("Sun, 06 Nov 1994 08:00:00 GMT", Some(1));
        check("Sun, 06 Nov 2094 08:00:00 GMT", Some(900));
        check("Sun, 99 Nov 1994 08:00:00 GMT", None);
    }

    #[test]
    fn a_servers_text_is_truncated_escaped_and_redacted() {
        let check = |text: &str, expected: &str| assert_eq!(sanitize(text, "sent-secret"), expected);
        check("permission denied", "permission denied");
        check("two\nlines\u{1b}[31m\u{202e}", "two\\nlines\\u{1b}[31m\\u{202e}");
        check("got sent-secret back", "got [redacted] back");
        check("got \"eyJhbGciOiJSUzI1NiJ9.e30.c2ln\" back", "got [redacted] back");
        check("token hvs.CAESIJ12345678 is", "token [redacted] is");
        check("issuer \"https://sts.windows.net/\"", "issuer \"https://sts.windows.net/\"");
        assert_eq!(sanitize(&"é".repeat(5000), "x").chars().count(), MAX_TEXT_LENGTH + 3);
    }
}
