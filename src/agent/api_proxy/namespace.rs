//! Namespaces that a listener's callers may name, and the path of a request with its namespace.

use std::borrow::Cow;
use std::fmt;

/// Namespaces that callers may name in a header or in `?ns=`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedNamespaces(Option<Vec<NamespacePattern>>);

impl AllowedNamespaces {
    /// Allows the namespaces that a pattern matches. The default allows the session's namespace and those below it.
    pub const fn matching(patterns: Vec<NamespacePattern>) -> Self {
        Self(Some(patterns))
    }

    /// Returns the patterns in the configuration's notation; `None` for the default.
    pub fn describe(&self) -> Option<String> {
        let patterns: Vec<_> = self.0.as_ref()?.iter().map(NamespacePattern::to_string).collect();
        Some(patterns.join(", "))
    }

    /// Converts the patterns to the lower case of [`parse_consul_name`].
    pub(super) fn fold_case(&mut self) {
        for pattern in self.0.iter_mut().flatten() {
            pattern.path.make_ascii_lowercase();
        }
    }

    /// Returns true by default, where no patterns are configured.
    pub(super) const fn is_default(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if a caller may name `namespace`; `session_namespace` is the session's.
    pub(super) fn permits(&self, session_namespace: &str, namespace: &str) -> bool {
        match &self.0 {
            None => relative_path(session_namespace, namespace).is_some(),
            Some(patterns) => patterns.iter().any(|pattern| pattern.matches(namespace)),
        }
    }
}

/// One or more namespaces: `team`, `team/*` for those below it, `*` for all, `root` for the root namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespacePattern {
    path: String,
    /// Matches the namespaces below the path, not the path itself.
    matches_below: bool,
}

impl NamespacePattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (path, is_below) = match text.strip_suffix('*') {
            Some("") => ("", true),
            Some(path) => (path.strip_suffix('/').ok_or("has a * that is not a whole segment")?, true),
            None => (text, false),
        };
        let path = parse(path.as_bytes()).map_err(|_| "is not a namespace")?;
        if path.contains('*') || (path.is_empty() && !matches!(text, "*" | ROOT)) {
            return Err("is not a namespace");
        }
        Ok(Self { path: path.to_owned(), matches_below: is_below })
    }

    fn matches(&self, namespace: &str) -> bool {
        match relative_path(&self.path, namespace) {
            // `*` matches the root namespace too.
            Some("") => !self.matches_below || self.path.is_empty(),
            Some(_) => self.matches_below,
            None => false,
        }
    }
}

impl fmt::Display for NamespacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.path.as_str(), self.matches_below) {
            ("", false) => f.write_str(ROOT),
            ("", true) => f.write_str("*"),
            (path, false) => f.write_str(path),
            (path, true) => write!(f, "{path}/*"),
        }
    }
}

/// Name of the root namespace in Vault and OpenBao.
const ROOT: &str = "root";

/// Parses a header's value into the path of a namespace without a slash at either end; empty for the root.
pub(super) fn parse(value: &[u8]) -> Result<&str, &'static str> {
    let value = std::str::from_utf8(value).map_err(|_| "the namespace is not UTF-8")?;
    let path = value.strip_prefix('/').unwrap_or(value);
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
    if path.split('/').all(is_name) {
        Ok(path)
    } else {
        Err("the namespace is ambiguous; remove empty and dotted segments")
    }
}

/// Parses a name of Consul's API, where namespaces have no path and no case, into lower case. `*` stands for all namespaces.
pub(super) fn parse_consul_name(value: &[u8]) -> Result<String, &'static str> {
    let is_name = value.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    match std::str::from_utf8(value) {
        Ok(name) if is_name || name == "*" => Ok(name.to_ascii_lowercase()),
        Ok(_) | Err(_) => Err("the namespace is not a name; write letters, digits and -"),
    }
}

/// Returns the path from one namespace to one at or below it.
fn relative_path<'a>(from: &str, namespace: &'a str) -> Option<&'a str> {
    if from.is_empty() {
        return Some(namespace);
    }
    let rest = namespace.strip_prefix(from)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

/// Returns the prefix of a request's path for the rules, which are relative to the session's namespace.
pub(super) fn prefix<'a>(session_namespace: &str, namespace: &'a str) -> Cow<'a, str> {
    match relative_path(session_namespace, namespace) {
        Some(rest) => Cow::Borrowed(rest),
        None if namespace.is_empty() => Cow::Borrowed(ROOT),
        None => Cow::Borrowed(namespace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_around_a_namespace_are_ignored() {
        for (written, expected) in [("", ""), ("/", ""), ("root", ""), ("team", "team"), ("/team/web/", "team/web")] {
            assert_eq!(parse(written.as_bytes()), Ok(expected), "{written}");
        }
        assert_eq!(parse("t\u{e9}am".as_bytes()), Ok("t\u{e9}am"));
        for wrong in ["//", "a//b", "a/../b", ".", "a b", "a\u{a0}b", "a\\b", "a/ /b"] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(parse(b"\xff").is_err());
    }

    #[test]
    fn consuls_namespaces_are_names_in_any_case() {
        for (written, expected) in [("team", "team"), ("TEAM-1_a", "team-1_a"), ("root", "root"), ("*", "*")] {
            assert_eq!(parse_consul_name(written.as_bytes()).as_deref(), Ok(expected), "{written}");
        }
        for wrong in ["/team", "team/", "a/b", "a b", "**", "a*", ".", "t\u{e9}am", "a.b"] {
            assert!(parse_consul_name(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_sessions_namespace_and_those_below_it_are_allowed_by_default() {
        let check = |patterns: Option<&[&str]>, own: &str, namespace: &str, expected: bool| {
            let parse =
                |patterns: &[&str]| patterns.iter().map(|text| NamespacePattern::parse(text).unwrap()).collect();
            let allowed = AllowedNamespaces(patterns.map(parse));
            assert_eq!(allowed.permits(own, namespace), expected, "{patterns:?} {own:?} {namespace:?}");
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
    fn rules_are_relative_to_the_sessions_namespace() {
        for (own, namespace, expected) in [
            ("", "", ""),
            ("", "team", "team"),
            ("team", "team", ""),
            ("team", "team/web", "web"),
            ("team", "other", "other"),
            ("team", "teams", "teams"),
            ("team", "", "root"),
        ] {
            assert_eq!(prefix(own, namespace), expected, "{own:?} {namespace:?}");
        }
    }
}
