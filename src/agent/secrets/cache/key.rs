//! What makes two requests the same: whose they are, method, namespace, path, query and body. No other header.

use std::fmt;
use std::hash::{Hash, Hasher};

use aws_lc_rs::digest::{SHA256, digest};
use http::Method;
use percent_encoding::percent_decode;
use serde::{Deserialize, Serialize};
use url::form_urlencoded::byte_serialize;

/// TokenScope answer it is: nobody is given what another's token has got.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenScope {
    /// Got with the session's token: for all that the token would be put on for.
    Session,
    /// Got with a caller's own token, by its hash.
    Caller([u8; 32]),
    /// Got without a token, as logins are.
    #[serde(rename = "Nobody")]
    Anonymous,
}

impl TokenScope {
    /// Of who brings this token.
    pub fn of(token: &[u8]) -> Self {
        Self::Caller(hash(token))
    }
}

impl fmt::Debug for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Session => "Session",
            Self::Caller(_) => "Caller",
            Self::Anonymous => "Nobody",
        })
    }
}

/// A request, as far as its answer depends on it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheKey {
    #[serde(rename = "whose")]
    pub(super) scope: TokenScope,
    text: String,
    body: [u8; 32],
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("whose", &self.scope).finish_non_exhaustive()
    }
}

impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.text.as_bytes());
        // Of what is a hash already, a part tells keys apart.
        state.write(self.body.first_chunk::<8>().unwrap_or(&[0; 8]));
        if let TokenScope::Caller(token) = &self.scope {
            state.write(token.first_chunk::<8>().unwrap_or(&[0; 8]));
        }
    }
}

impl CacheKey {
    /// `path` has its encoding taken off; `namespace` is empty for the root.
    pub fn new(
        scope: TokenScope,
        method: &Method,
        namespace: &str,
        path: &str,
        query: Option<&str>,
        body: &[u8],
    ) -> Self {
        let query = query.unwrap_or_default();
        let mut text = String::with_capacity(method.as_str().len() + namespace.len() + path.len() + query.len() + 3);
        // None of them holds a line end.
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

    /// Its namespace and its path.
    pub(super) fn place(&self) -> (&str, &str) {
        let mut lines = self.text.split('\n').skip(1);
        (lines.next().unwrap_or_default(), lines.next().unwrap_or_default())
    }

    /// Its size in memory, in bytes.
    pub(super) fn size(&self) -> usize {
        self.text.len() + size_of::<Self>()
    }
}

/// The path of a request with its namespace before it, as the server joins them.
pub(super) fn full_path(namespace: &str, path: &str) -> String {
    let namespace = namespace.trim_matches('/');
    if namespace.is_empty() { path.to_owned() } else { format!("{namespace}/{path}") }
}

/// Writes a query with its names in order. Of pairs with one name the order stays: servers take the first. Bytes that are no
/// UTF-8 stay what they are.
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
    fn requests_are_the_same_by_what_their_answer_depends_on() {
        let key = |scope, namespace: &str, path: &str, query: Option<&str>, body: &[u8]| {
            CacheKey::new(scope, &Method::GET, namespace, path, query, body)
        };
        let base = || key(TokenScope::Session, "team", "a/b", Some("x=1&y=2"), b"body");
        assert_eq!(base(), key(TokenScope::Session, "/team/", "a/b", Some("y=2&x=%31"), b"body"));
        assert_eq!(base().place(), ("team", "a/b"));
        let of = |query| key(TokenScope::Session, "", "a", Some(query), b"");
        assert_eq!(of("b=x+y&a=%c3%a9&&c"), of("c=&a=\u{e9}&b=x%20y"));
        assert_ne!(of("a=1&a=2"), of("a=2&a=1"), "the first counts");
        assert_ne!(of("a=%ff"), of("a=%fe"));
        assert_ne!(of("a=%25zz"), of("a=zz"));
        assert_eq!(of("b=2&a=x y").text, "GET\n\na\na=x+y&b=2", "files of earlier versions hold it so");
        for other in [
            key(TokenScope::Anonymous, "team", "a/b", Some("x=1&y=2"), b"body"),
            key(TokenScope::of(b"token"), "team", "a/b", Some("x=1&y=2"), b"body"),
            key(TokenScope::Session, "", "a/b", Some("x=1&y=2"), b"body"),
            key(TokenScope::Session, "team", "a/c", Some("x=1&y=2"), b"body"),
            key(TokenScope::Session, "team", "a/b", Some("x=1"), b"body"),
            key(TokenScope::Session, "team", "a/b", None, b"body"),
            key(TokenScope::Session, "team", "a/b", Some("x=1&y=2"), b"other"),
            CacheKey::new(TokenScope::Session, &Method::PUT, "team", "a/b", Some("x=1&y=2"), b"body"),
        ] {
            assert_ne!(base(), other);
        }
        assert_eq!(TokenScope::of(b"a"), TokenScope::of(b"a"));
        assert_ne!(TokenScope::of(b"a"), TokenScope::of(b"b"));
    }
}
