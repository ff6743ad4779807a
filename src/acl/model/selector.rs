//! Selectors of binding rules.
//!
//! Consul's filter language for strings and lists of strings: `==`, `!=`, `in`, `not in`, `contains`, `not contains`, `is
//! empty`, `is not empty`, `matches`, `not matches`; `and`, `or`, `not` and parentheses. Operands are `value.NAME`,
//! `list.NAME`, the names in `value` and `list`, and words or strings in quotes or backticks. `contains` searches a
//! substring in a string, an entry in a list, and a claim in `value` or `list`.
//!
//! A selector that depends on a claim that the token lacks is read twice: as Consul does, and with an empty string. It
//! matches only if both readings do, so that no login gets more than from Consul.

mod scan;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use keyward_telemetry::error_chain::escape_controls;
use regex_lite::Regex;

use super::verified_claims::VerifiedClaims;

/// Longest accepted selector, in bytes.
pub(crate) const MAX_SELECTOR: usize = 8 * 1024;

/// A selector, validated against the claims that an auth method maps.
#[derive(Debug, Clone)]
pub(crate) struct Selector(Expression);

#[derive(Debug, Clone)]
enum Expression {
    Any(Vec<Expression>),
    All(Vec<Expression>),
    Not(Box<Expression>),
    Test(Test),
}

/// Test of one claim, or of the names of the claims.
#[derive(Debug, Clone)]
struct Test {
    scope: Scope,
    /// Name of the claim; `None` for the names in the scope.
    claim: Option<String>,
    predicate: Predicate,
    negated: bool,
}

/// Claims that a field belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Value,
    List,
}

/// Test of a string, a list or a set of names. Operands are bytes: Go's escapes can make any.
#[derive(Debug, Clone)]
enum Predicate {
    Equals(Vec<u8>),
    Contains(Vec<u8>),
    Empty,
    Matches(Pattern),
}

#[derive(Debug, Clone)]
struct Pattern {
    regex: Regex,
    /// It may ignore case somewhere, which it does for ASCII letters only.
    ignores_case: bool,
}

/// Error of parsing a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SelectorError {
    /// The text is too long.
    #[error("it is longer than {MAX_SELECTOR} bytes")]
    TooLong,
    /// The nesting is too deep.
    #[error("it is nested too deep")]
    TooDeep,
    /// Syntax error.
    #[error("at character {at}: expected {expected}, found {}", escape_controls(found))]
    Syntax {
        /// Character position, from 1.
        at: usize,
        /// Expected token.
        expected: &'static str,
        /// Token that was found.
        found: String,
    },
    /// It refers to a claim that the auth method does not map.
    #[error("{} is unknown; available: {available}", escape_controls(name))]
    Unknown {
        /// Name in the selector.
        name: String,
        /// Names that the auth method maps.
        available: String,
    },
    /// A list or a set of names is compared like a string.
    #[error(
        "{} is no string: only `contains`, `in` and `is empty` apply to it, not `{operator}`",
        escape_controls(name)
    )]
    Operator {
        /// Field.
        name: String,
        /// Operator.
        operator: &'static str,
    },
    /// Invalid regular expression.
    #[error("{pattern:?} is not a valid regular expression: {reason}")]
    Pattern {
        /// Pattern.
        pattern: String,
        /// Reason.
        reason: &'static str,
    },
}

impl Selector {
    /// Parses a selector; `claim_names` holds the names that it may use.
    pub(crate) fn parse(text: &str, claim_names: &VerifiedClaims) -> Result<Self, SelectorError> {
        parse::expression(text, claim_names).map(Self)
    }

    /// Returns whether the selector matches the claims of a login.
    pub(crate) fn matches(&self, claims: &VerifiedClaims) -> bool {
        self.0.evaluate(claims) == Some(true)
    }
}

impl Expression {
    /// Returns `None` if the result depends on how a claim that the token lacks is read.
    fn evaluate(&self, claims: &VerifiedClaims) -> Option<bool> {
        let decide = |parts: &[Self], decisive: bool| {
            let mut all = Some(!decisive);
            for part in parts {
                match part.evaluate(claims) {
                    Some(result) if result == decisive => return Some(decisive),
                    Some(_) => {}
                    None => all = None,
                }
            }
            all
        };
        match self {
            Self::Any(parts) => decide(parts, true),
            Self::All(parts) => decide(parts, false),
            Self::Not(part) => part.evaluate(claims).map(|result| !result),
            Self::Test(test) => test.evaluate(claims),
        }
    }
}

impl Test {
    fn evaluate(&self, claims: &VerifiedClaims) -> Option<bool> {
        let found = match (self.scope, self.claim.as_deref()) {
            (Scope::Value, None) => self.predicate.matches_entries(present(&claims.values)),
            (Scope::List, None) => self.predicate.matches_entries(present(&claims.lists)),
            (Scope::Value, Some(name)) => match claims.values.get(name) {
                Some(Some(text)) => self.predicate.matches_text(text)?,
                _ => return self.evaluate_missing(),
            },
            (Scope::List, Some(name)) => {
                let list = claims.lists.get(name).and_then(Option::as_ref);
                self.predicate.matches_entries(list.into_iter().flatten().map(String::as_str))
            }
        };
        Some(found != self.negated)
    }

    /// Evaluates the test of a string claim that the token lacks; `None` if Consul's result is not that of an empty string.
    fn evaluate_missing(&self) -> Option<bool> {
        let in_consul = match self.predicate {
            Predicate::Equals(_) | Predicate::Contains(_) => self.negated,
            Predicate::Empty => !self.negated,
            Predicate::Matches(_) => true,
        };
        let as_empty = self.predicate.matches_text("")? != self.negated;
        (in_consul == as_empty).then_some(in_consul)
    }
}

/// Names of the claims that the token has.
fn present<T>(claims: &BTreeMap<String, Option<T>>) -> impl Iterator<Item = &str> {
    claims.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name.as_str())
}

impl Scope {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::List => "list",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Value, Self::List].into_iter().find(|scope| scope.as_str() == name)
    }
}

impl Predicate {
    /// Returns `None` for a text whose case the pattern would ignore in Consul alone.
    fn matches_text(&self, text: &str) -> Option<bool> {
        let bytes = text.as_bytes();
        Some(match self {
            Self::Equals(value) => bytes == value,
            Self::Contains(part) => part.is_empty() || bytes.windows(part.len()).any(|window| window == part),
            Self::Empty => text.is_empty(),
            Self::Matches(pattern) if pattern.ignores_case && !text.is_ascii() => return None,
            Self::Matches(pattern) => pattern.regex.is_match(text),
        })
    }

    fn matches_entries<'a>(&self, mut entries: impl Iterator<Item = &'a str>) -> bool {
        match self {
            Self::Contains(entry) => entries.any(|found| found.as_bytes() == entry),
            Self::Empty => entries.next().is_none(),
            // The parser rejects these.
            Self::Equals(_) | Self::Matches(_) => false,
        }
    }
}
