//! The namespaces that callers of a listener may name, and where a request leads, its namespace and path taken together.

use std::borrow::Cow;
use std::fmt;

/// Namespaces that callers may name in a header or in `?ns=`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedNamespaces(Option<Vec<NamespacePattern>>);

impl AllowedNamespaces {
    /// Those that a pattern matches. Without patterns, as by default: the session's namespace and those below it.
    pub const fn matching(patterns: Vec<NamespacePattern>) -> Self {
        Self(Some(patterns))
    }

    /// The patterns as they are written; `None` for the default.
    pub fn describe(&self) -> Option<String> {
        let patterns: Vec<_> = self.0.as_ref()?.iter().map(NamespacePattern::to_string).collect();
        Some(patterns.join(", "))
    }

    /// True if a caller may name `namespace`, where the session's is `own`.
    pub(super) fn permits(&self, own: &str, namespace: &str) -> bool {
        match &self.0 {
            None => below(own, namespace).is_some(),
            Some(patterns) => patterns.iter().any(|pattern| pattern.matches(namespace)),
        }
    }
}

/// One or more namespaces: `team`, `team/*` for those below it, `*` for all, `root` for the root namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespacePattern {
    path: String,
    /// It stands for what is below the path.
    below: bool,
}

impl NamespacePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// The error text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (path, is_below) = match text.strip_suffix('*') {
            Some("") => ("", true),
            Some(path) => (path.strip_suffix('/').ok_or("has a * that does not stand for a whole name")?, true),
            None => (text, false),
        };
        let path = parse(path.as_bytes()).map_err(|_| "is no namespace")?;
        if path.contains('*') || (path.is_empty() && !matches!(text, "*" | ROOT)) {
            return Err("is no namespace");
        }
        Ok(Self { path: path.to_owned(), below: is_below })
    }

    fn matches(&self, namespace: &str) -> bool {
        match below(&self.path, namespace) {
            // All are meant by `*`, the root namespace too.
            Some("") => !self.below || self.path.is_empty(),
            Some(_) => self.below,
            None => false,
        }
    }
}

impl fmt::Display for NamespacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.path.as_str(), self.below) {
            ("", false) => f.write_str(ROOT),
            ("", true) => f.write_str("*"),
            (path, false) => f.write_str(path),
            (path, true) => write!(f, "{path}/*"),
        }
    }
}

/// How Vault and OpenBao call the root namespace where it must be named.
const ROOT: &str = "root";

/// The path of a namespace as it is written in a header, without a slash at either end; empty for the root.
///
/// # Errors
/// It is no path, or one that servers read in different ways.
pub(super) fn parse(written: &[u8]) -> Result<&str, &'static str> {
    let written = std::str::from_utf8(written).map_err(|_| "the namespace is no UTF-8")?;
    let path = written.strip_prefix('/').unwrap_or(written);
    if path.is_empty() {
        return Ok("");
    }
    let path = path.strip_suffix('/').unwrap_or(path);
    if path == ROOT {
        return Ok("");
    }
    let is_name = |name: &str| {
        !matches!(name, "" | "." | "..") && !name.contains(|c: char| c.is_control() || c.is_whitespace() || c == '\\')
    };
    if path.split('/').all(is_name) { Ok(path) } else { Err("the namespace could be read in two ways") }
}

/// What leads from one namespace to one at or below it.
fn below<'a>(from: &str, namespace: &'a str) -> Option<&'a str> {
    if from.is_empty() {
        return Some(namespace);
    }
    let rest = namespace.strip_prefix(from)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

/// What stands before the path of a request in `namespace`, as rules see it: they begin at the session's namespace, `own`.
pub(super) fn prefix<'a>(own: &str, namespace: &'a str) -> Cow<'a, str> {
    match below(own, namespace) {
        Some(rest) => Cow::Borrowed(rest),
        None if namespace.is_empty() => Cow::Borrowed(ROOT),
        None => Cow::Borrowed(namespace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_its_path_however_slashes_stand_around_it() {
        for (written, wanted) in [("", ""), ("/", ""), ("root", ""), ("team", "team"), ("/team/web/", "team/web")] {
            assert_eq!(parse(written.as_bytes()), Ok(wanted), "{written}");
        }
        assert_eq!(parse("t\u{e9}am".as_bytes()), Ok("t\u{e9}am"));
        for wrong in ["//", "a//b", "a/../b", ".", "a b", "a\u{a0}b", "a\\b", "a/ /b"] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(parse(b"\xff").is_err());
    }

    #[test]
    fn callers_may_name_the_sessions_namespace_and_those_below_it_unless_a_list_says_otherwise() {
        let check = |patterns: Option<&[&str]>, own: &str, namespace: &str, wanted: bool| {
            let parse =
                |patterns: &[&str]| patterns.iter().map(|text| NamespacePattern::parse(text).unwrap()).collect();
            let allowed = AllowedNamespaces(patterns.map(parse));
            assert_eq!(allowed.permits(own, namespace), wanted, "{patterns:?} {own:?} {namespace:?}");
        };
        check(None, "", "", true);
        check(None, "", "team", true);
        check(None, "team", "team", true);
        check(None, "team", "team/web", true);
        check(None, "team", "", false);
        check(None, "team", "teams", false);
        check(None, "team", "other/team", false);
        check(Some(&["team"]), "", "team", true);
        check(Some(&["team"]), "", "team/web", false);
        check(Some(&["team"]), "", "", false);
        check(Some(&["team/*"]), "", "team", false);
        check(Some(&["team/*"]), "", "team/web/a", true);
        check(Some(&["root", "a"]), "team", "", true);
        check(Some(&["root", "a"]), "team", "team", false);
        check(Some(&["*"]), "team", "", true);
        check(Some(&["*"]), "team", "other", true);
        for wrong in ["", "/", "a*", "*/a", "a/*/b", "a//b", "..", "a b", "**"] {
            assert!(NamespacePattern::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn rules_begin_at_the_sessions_namespace() {
        for (own, namespace, wanted) in [
            ("", "", ""),
            ("", "team", "team"),
            ("team", "team", ""),
            ("team", "team/web", "web"),
            ("team", "other", "other"),
            ("team", "teams", "teams"),
            ("team", "", "root"),
        ] {
            assert_eq!(prefix(own, namespace), wanted, "{own:?} {namespace:?}");
        }
    }
}
