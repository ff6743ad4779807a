//! What a listener lets through, and what it refuses where the session's token would be put on.

use http::Method;
use percent_encoding::percent_decode_str;

use super::path::ApiPath;
use super::query::Query;

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operation(u8);

/// The methods of the API, each a bit in [`Operation`] and in a rule.
const METHODS: [&str; 8] = ["GET", "LIST", "SCAN", "POST", "PUT", "PATCH", "DELETE", "HEAD"];

/// The methods of a rule that names none. It is about `HEAD` too, without its bit: saved answers are bound to rules as they
/// were written before `HEAD` had one.
const ALL: u8 = 0x7f;

impl Operation {
    const GET: Self = Self(1);
    const LIST: Self = Self(2);
    const SCAN: Self = Self(4);
    const HEAD: Self = Self(0x80);

    /// Whether it reads one thing.
    pub(super) const fn reads(self) -> bool {
        self.0 == Self::GET.0
    }

    /// True if it asks for the head of an answer alone.
    pub(super) const fn is_head(self) -> bool {
        self.0 == Self::HEAD.0
    }

    /// Whether it lists what is below a path.
    pub(super) const fn lists(self) -> bool {
        self.0 & (Self::LIST.0 | Self::SCAN.0) != 0
    }

    /// Reads what a request's method and query ask for. A `GET` with `list=true` in its query is a `LIST`, as the server
    /// takes it.
    ///
    /// # Errors
    /// The API has no such method, or the query could be read in two ways.
    pub(super) fn parse(method: &Method, query: Query<'_>) -> Result<Self, OperationError> {
        let bit = METHODS.iter().position(|its| *its == method.as_str()).ok_or(OperationError::Method)?;
        let operation = Self(1 << bit);
        if query.is_empty() {
            return Ok(operation);
        }
        let only =
            |name| query.only(name).map_err(|_| OperationError::Query("the query holds list or scan more than once"));
        let (list, scan) = (only("list")?, only("scan")?);
        if operation != Self::GET {
            return Ok(operation);
        }
        match (flag(list.as_deref())?, flag(scan.as_deref())?) {
            (true, true) => Err(OperationError::Query("the query asks for a list and a scan at once")),
            (true, false) => Ok(Self::LIST),
            (false, true) => Ok(Self::SCAN),
            (false, false) => Ok(Self::GET),
        }
    }
}

/// Why a request is no operation of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationError {
    /// There is no such method.
    Method,
    /// The query could be read in two ways: why.
    Query(&'static str),
}

/// A truth in a query, in the words that Go's `strconv.ParseBool` knows; the server refuses any other.
fn flag(value: Option<&[u8]>) -> Result<bool, OperationError> {
    match value {
        None | Some(b"" | b"0" | b"f" | b"F" | b"FALSE" | b"false" | b"False") => Ok(false),
        Some(b"1" | b"t" | b"T" | b"TRUE" | b"true" | b"True") => Ok(true),
        Some(_) => Err(OperationError::Query("list or scan in the query is neither true nor false")),
    }
}

/// One line of a list: the methods that it is about, and a pattern of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    methods: u8,
    segments: Vec<Segment>,
    /// What a path begins with that the pattern is about: all of it before the first `+` or `*`.
    start: String,
    /// Whether all that begins so is meant.
    open: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    /// This one.
    Named(String),
    /// Any one: `+`.
    Any,
    /// One that begins so, and all that follows: `...*` at the end.
    Rest(String),
}

impl Rule {
    /// Reads `[METHOD,...] PATTERN`. A pattern is a path without `/v1/` in which `+` stands for one segment and `*` at the
    /// end for whatever follows. Without methods it is about all of them. What is percent-encoded in it stands for the
    /// character, as in a request's path: `%20` for a space, which ends the methods otherwise.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let (methods, pattern) = match text.split_once(char::is_whitespace) {
            Some((methods, pattern)) => (parse_methods(methods)?, pattern.trim_start()),
            None => (ALL, text),
        };
        if pattern.starts_with("v1/") || pattern.starts_with('/') {
            return Err("begins before the path: leave / and v1/ out");
        }
        if pattern.is_empty() || pattern.chars().any(|found| found.is_whitespace() || found.is_control()) {
            return Err("is no pattern of a path");
        }
        let without_trailing_slash = pattern.strip_suffix('/').unwrap_or(pattern);
        let last = without_trailing_slash.split('/').count() - 1;
        let read = |(at, segment): (usize, &str)| match segment {
            "" | "." | ".." if !(at == last && segment.is_empty()) => Err("has an empty segment, or . or .."),
            "+" => Ok(Segment::Any),
            segment => match segment.strip_suffix('*') {
                Some(start) if at == last && !start.contains('*') => Ok(Segment::Rest(decoded(start)?)),
                None if !segment.contains('*') && !segment.is_empty() => Ok(Segment::Named(decoded(segment)?)),
                _ => Err("has a * that is not at its end"),
            },
        };
        let segments = without_trailing_slash.split('/').enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        let any =
            without_trailing_slash.split_inclusive('/').take_while(|segment| segment.trim_end_matches('/') != "+");
        let start = decoded(any.collect::<String>().trim_end_matches('*'))?;
        let open = !segments.contains(&Segment::Any) && matches!(segments.last(), Some(Segment::Rest(_)));
        Ok(Self { methods, segments, start, open })
    }

    fn is_about(&self, operation: Operation) -> bool {
        self.methods & operation.0 != 0 || (self.methods == ALL && operation.is_head())
    }

    /// Whether it is about a request of this path.
    pub(super) fn is_about_path(&self, operation: Operation, path: &ApiPath<'_>) -> bool {
        self.is_about(operation) && self.matches(path.without_trailing_slash(), false)
    }

    /// `path` has no slash at its end; `folder` says that it may have one.
    fn matches(&self, path: &str, folder: bool) -> bool {
        // Most rules are not about a path, which is seen where it begins.
        let begins = begins_with(path.as_bytes(), self.start.as_bytes())
            || (folder && self.start.strip_suffix('/').is_some_and(|start| start == path));
        if !begins || self.open {
            return begins;
        }
        // By bytes: segments are too short for a search of characters.
        let none: Option<&[u8]> = folder.then_some(b"");
        let mut named = path.as_bytes().split(|byte| *byte == b'/').chain(none);
        for segment in &self.segments {
            let Some(name) = named.next() else { return false };
            match segment {
                Segment::Named(wanted) if wanted.len() == name.len() && begins_with(name, wanted.as_bytes()) => {}
                Segment::Any if !name.is_empty() => {}
                Segment::Rest(start) => return begins_with(name, start.as_bytes()),
                Segment::Named(_) | Segment::Any => return false,
            }
        }
        named.next().is_none_or(|rest| folder && rest.is_empty() && named.next().is_none())
    }
}

/// A piece of a pattern without its encoding. Nothing that no path is served with: such a rule would never be about anything.
fn decoded(text: &str) -> Result<String, &'static str> {
    let plain = percent_decode_str(text).decode_utf8().map_err(|_| "is no UTF-8 once its encoding is taken off")?;
    let slashes = |text: &str| text.matches(['/', '\\']).count();
    let dots = plain.split('/').any(|segment| matches!(segment, "." | ".."));
    let twice = percent_decode_str(&plain).count() != plain.len();
    if slashes(&plain) != slashes(text) || plain.contains('\\') || plain.chars().any(char::is_control) || dots || twice
    {
        return Err("holds what no path is served with");
    }
    Ok(plain.into_owned())
}

/// Byte by byte: the C library compares by vectors, and where a pattern's short word stands at the end of a page of memory, and
/// the next page is not there, the processor takes hundreds of cycles for the part that is not meant.
fn begins_with(text: &[u8], start: &[u8]) -> bool {
    text.len() >= start.len() && text.iter().zip(start).all(|(one, other)| one == other)
}

fn parse_methods(text: &str) -> Result<u8, &'static str> {
    text.split(',').try_fold(0, |all, method| {
        let bit = METHODS.iter().position(|its| *its == method);
        bit.map(|bit| all | 1 << bit)
            .ok_or("names a method that is none of GET, LIST, SCAN, POST, PUT, PATCH, DELETE, HEAD")
    })
}

/// What is not done with the session's token unless a listener lifts it: it makes or ends tokens that outlive what they
/// were made for, shows the token, or is for those who run the server. Each with the paths that it covers.
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

/// What is refused where the session's token would be put on, unless it is lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exemption(usize);

impl Exemption {
    /// Takes the name of what is to be lifted.
    pub fn parse(name: &str) -> Option<Self> {
        PROTECTED.iter().position(|(its, _)| *its == name.trim_end_matches(['*', '/'])).map(Self)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        PROTECTED[self.0].0
    }

    /// The names of all.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PROTECTED.iter().map(|(name, _)| *name)
    }
}

/// What a listener lets through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// What is let through; empty for all.
    pub allow: Vec<Rule>,
    /// What of that is not. Counts behind a namespace in the path too.
    pub deny: Vec<Rule>,
    /// What is done with the session's token although it is refused otherwise.
    pub exempt: Vec<Exemption>,
}

/// Why a request is not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleViolation {
    NotAllowed,
    Denied,
    /// By name, for who knows what it means.
    Protected(&'static str),
}

impl Rules {
    /// Whether a request is let through, whosever token it carries.
    pub(super) fn check(&self, operation: Operation, path: &ApiPath<'_>) -> Result<(), RuleViolation> {
        let folder = operation.lists() || path.ends_in_slash();
        let allows = |rule: &Rule| rule.is_about(operation) && rule.matches(path.without_trailing_slash(), folder);
        if !self.allow.is_empty() && !self.allow.iter().any(allows) {
            return Err(RuleViolation::NotAllowed);
        }
        // Who may not read a path learns nothing of it by a `HEAD` either.
        let denied = |rule: &Rule| rule.is_about(operation) || (operation.is_head() && rule.is_about(Operation::GET));
        let denies = |rule: &Rule| denied(rule) && path.suffixes().any(|end| rule.matches(end, true));
        if self.deny.iter().any(denies) { Err(RuleViolation::Denied) } else { Ok(()) }
    }

    /// Whether it may be done with the session's token.
    pub(super) fn check_session_token(&self, path: &ApiPath<'_>) -> Result<(), RuleViolation> {
        let covers = |paths: &[&str], end: &str| {
            paths.iter().any(|covered| match covered.strip_suffix('*') {
                Some(start) => end.starts_with(start),
                None => end == *covered,
            })
        };
        for end in path.suffixes() {
            // Most paths have none of these words in them.
            if !PROTECTED_PREFIXES.iter().any(|start| end.starts_with(start)) {
                continue;
            }
            let found = PROTECTED.iter().enumerate().find(|(_, (_, paths))| covers(paths, end));
            if let Some((at, (name, _))) = found
                && !self.exempt.contains(&Exemption(at))
            {
                return Err(RuleViolation::Protected(name));
            }
        }
        Ok(())
    }
}

const PROTECTED_PREFIXES: [&str; 4] = ["acl/", "auth/token/", "snapshot", "sys/"];

#[cfg(test)]
mod tests;
