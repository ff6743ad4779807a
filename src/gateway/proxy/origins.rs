//! Prefixes of links into the platform's API, in every spelling of its address.

use std::sync::atomic::{AtomicBool, Ordering};

use url::Url;

/// All prefixes of links into one platform's API.
#[derive(Debug)]
pub(super) struct LinkPrefixes {
    prefixes: Vec<Prefix>,
    max_prefix_length: usize,
    /// True once links of another origin have been logged.
    has_warned: AtomicBool,
}

#[derive(Debug)]
struct Prefix {
    /// Complete prefix, such as `https://tfe.example.com:443/api/`.
    text: Vec<u8>,
    /// Length of scheme, host and port, which are compared case-insensitively (RFC 3986, 6.2.2.1).
    origin: usize,
}

/// Result of comparing the start of a string with the prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrefixMatch {
    /// It equals a prefix.
    Full,
    /// It may become a prefix with more bytes.
    Partial,
    /// It begins no prefix.
    None,
}

/// Path of every link into the API, after the origin.
const API: &str = "/api/";

impl LinkPrefixes {
    /// Creates the prefixes from the platform's addresses (only scheme, host and port are used), with and without the
    /// default port.
    pub(super) fn new<'a>(addresses: impl IntoIterator<Item = &'a Url>) -> Self {
        let mut prefixes = Vec::new();
        for address in addresses {
            let Some(host) = address.host_str() else { continue };
            let bare = format!("{}://{host}", address.scheme());
            let with_port = address.port_or_known_default().map(|port| format!("{bare}:{port}"));
            let is_default = address.port().is_none();
            prefixes.extend(
                is_default
                    .then_some(bare)
                    .into_iter()
                    .chain(with_port)
                    .map(|origin| Prefix { origin: origin.len(), text: [origin.as_str(), API].concat().into_bytes() }),
            );
        }
        let max_prefix_length = prefixes.iter().map(|prefix| prefix.text.len()).max().unwrap_or_default();
        Self { prefixes, max_prefix_length, has_warned: AtomicBool::new(false) }
    }

    /// Returns the prefix of links to another origin (`http://HOST:PORT`, no trailing slash).
    pub(super) fn prefix_for(origin: &str) -> Vec<u8> {
        [origin, API].concat().into_bytes()
    }

    /// Length of the longest prefix, in bytes.
    pub(super) const fn max_prefix_length(&self) -> usize {
        self.max_prefix_length
    }

    /// Returns the length of the prefix that `text` begins with.
    pub(super) fn prefix_length(&self, text: &[u8]) -> Option<usize> {
        let matches = |prefix: &&Prefix| {
            text.get(..prefix.text.len()).is_some_and(|start| prefix.starts_with_ignoring_origin_case(start))
        };
        self.prefixes.iter().find(matches).map(|prefix| prefix.text.len())
    }

    /// Warns once if the start of a link leads to the API at an address that is not known as the platform's: a client that
    /// follows it leaves the gateway.
    pub(super) fn warn_of_unknown(&self, link: &[u8]) {
        if !link.starts_with(b"http") || self.has_warned.load(Ordering::Relaxed) {
            return;
        }
        let end = link.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(link.len());
        let Some(origin) = link.get(..end).and_then(unknown_origin) else { return };
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                event = "gateway.links.unknown",
                origin,
                "links of the platform begin with an address that is not its own; add it to gateway.aliases, or clients that \
                 follow them leave the gateway"
            );
        }
    }

    /// Compares a string of which only the start is known.
    pub(super) fn compare(&self, start: &[u8]) -> PrefixMatch {
        let mut comparison = PrefixMatch::None;
        for prefix in self.prefixes.iter().filter(|prefix| prefix.starts_with_ignoring_origin_case(start)) {
            if prefix.text.len() == start.len() {
                return PrefixMatch::Full;
            }
            comparison = PrefixMatch::Partial;
        }
        comparison
    }
}

/// Returns the origin of a link into the API.
fn unknown_origin(link: &[u8]) -> Option<String> {
    let url = Url::parse(std::str::from_utf8(link).ok()?).ok()?;
    let is_link = matches!(url.scheme(), "http" | "https") && url.path().starts_with("/api/v2/");
    is_link.then(|| url.origin().ascii_serialization())
}

impl Prefix {
    fn starts_with_ignoring_origin_case(&self, text: &[u8]) -> bool {
        let Some(own) = self.text.get(..text.len()) else { return false };
        let (own_origin, own_path) = own.split_at(self.origin.min(own.len()));
        let (origin, path) = text.split_at(own_origin.len());
        own_origin.eq_ignore_ascii_case(origin) && own_path == path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_match_every_spelling_of_the_address_only() {
        let urls = ["https://tfe.example.com", "http://127.0.0.1:8080"].map(|url| Url::parse(url).unwrap());
        let origins = LinkPrefixes::new(&urls);
        for text in [
            "https://tfe.example.com/api/",
            "https://tfe.example.com:443/api/",
            "HTTPS://TFE.Example.COM/api/",
            "http://127.0.0.1:8080/api/",
        ] {
            assert_eq!(origins.compare(text.as_bytes()), PrefixMatch::Full, "{text}");
            assert_eq!(origins.prefix_length(format!("{text}v2/a").as_bytes()), Some(text.len()), "{text}");
            for length in 0..text.len() {
                assert_eq!(origins.compare(&text.as_bytes()[..length]), PrefixMatch::Partial, "{text} {length}");
            }
        }
        for text in [
            "https://tfe.example.com/API/",
            "https://tfe.example.com.evil/api/",
            "https://tfe.example.com:8443/api/",
            "http://tfe.example.com/api/",
            "http://127.0.0.1/api/",
        ] {
            assert_eq!(origins.compare(text.as_bytes()), PrefixMatch::None, "{text}");
            assert_eq!(origins.prefix_length(text.as_bytes()), None, "{text}");
        }
        assert_eq!(origins.max_prefix_length(), "https://tfe.example.com:443/api/".len());
    }
}
