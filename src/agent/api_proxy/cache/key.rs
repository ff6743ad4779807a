//! Cache keys: token, method, namespace, path, query and body of a request, and no other header.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use aws_lc_rs::digest::{SHA256, digest};
use http::Method;
use percent_encoding::percent_decode;
use serde::{Deserialize, Serialize};
use url::form_urlencoded::byte_serialize;

/// Token scope of an entry: a response is served only to requests with the same token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum TokenScope {
    /// Requested with the session's token; shared by all requests that carry it.
    Session,
    /// Requested with a caller's own token; the token's SHA-256.
    Caller([u8; 32]),
    /// Requested without a token, as logins are.
    Anonymous,
}

impl TokenScope {
    pub(crate) fn from_token(token: &[u8]) -> Self {
        Self::Caller(hash(token))
    }

    /// Returns true for the token of a caller's own.
    pub(crate) const fn is_callers(self) -> bool {
        matches!(self, Self::Caller(_))
    }
}

impl fmt::Debug for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Session => "Session",
            Self::Caller(_) => "Caller",
            Self::Anonymous => "Anonymous",
        })
    }
}

/// The parts of a request that its response depends on. Saved entries contain it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CacheKey {
    pub(super) scope: TokenScope,
    text: String,
    body: [u8; 32],
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheKey").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.text.as_bytes());
        // These are hashes already, of which 8 bytes suffice.
        state.write(self.body.first_chunk::<8>().unwrap_or(&[0; 8]));
        if let TokenScope::Caller(token) = &self.scope {
            state.write(token.first_chunk::<8>().unwrap_or(&[0; 8]));
        }
    }
}

impl CacheKey {
    /// Builds the key of a request. `path` is decoded; `namespace` is empty for the root.
    pub(crate) fn new(
        scope: TokenScope,
        method: &Method,
        namespace: &str,
        path: &str,
        query: Option<&str>,
        body: &[u8],
    ) -> Self {
        let query = query.unwrap_or_default();
        let mut text = String::with_capacity(method.as_str().len() + namespace.len() + path.len() + query.len() + 3);
        // None of them contains a newline, so the parts cannot run into each other.
        for part in [method.as_str(), namespace.trim_matches('/'), path] {
            text.push_str(part);
            text.push('\n');
        }
        if !query.is_empty() {
            push_normalized(&mut text, query);
        }
        let body = if body.is_empty() { [0; 32] } else { hash(body) };
        Self { scope, text, body }
    }

    /// Returns true for a `GET`.
    pub(super) fn is_read(&self) -> bool {
        self.text.starts_with("GET\n")
    }

    pub(super) fn namespace_and_path(&self) -> (&str, &str) {
        let mut lines = self.text.split('\n').skip(1);
        (lines.next().unwrap_or_default(), lines.next().unwrap_or_default())
    }

    /// Returns the smallest key with this path in this namespace, by the order of [`CacheKey::full_path`] and then of
    /// [`CacheKey::cmp_parts`].
    pub(super) fn smallest(namespace: &str, path: &str) -> Self {
        let text = format!("\n{}\n{path}\n", namespace.trim_matches('/'));
        Self { scope: TokenScope::Session, text, body: [0; 32] }
    }

    /// The bytes of namespace and path, joined as the server does.
    pub(super) fn full_path(&self) -> impl Iterator<Item = u8> {
        let (namespace, path) = self.namespace_and_path();
        let separator = if namespace.is_empty() { "" } else { "/" };
        namespace.bytes().chain(separator.bytes()).chain(path.bytes())
    }

    /// Returns true if the full path starts with that of `prefix`.
    pub(super) fn has_path_prefix(&self, prefix: &Self) -> bool {
        let mut full_path = self.full_path();
        prefix.full_path().all(|byte| full_path.next() == Some(byte))
    }

    /// Orders keys of one full path; only equal keys are equal.
    pub(super) fn cmp_parts(&self, other: &Self) -> Ordering {
        let parts = |key: &Self| (key.scope, key.body);
        self.text.cmp(&other.text).then_with(|| parts(self).cmp(&parts(other)))
    }

    /// Size in memory, in bytes.
    pub(super) fn size(&self) -> usize {
        self.text.len() + size_of::<Self>()
    }
}

/// Appends a query sorted by name. Pairs of one name keep their order, since servers take the first. Bytes that are not UTF-8
/// stay as they are.
fn push_normalized(text: &mut String, query: &str) {
    let decode = |text: &str| percent_decode(text.replace('+', " ").as_bytes()).collect::<Vec<u8>>();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<_> = pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect();
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (at, (name, value)) in pairs.iter().enumerate() {
        text.push_str(if at == 0 { "" } else { "&" });
        text.extend(byte_serialize(name));
        text.push('=');
        text.extend(byte_serialize(value));
    }
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_with_the_same_response_have_the_same_key() {
        let key = |scope, namespace: &str, path: &str, query: Option<&str>, body: &[u8]| {
            CacheKey::new(scope, &Method::GET, namespace, path, query, body)
        };
        let base = || key(TokenScope::Session, "team", "a/b", Some("x=1&y=2"), b"body");
        assert_eq!(base(), key(TokenScope::Session, "/team/", "a/b", Some("y=2&x=%31"), b"body"));
        assert_eq!(base().namespace_and_path(), ("team", "a/b"));
        let key_of = |query| key(TokenScope::Session, "", "a", Some(query), b"");
        assert_eq!(key_of("b=x+y&a=%c3%a9&&c"), key_of("c=&a=\u{e9}&b=x%20y"));
        assert_ne!(key_of("a=1&a=2"), key_of("a=2&a=1"), "the first counts");
        assert_ne!(key_of("a=%ff"), key_of("a=%fe"));
        assert_ne!(key_of("a=%25zz"), key_of("a=zz"));
        assert_eq!(key_of("b=2&a=x y").text, "GET\n\na\na=x+y&b=2", "saved files contain this form");
        for other in [
            key(TokenScope::Anonymous, "team", "a/b", Some("x=1&y=2"), b"body"),
            key(TokenScope::from_token(b"token"), "team", "a/b", Some("x=1&y=2"), b"body"),
            key(TokenScope::Session, "", "a/b", Some("x=1&y=2"), b"body"),
            key(TokenScope::Session, "team", "a/c", Some("x=1&y=2"), b"body"),
            key(TokenScope::Session, "team", "a/b", Some("x=1"), b"body"),
            key(TokenScope::Session, "team", "a/b", None, b"body"),
            key(TokenScope::Session, "team", "a/b", Some("x=1&y=2"), b"other"),
            CacheKey::new(TokenScope::Session, &Method::PUT, "team", "a/b", Some("x=1&y=2"), b"body"),
        ] {
            assert_ne!(base(), other);
        }
        assert_eq!(TokenScope::from_token(b"a"), TokenScope::from_token(b"a"));
        assert_ne!(TokenScope::from_token(b"a"), TokenScope::from_token(b"b"));
    }
}
