//! Selectors of binding rules.
//!
//! Subset of Consul's filter language for strings and lists of strings: `==`, `!=`, `in`, `not in`, `contains`, `not
//! contains`, `is empty`, `is not empty`, `matches`, `not matches`; `and`, `or`, `not` and parentheses. Operands are
//! `value.NAME`, `list.NAME`, and words or strings in quotes or backticks. `contains` searches a substring in a string
//! and an entry in a list.

mod parse;
#[cfg(test)]
mod tests;

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
    Value(String, Predicate),
    List(String, Predicate),
}

#[derive(Debug, Clone)]
enum Predicate {
    Equals(String),
    Contains(String),
    Empty,
    Matches(Regex),
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
    /// A list is compared like a string.
    #[error("{name} is a list: only `contains`, `in` and `is empty` apply to it")]
    List {
        /// Name of the list.
        name: String,
    },
    /// Invalid regular expression.
    #[error("{pattern:?} is not a valid regular expression")]
    Pattern {
        /// Pattern.
        pattern: String,
    },
}

impl Selector {
    /// Parses a selector; `claim_names` holds the names that it may use.
    pub(crate) fn parse(text: &str, claim_names: &VerifiedClaims) -> Result<Self, SelectorError> {
        parse::expression(text, claim_names).map(Self)
    }

    /// Returns whether the selector matches the claims of a login.
    pub(crate) fn matches(&self, claims: &VerifiedClaims) -> bool {
        self.0.evaluate(claims)
    }
}

impl Expression {
    fn evaluate(&self, claims: &VerifiedClaims) -> bool {
        match self {
            Self::Any(parts) => parts.iter().any(|part| part.evaluate(claims)),
            Self::All(parts) => parts.iter().all(|part| part.evaluate(claims)),
            Self::Not(part) => !part.evaluate(claims),
            Self::Value(name, test) => test.matches_text(claims.values.get(name).map_or("", String::as_str)),
            Self::List(name, test) => test.matches_list(claims.lists.get(name).map_or(&[], Vec::as_slice)),
        }
    }
}

impl Predicate {
    fn matches_text(&self, text: &str) -> bool {
        match self {
            Self::Equals(value) => text == value,
            Self::Contains(part) => text.contains(part.as_str()),
            Self::Empty => text.is_empty(),
            Self::Matches(pattern) => pattern.is_match(text),
        }
    }

    fn matches_list(&self, list: &[String]) -> bool {
        match self {
            Self::Contains(entry) => list.contains(entry),
            Self::Empty => list.is_empty(),
            // The parser rejects these for lists.
            Self::Equals(_) | Self::Matches(_) => false,
        }
    }
}
