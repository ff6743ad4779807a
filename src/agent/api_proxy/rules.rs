//! Rules of a listener: paths and methods that it allows, and what it refuses with the session's token.

use http::Method;
use percent_encoding::percent_decode_str;
use serde::Serialize;

use super::path::ApiPath;
use super::query::Query;
use super::spelling::{Spelling, is_like, resembles};

/// Operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operation(u8);

/// Methods of the API, each a bit in [`Operation`] and in a rule.
const METHODS: [&str; 8] = ["GET", "LIST", "SCAN", "POST", "PUT", "PATCH", "DELETE", "HEAD"];

/// Methods of a rule that names none.
const ALL_METHODS: u8 = 0xff;

impl Operation {
    pub(super) const GET: Self = Self(1);
    const LIST: Self = Self(2);
    const SCAN: Self = Self(4);
    pub(super) const POST: Self = Self(8);
    const PUT: Self = Self(16);
    /// `POST` or `PUT`. Vault and OpenBao treat them alike, and Consul has no path on which they differ.
    const UPDATE: Self = Self(Self::POST.0 | Self::PUT.0);
    const HEAD: Self = Self(0x80);

    pub(super) const fn is_read(self) -> bool {
        self.0 == Self::GET.0
    }

    pub(super) const fn is_head(self) -> bool {
        self.0 == Self::HEAD.0
    }

    /// Returns true for `LIST` and `SCAN`.
    pub(super) const fn is_list(self) -> bool {
        matches!(self, Self::LIST | Self::SCAN)
    }

    /// Returns true for `POST` and `PUT`.
    const fn is_update(self) -> bool {
        self.0 & Self::UPDATE.0 != 0
    }

    /// Returns true for operations whose response may have a lease.
    pub(super) const fn may_issue_lease(self) -> bool {
        matches!(self, Self::GET | Self::POST | Self::PUT)
    }

    /// Method by which rules name it.
    #[cfg(feature = "fuzzing")]
    pub(super) const fn name(self) -> &'static str {
        METHODS[self.0.trailing_zeros() as usize]
    }

    /// Returns the operation of a method and a query. As for the server, a `GET` with `list=true` is a `LIST`.
    pub(super) fn parse(method: &Method, query: Query<'_>) -> Result<Self, OperationError> {
        let bit = METHODS.iter().position(|name| *name == method.as_str()).ok_or(OperationError::Method)?;
        let operation = Self(1 << bit);
        if query.is_empty() {
            return Ok(operation);
        }
        let single =
            |name| query.only(name).map_err(|_| OperationError::Query("the query holds list or scan more than once"));
        let list = single("list")?;
        let scan = single("scan")?;
        if operation != Self::GET {
            return Ok(operation);
        }
        match (parse_bool(list.as_deref())?, parse_bool(scan.as_deref())?) {
            (true, true) => Err(OperationError::Query("the query asks for a list and a scan at once")),
            (true, false) => Ok(Self::LIST),
            (false, true) => Ok(Self::SCAN),
            (false, false) => Ok(Self::GET),
        }
    }
}

/// Reason why a request is no operation of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationError {
    /// The API has no such method.
    Method,
    /// The query is ambiguous; the message says why.
    Query(&'static str),
}

/// Parses a boolean as Go's `strconv.ParseBool` does, which the server uses.
fn parse_bool(value: Option<&[u8]>) -> Result<bool, OperationError> {
    match value {
        None | Some(b"" | b"0" | b"f" | b"F" | b"FALSE" | b"false" | b"False") => Ok(false),
        Some(b"1" | b"t" | b"T" | b"TRUE" | b"true" | b"True") => Ok(true),
        Some(_) => Err(OperationError::Query("list or scan in the query is not a boolean")),
    }
}

/// Matches requests by method and path.
///
/// Its serialized form is part of the key of saved cache entries: renaming a field or a `Segment` discards them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rule {
    methods: u8,
    segments: Vec<Segment>,
    /// The pattern before the first `+` or `*`: the prefix of every path that matches.
    #[serde(skip)]
    start: String,
    /// Every path with that prefix matches.
    #[serde(skip)]
    open: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Segment {
    /// Matches this segment.
    Named(String),
    /// Matches any segment: `+`.
    Any,
    /// Matches segments with this prefix, and all that follow: `...*` at the end.
    Rest(String),
}

impl Rule {
    /// Parses `[METHOD,...] PATTERN`. A pattern is a path without `/v1/`; `+` matches one segment, `*` at the end any rest.
    /// Without methods, the rule matches all of them. Percent-encoding is decoded as in a request's path: `%20` is a space,
    /// which would end the methods otherwise.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let (methods, pattern) = match text.split_once(char::is_whitespace) {
            Some((methods, pattern)) => (parse_methods(methods)?, pattern.trim_start()),
            None => (ALL_METHODS, text),
        };
        if pattern.starts_with("v1/") || pattern.starts_with('/') {
            return Err("must not begin with / or v1/");
        }
        if pattern.is_empty() || pattern.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("is not a path pattern");
        }
        let without_trailing_slash = pattern.strip_suffix('/').unwrap_or(pattern);
        let last = without_trailing_slash.split('/').count() - 1;
        let read = |(at, segment): (usize, &str)| match segment {
            "" | "." | ".." => Err("has an empty segment, or . or .."),
            "+" => Ok(Segment::Any),
            segment => match segment.strip_suffix('*') {
                Some(start) if at == last && !start.contains('*') => Ok(Segment::Rest(decode(start)?)),
                None if !segment.contains('*') => Ok(Segment::Named(decode(segment)?)),
                _ => Err("has a * that is not at its end"),
            },
        };
        let segments = without_trailing_slash.split('/').enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        let any =
            without_trailing_slash.split_inclusive('/').take_while(|segment| segment.trim_end_matches('/') != "+");
        let start = decode(any.collect::<String>().trim_end_matches('*'))?;
        let open = !segments.contains(&Segment::Any) && matches!(segments.last(), Some(Segment::Rest(_)));
        Ok(Self { methods, segments, start, open })
    }

    fn matches_operation(&self, operation: Operation) -> bool {
        let operations = if operation.is_update() { Operation::UPDATE } else { operation };
        self.methods & operations.0 != 0
    }

    pub(super) fn matches_path(&self, operation: Operation, path: &ApiPath<'_>) -> bool {
        self.matches_operation(operation) && self.matches(path.without_trailing_slash(), false, Spelling::Exact)
    }

    /// Matches a path without a trailing slash. With `is_folder`, patterns with one match too.
    fn matches(&self, path: &str, is_folder: bool, spelling: Spelling) -> bool {
        let bytes = path.as_bytes();
        // Most rules do not match, and comparing the first byte or the prefix is enough to reject them.
        if spelling.differs(bytes.first(), self.start.as_bytes().first()) {
            return false;
        }
        let has_prefix = spelling.starts_with(bytes, self.start.as_bytes())
            || (is_folder
                && self.start.strip_suffix('/').is_some_and(|start| spelling.equals(bytes, start.as_bytes())));
        if !has_prefix {
            return false;
        }
        self.open || matches_segments(&self.segments, path, is_folder, spelling)
    }

    /// Matches a path behind a namespace that stands for all of them.
    fn matches_in_some_namespace(&self, path: &str, is_folder: bool) -> bool {
        match self.segments.split_first() {
            Some((_, [])) | None => false,
            Some((_, below)) => matches_segments(below, path, is_folder, Spelling::Folded),
        }
    }
}

/// Matches the segments of a pattern with those of a path without a trailing slash.
fn matches_segments(segments: &[Segment], path: &str, is_folder: bool, spelling: Spelling) -> bool {
    // By bytes: a search for characters costs more than such short segments are worth.
    let none: Option<&[u8]> = is_folder.then_some(b"");
    let mut names = path.as_bytes().split(|byte| *byte == b'/').chain(none);
    for segment in segments {
        let Some(name) = names.next() else { return false };
        match segment {
            Segment::Named(expected) if spelling.equals(name, expected.as_bytes()) => {}
            Segment::Any if !name.is_empty() => {}
            Segment::Rest(start) => return spelling.starts_with(name, start.as_bytes()),
            Segment::Named(_) | Segment::Any => return false,
        }
    }
    names.next().is_none_or(|rest| is_folder && rest.is_empty() && names.next().is_none())
}

/// Decodes a part of a pattern. Refuses characters that no served path contains, as such a rule would never match.
fn decode(text: &str) -> Result<String, &'static str> {
    let plain = percent_decode_str(text).decode_utf8().map_err(|_| "is not UTF-8 once it is decoded")?;
    let slashes = |text: &str| text.matches(['/', '\\']).count();
    let dots = plain.split('/').any(|segment| matches!(segment, "." | ".."));
    let is_double_encoded = percent_decode_str(&plain).count() != plain.len();
    let is_ambiguous = slashes(&plain) != slashes(text) || plain.contains(['\\', ';']) || dots || is_double_encoded;
    if is_ambiguous || plain.chars().any(char::is_control) {
        return Err(
            "holds an encoded slash, . or .., a semicolon, a control character or a double encoding, which are refused in every path",
        );
    }
    Ok(plain.into_owned())
}

fn parse_methods(text: &str) -> Result<u8, &'static str> {
    text.split(',').try_fold(0, |all, method| {
        let bit = METHODS.iter().position(|name| *name == method);
        bit.map(|bit| all | 1 << bit)
            .ok_or("has an unknown method; use GET, LIST, SCAN, POST, PUT, PATCH, DELETE or HEAD")
    })
}

/// Operations that are refused with the session's token unless a listener exempts them, with their paths. They create or end
/// tokens beyond their purpose, return the token, or administer the server.
const PROTECTED: [(&str, &[&str]); 10] = [
    ("acl/logout", &["acl/logout"]),
    ("acl/token", &["acl/token", "acl/token/*", "acl/tokens"]),
    ("auth/token/create", &["auth/token/create", "auth/token/create/*", "auth/token/create-orphan"]),
    ("auth/token/renew-self", &["auth/token/renew-self"]),
    ("auth/token/revoke-self", &["auth/token/revoke-self"]),
    ("snapshot", &["snapshot"]),
    ("sys/raw", &["sys/raw", "sys/raw/*"]),
    ("sys/rotate", &["sys/rotate", "sys/rotate/*"]),
    ("sys/seal", &["sys/seal"]),
    ("sys/wrapping", &["sys/wrapping/*"]),
];

/// A protected operation that a listener allows with the session's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exemption(usize);

impl Exemption {
    /// Parses the name of a protected operation; `None` for other names.
    pub fn parse(name: &str) -> Option<Self> {
        PROTECTED.iter().position(|(protected, _)| *protected == name.trim_end_matches(['*', '/'])).map(Self)
    }

    /// Name in the configuration.
    pub const fn name(self) -> &'static str {
        PROTECTED[self.0].0
    }

    /// Names of all protected operations.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PROTECTED.iter().map(|(name, _)| *name)
    }
}

/// Rules of one listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Requests that are allowed; empty for all.
    pub allow: Vec<Rule>,
    /// Exceptions from `allow`, which match behind a namespace in the path too, and in any case.
    pub deny: Vec<Rule>,
    /// Protected operations that are allowed with the session's token.
    pub exempt: Vec<Exemption>,
}

/// Reason why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleViolation {
    NotAllowed,
    Denied,
    /// The named operation is refused with the session's token.
    Protected(&'static str),
}

impl RuleViolation {
    /// Returns the name for the audit.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::NotAllowed => "allow",
            Self::Denied => "deny",
            Self::Protected(_) => "protected",
        }
    }
}

impl Rules {
    /// Checks a request with any token.
    pub(super) fn check(&self, operation: Operation, path: &ApiPath<'_>) -> Result<(), RuleViolation> {
        let is_folder = operation.is_list() || path.ends_in_slash();
        let allows = |rule: &Rule| {
            rule.matches_operation(operation) && rule.matches(path.without_trailing_slash(), is_folder, Spelling::Exact)
        };
        if !self.allow.is_empty() && !self.allow.iter().any(allows) {
            return Err(RuleViolation::NotAllowed);
        }
        // A `HEAD` would reveal if a path exists that may not be read.
        let denied = |rule: &Rule| {
            rule.matches_operation(operation) || (operation.is_head() && rule.matches_operation(Operation::GET))
        };
        let matches = |rule: &Rule| {
            path.suffixes().any(|end| rule.matches(end, true, Spelling::Folded))
                || path.below_all_namespaces().is_some_and(|below| rule.matches_in_some_namespace(below, true))
        };
        let denies = |rule: &Rule| denied(rule) && matches(rule);
        if self.deny.iter().any(denies) { Err(RuleViolation::Denied) } else { Ok(()) }
    }

    /// Checks a request that carries the session's token. Odd spellings of a protected path count as that path, since a program
    /// before the server may clean them.
    pub(super) fn check_session_token(&self, path: &ApiPath<'_>) -> Result<(), RuleViolation> {
        for end in path.suffixes() {
            // Skips most paths without comparing them to the whole table.
            if !matches!(end.as_bytes().first(), Some(b'a' | b'A' | b's' | b'S')) {
                continue;
            }
            let length = end.bytes().take_while(|byte| *byte != b'/').count();
            let first = end.get(..length).unwrap_or_default();
            if !PROTECTED_SEGMENTS.iter().any(|segment| is_like(first, segment)) {
                continue;
            }
            let covers = |paths: &[&str]| paths.iter().any(|covered| resembles(end, covered));
            let entry = PROTECTED.iter().enumerate().find(|(_, (_, paths))| covers(paths));
            if let Some((at, (name, _))) = entry
                && !self.exempt.contains(&Exemption(at))
            {
                return Err(RuleViolation::Protected(name));
            }
        }
        Ok(())
    }
}

/// First segments of protected paths.
const PROTECTED_SEGMENTS: [&str; 4] = ["acl", "auth", "snapshot", "sys"];

#[cfg(test)]
mod tests;
