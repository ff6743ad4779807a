//! Header names and maps of parsed heads, without an allocation for most of them.

use std::cell::Cell;

use http::header::InvalidHeaderName;
use http::{HeaderMap, HeaderName};

/// Parses a header name. The names that clients of Vault and Consul send with each request are shared.
pub(crate) fn parse_name(bytes: &[u8]) -> Result<HeaderName, InvalidHeaderName> {
    if let Some(b'x' | b'X') = bytes.first()
        && let Some(known) = KNOWN_NAMES.iter().find(|known| known.as_str().as_bytes().eq_ignore_ascii_case(bytes))
    {
        return Ok(known.clone());
    }
    HeaderName::from_bytes(bytes)
}

static KNOWN_NAMES: [HeaderName; 4] = [
    HeaderName::from_static("x-vault-request"),
    HeaderName::from_static("x-vault-token"),
    HeaderName::from_static("x-vault-namespace"),
    HeaderName::from_static("x-consul-token"),
];

thread_local! {
    static SPARE: Cell<Option<HeaderMap>> = const { Cell::new(None) };
}

/// Returns an empty map for this many headers: the thread's spare one, or a new one.
pub(crate) fn take_map(headers: usize) -> HeaderMap {
    let mut map = SPARE.take().unwrap_or_default();
    map.reserve(headers);
    map
}

/// Keeps a map of a head that was sent for the next one that is received.
pub(crate) fn recycle_map(mut map: HeaderMap) {
    if map.capacity() <= MAX_SPARE {
        map.clear();
        SPARE.set(Some(map));
    }
}

/// Largest capacity of the spare map, in headers.
const MAX_SPARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_parsed_in_any_case_known_or_not() {
        for (text, expected) in [("X-Vault-Token", "x-vault-token"), ("x-other", "x-other"), ("HOST", "host")] {
            assert_eq!(parse_name(text.as_bytes()).unwrap(), expected);
        }
        assert!(parse_name(b"x vault").is_err() && parse_name(b"").is_err());
    }

    #[test]
    fn a_spare_map_is_empty() {
        let mut map = take_map(2);
        map.insert("a", http::HeaderValue::from_static("secret"));
        recycle_map(map);
        assert!(take_map(1).is_empty());
    }
}
