//! Searches bytes for a token.

use std::sync::Arc;

use http::HeaderMap;
use memchr::memmem::Finder;

use crate::token::Token;

/// Searches for one token. It is built once for each token: that costs as much as several searches.
#[derive(Debug)]
pub(super) struct TokenFinder {
    token: Arc<Token>,
    prefix: Finder<'static>,
}

impl TokenFinder {
    pub(super) fn new(token: Arc<Token>) -> Self {
        let prefix = find_prefix(token_bytes(&token)).into_owned();
        Self { token, prefix }
    }

    /// Returns the bytes of the token.
    pub(super) fn token(&self) -> &[u8] {
        token_bytes(&self.token)
    }

    /// Returns true if `text` contains the token.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        contains(text, self.token(), &self.prefix)
    }

    pub(super) fn is_in_headers(&self, headers: &HeaderMap) -> bool {
        headers.values().any(|value| self.is_in(value.as_bytes()))
    }
}

fn token_bytes(token: &Token) -> &[u8] {
    token.secret.secret().expose_bytes()
}

/// Builds the search for the first bytes of a token by vector instructions, which the library does not use for longer patterns.
fn find_prefix(token: &[u8]) -> Finder<'_> {
    Finder::new(token.get(..VECTOR_SEARCH_LEN).unwrap_or(token))
}

fn contains(text: &[u8], token: &[u8], prefix: &Finder<'_>) -> bool {
    let mut rest = text;
    // Skips most headers, which are shorter.
    while rest.len() >= token.len() {
        let Some(candidate) = prefix.find(rest).and_then(|at| rest.get(at..)) else { return false };
        if candidate.starts_with(token) {
            return true;
        }
        // The next match may overlap with this one.
        rest = candidate.get(1..).unwrap_or_default();
    }
    false
}

/// Returns the length of the longest suffix of `text` that is a proper prefix of the token.
pub(super) fn partial_match_len(token: &[u8], text: &[u8]) -> usize {
    let (Some(first), max) = (token.first(), token.len().saturating_sub(1)) else { return 0 };
    let end = text.get(text.len().saturating_sub(max)..).unwrap_or_default();
    let starts = memchr::memchr_iter(*first, end).filter_map(|at| end.get(at..));
    starts.into_iter().find(|end| token.starts_with(end)).map_or(0, <[u8]>::len)
}

/// The longest pattern that `memchr` searches by only vector instructions, in bytes.
const VECTOR_SEARCH_LEN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_at_any_offset_and_a_partial_match_at_the_end_is_measured() {
        let token = b"hvs.hvs.CAESIJ-a-token-that-is-longer-than-32-bytes";
        let prefix = find_prefix(token);
        let check = |text: &[u8], expected: (bool, usize)| {
            let found = (contains(text, token, &prefix), partial_match_len(token, text));
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(text));
        };
        check(b"", (false, 0));
        check(b"hvs.other", (false, 0));
        check(token, (true, 0));
        check(&[b"hvs.".as_slice(), token, b"x"].concat(), (true, 0));
        check(b"a body ends with h", (false, 1));
        check(b"a body ends with hvs.hvs.", (false, 8));
        check(b"a body ends with hvs.hvs.hvs.", (false, 8));
        check(b"hvs.hvs.CAESIJ-a-token-that-is-longer-than-33-bytes", (false, 0));
        for split in 1..token.len() {
            check(&token[..split], (false, split));
            check(&[b"hvs.", &token[..split]].concat(), (false, if split <= 4 { split + 4 } else { split }));
        }
    }
}
