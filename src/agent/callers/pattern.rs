//! Patterns of names and cgroups in rules. Pure.

use std::fmt;

use super::cgroup_path;

/// Name in which `*` stands for any characters, such as `session-*.scope`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern(String);

impl NamePattern {
    /// Creates a pattern.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        matches(self.0.as_bytes(), name.as_bytes())
    }

    /// Returns true if it matches every name that `other` matches, as far as that can be told.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.0 == "*" || *self == *other || (!other.0.contains('*') && self.matches(&other.0))
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Matches by turning back to the last `*` only, so the time is bounded by the product of both lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let mut at = 0;
    let mut from = 0;
    let mut star: Option<(usize, usize)> = None;
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, from));
                at += 1;
            }
            Some(byte) if name.get(from) == Some(byte) => (at, from) = (at + 1, from + 1),
            _ => match star {
                Some((next, matched)) => {
                    star = Some((next, matched + 1));
                    (at, from) = (next, matched + 1);
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|byte| *byte == b'*')
}

/// A cgroup and those below it, such as `/system.slice/nginx.service`. In a segment `*` stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupPattern(Vec<NamePattern>);

impl CgroupPattern {
    /// Parses a path.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(path) = text.strip_prefix('/') else { return Err("does not begin with /") };
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err("has an empty segment, or . or ..");
        }
        Ok(Self(path.split('/').map(NamePattern::new).collect()))
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        let mut parts = path.split('/').skip(1);
        self.0.iter().all(|segment| parts.next().is_some_and(|part| segment.matches(part)))
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        let mut parts = other.0.iter();
        self.0.iter().all(|segment| parts.next().is_some_and(|part| segment.covers(part)))
    }

    /// Returns the unit of every cgroup that matches, if the pattern decides it.
    pub(super) fn unit(&self) -> Option<String> {
        let path = self.to_string();
        if path.contains('*') { None } else { cgroup_path::unit(&path).map(str::to_owned) }
    }
}

impl fmt::Display for CgroupPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| write!(f, "/{part}"))
    }
}

/// A pod by its UID, or `*` for every pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPattern(Option<String>);

impl PodPattern {
    /// Parses a UID or `*`.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "*" => Ok(Self(None)),
            uid => cgroup_path::pod_uid(uid).map(|uid| Self(Some(uid))).ok_or("is not the UID of a pod"),
        }
    }

    pub(super) fn matches(&self, uid: &str) -> bool {
        self.0.as_deref().is_none_or(|expected| expected == uid)
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        self.0.is_none() || self == other
    }
}

impl fmt::Display for PodPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("*"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("nginx.service", "nginx.service", true),
            ("nginx.service", "nginx.services", false),
            ("session-*.scope", "session-12.scope", true),
            ("session-*.scope", "session-.scope", true),
            ("session-*.scope", "session-12.scope.x", false),
            ("*", "", true),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1c2b", false),
            ("", "a", false),
        ] {
            assert_eq!(NamePattern::new(pattern).matches(name), expected, "{pattern} {name}");
        }
        let long = NamePattern::new("*a".repeat(40));
        assert!(!long.matches(&"a".repeat(39)), "many stars end");
    }

    #[test]
    fn a_cgroup_matches_itself_and_those_below_it_by_whole_segments() {
        let pattern = |text| CgroupPattern::parse(text).unwrap();
        let web = pattern("/system.slice/nginx.service");
        assert!(web.matches("/system.slice/nginx.service") && web.matches("/system.slice/nginx.service/worker"));
        for path in ["/system.slice", "/system.slice/nginx.service2", "/x/system.slice/nginx.service", "/"] {
            assert!(!web.matches(path), "{path}");
        }
        assert!(pattern("/user.slice/user-*.slice/").matches("/user.slice/user-1000.slice/session-1.scope"));
        assert!(pattern("/user.slice/user-*.slice").covers(&pattern("/user.slice/user-7.slice/session-1.scope")));
        assert!(!pattern("/user.slice/user-7.slice").covers(&pattern("/user.slice/user-*.slice")));
        assert_eq!(web.unit().as_deref(), Some("nginx.service"));
        for text in ["", "/", "a", "/a//b", "/a/../b"] {
            assert!(CgroupPattern::parse(text).is_err(), "{text}");
        }
    }
}
