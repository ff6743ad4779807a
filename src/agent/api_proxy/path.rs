//! Paths of the server's API, parsed as the server parses them.
//!
//! The rules of a listener and the server must read a path alike. Ambiguous paths are refused, so that no other spelling
//! reaches what a rule denies.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// A path below `/v1/`, percent-decoded once. It may end with a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiPath<'a>(Cow<'a, str>);

/// Reason why a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathError {
    /// It is not below `/v1/`.
    OutsideApi,
    /// Programs differ in how they read it; the message says why.
    Ambiguous(&'static str),
}

impl<'a> ApiPath<'a> {
    /// Parses a request's path without its query.
    pub(super) fn parse(path: &'a str) -> Result<Self, PathError> {
        let Some(below) = path.strip_prefix("/v1/").filter(|below| !below.is_empty()) else {
            return Err(PathError::OutsideApi);
        };
        if is_plain(below) {
            return Ok(Self(Cow::Borrowed(below)));
        }
        if !below.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
            return Err(PathError::Ambiguous("the path holds characters that must be percent-encoded"));
        }
        let decoded = if below.contains('%') { Cow::Owned(decode(below)?) } else { Cow::Borrowed(below) };
        check_segments(&decoded).map_err(PathError::Ambiguous)?;
        Ok(Self(decoded))
    }

    /// Returns the decoded path without `/v1/`.
    #[cfg(test)]
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path with a namespace before it, as if the caller had written it so.
    pub(super) fn in_namespace(&self, namespace: &str) -> Self {
        if namespace.is_empty() { self.clone() } else { Self(Cow::Owned(format!("{namespace}/{}", self.0))) }
    }

    pub(super) fn into_owned(self) -> ApiPath<'static> {
        ApiPath(Cow::Owned(self.0.into_owned()))
    }

    pub(super) fn ends_in_slash(&self) -> bool {
        self.0.ends_with('/')
    }

    pub(super) fn without_trailing_slash(&self) -> &str {
        self.0.strip_suffix('/').unwrap_or(&self.0)
    }

    /// Returns the path and its suffixes from each segment on, without a trailing slash. A namespace may be written into a
    /// path, so each suffix could be the path that the server routes.
    pub(super) fn suffixes(&self) -> impl Iterator<Item = &str> {
        let path = self.without_trailing_slash();
        let starts = path.bytes().enumerate().filter(|(_, byte)| *byte == b'/').map(|(at, _)| at + 1);
        std::iter::once(0).chain(starts).map(move |at| &path[at..])
    }

    /// Returns the path behind the namespace `*`, in which Consul lists the records of all namespaces.
    pub(super) fn below_all_namespaces(&self) -> Option<&str> {
        self.without_trailing_slash().strip_prefix("*/")
    }

    /// Returns true if the path is `path`, perhaps behind a namespace.
    pub(super) fn names(&self, path: &str) -> bool {
        let rest = self.without_trailing_slash().strip_suffix(path);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    }
}

/// Returns true for paths of letters, digits, `-`, `_` and single slashes, as most are. They are never ambiguous.
fn is_plain(path: &str) -> bool {
    let mut previous = b'/';
    path.bytes().all(|byte| {
        let slash = byte == b'/' && previous != b'/';
        previous = byte;
        slash || byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
    })
}

fn decode(path: &str) -> Result<String, PathError> {
    let bytes = path.as_bytes();
    let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    if !bytes.iter().enumerate().all(|(at, byte)| *byte != b'%' || (hex(at + 1) && hex(at + 2))) {
        return Err(PathError::Ambiguous("the path holds a percent sign without two hexadecimal digits"));
    }
    // Some servers take it for a separator, others for a part of the segment.
    if ["%2f", "%2F", "%5c", "%5C"].iter().any(|encoded| path.contains(encoded)) {
        return Err(PathError::Ambiguous("the path holds an encoded slash"));
    }
    let Ok(decoded) = percent_decode_str(path).decode_utf8() else {
        return Err(PathError::Ambiguous("the decoded path is not UTF-8"));
    };
    if decoded.chars().any(char::is_control) {
        return Err(PathError::Ambiguous("the path holds an encoded control character"));
    }
    // A proxy on the way may decode twice.
    let bytes = decoded.as_bytes();
    let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    if bytes.iter().enumerate().any(|(at, byte)| *byte == b'%' && hex(at + 1) && hex(at + 2)) {
        return Err(PathError::Ambiguous("the path is percent-encoded twice"));
    }
    Ok(decoded.into_owned())
}

fn check_segments(path: &str) -> Result<(), &'static str> {
    // Some servers drop a path parameter, the part of a segment behind it (RFC 3986, section 3.3).
    if path.contains(';') {
        return Err("the path holds a semicolon");
    }
    let without_trailing_slash = path.strip_suffix('/').unwrap_or(path);
    for segment in without_trailing_slash.split('/') {
        match segment {
            "" => return Err("the path has an empty segment"),
            "." | ".." => return Err("the path has a . or .. segment"),
            _ if segment.trim() != segment => return Err("a segment of the path begins or ends with a space"),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_parsed_as_the_server_parses_it() {
        let check = |path: &str, expected: &str| assert_eq!(ApiPath::parse(path).unwrap().as_str(), expected, "{path}");
        check("/v1/secret/data/web", "secret/data/web");
        check("/v1/secret/metadata/", "secret/metadata/");
        check("/v1/sys", "sys");
        check("/v1/%73ys/seal", "sys/seal");
        check("/v1/secret/data/a%20b", "secret/data/a b");
        check("/v1/secret/data/%C3%A9", "secret/data/é");
        check("/v1/secret/data/100%25", "secret/data/100%");
        check("/v1/secret/data/a..b/...c/.d", "secret/data/a..b/...c/.d");
        for (path, expected) in [("/v1/secret/", true), ("/v1/secret", false), ("/v1/secret/%2b/", true)] {
            assert_eq!(ApiPath::parse(path).unwrap().ends_in_slash(), expected, "{path}");
        }
    }

    #[test]
    fn most_paths_are_plain() {
        for (path, expected) in [
            ("sys", true),
            ("secret/data/Web-1_b", true),
            ("secret/metadata/", true),
            ("-/_/0", true),
            ("/sys", false),
            ("secret//data", false),
            ("secret/data//", false),
            ("a.b", false),
            ("a%20b", false),
            ("é", false),
        ] {
            assert_eq!(is_plain(path), expected, "{path}");
        }
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        for path in [
            "/v1//sys",
            "/v1//sys/seal",
            "/v1/sys//seal",
            "/v1/sys/seal//",
            "/v1/secret/../sys/seal",
            "/v1/./sys/seal",
            "/v1/secret/..",
            "/v1/secret/%2e%2e/sys",
            "/v1/secret/.%2E/sys",
            "/v1/secret/%252e%252e/sys",
            "/v1/secret/..;/sys",
            "/v1/secret/;x",
            "/v1/sys/seal;x=1",
            "/v1/sys/seal%3Bx",
            "/v1/sys;/seal",
            "/v1/secret/..%3bx/sys",
            "/v1/sys%2fseal",
            "/v1/sys%5Cseal",
            "/v1/sys\\seal",
            "/v1/sys%252fseal",
            "/v1/sys/seal%00",
            "/v1/sys/seal%0d%0aHost:x",
            "/v1/sys/seal%20",
            "/v1/sys/%",
            "/v1/sys/%4",
            "/v1/sys/%zz",
            "/v1/sys/%ff",
            "/v1/sys/\u{e9}",
        ] {
            assert!(matches!(ApiPath::parse(path), Err(PathError::Ambiguous(_))), "{path}: {:?}", ApiPath::parse(path));
        }
        for path in ["/", "*", "", "/v1", "/v1/", "/v2/sys", "/V1/sys", "//v1/sys", "/ui/", "/v1x/sys", "/%761/sys"] {
            assert_eq!(ApiPath::parse(path), Err(PathError::OutsideApi), "{path}");
        }
    }

    #[test]
    fn a_namespace_may_be_written_into_a_path() {
        let path = ApiPath::parse("/v1/team/web/auth/token/lookup-self/").unwrap();
        assert!(path.names("auth/token/lookup-self") && !path.names("th/token/lookup-self"));
        let ends: Vec<_> = path.suffixes().collect();
        assert_eq!((ends.len(), ends[0], ends[2]), (5, "team/web/auth/token/lookup-self", "auth/token/lookup-self"));
    }
}
