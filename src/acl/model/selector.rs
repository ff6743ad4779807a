//! Selectors: which logins a binding rule is for.
//!
//! The part of the language of such services that is about texts and lists of texts: `==`, `!=`, `in`, `not in`,
//! `contains`, `not contains`, `is empty`, `is not empty`, `matches`, `not matches`; `and`, `or`, `not` and parentheses.
//! What is compared is `value.NAME` and `list.NAME`; a value is a word, or a text in quotes or backticks. On a text
//! `contains` looks for a part of it, on a list for one of its entries.

mod read;
#[cfg(test)]
mod tests;

use regex_lite::Regex;

use super::verified_claims::Known;

/// The longest selector, in bytes.
pub const MAX_SELECTOR: usize = 8 * 1024;

/// A selector, judged against what an auth method can know.
#[derive(Debug, Clone)]
pub struct Selector(Expression);

#[derive(Debug, Clone)]
enum Expression {
    Any(Vec<Expression>),
    All(Vec<Expression>),
    Not(Box<Expression>),
    Value(String, Test),
    List(String, Test),
}

#[derive(Debug, Clone)]
enum Test {
    Equals(String),
    Contains(String),
    Empty,
    Matches(Regex),
}

/// Why a text is no selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// It is longer than one may be.
    #[error("it is longer than {MAX_SELECTOR} bytes")]
    TooLong,
    /// It is nested too deep.
    #[error("it is nested too deep")]
    TooDeep,
    /// Something else is where a part of the language should be.
    #[error("at character {at}: expected {wanted}, found {found}")]
    Syntax {
        /// Where, counted from 1.
        at: usize,
        /// What could be there.
        wanted: &'static str,
        /// What is there.
        found: String,
    },
    /// It speaks of what the auth method does not know.
    #[error("{name} is unknown here; known is {known}")]
    Unknown {
        /// What it speaks of.
        name: String,
        /// What it could speak of.
        known: String,
    },
    /// A list is compared as if it were a text.
    #[error("{name} is a list: it can be asked what it contains and whether it is empty")]
    List {
        /// The list.
        name: String,
    },
    /// A pattern that cannot be used.
    #[error("{pattern:?} is no regular expression")]
    Pattern {
        /// The pattern.
        pattern: String,
    },
}

impl Selector {
    /// Reads a selector; `blank` has the names that it may use.
    ///
    /// # Errors
    /// It is none, or uses other names.
    pub fn parse(text: &str, blank: &Known) -> Result<Self, SelectorError> {
        read::expression(text, blank).map(Self)
    }

    /// Whether it is about this caller.
    pub fn fits(&self, known: &Known) -> bool {
        self.0.holds(known)
    }
}

impl Expression {
    fn holds(&self, known: &Known) -> bool {
        match self {
            Self::Any(parts) => parts.iter().any(|part| part.holds(known)),
            Self::All(parts) => parts.iter().all(|part| part.holds(known)),
            Self::Not(part) => !part.holds(known),
            Self::Value(name, test) => test.holds_for_text(known.values.get(name).map_or("", String::as_str)),
            Self::List(name, test) => test.holds_for_list(known.lists.get(name).map_or(&[], Vec::as_slice)),
        }
    }
}

impl Test {
    fn holds_for_text(&self, found: &str) -> bool {
        match self {
            Self::Equals(wanted) => found == wanted,
            Self::Contains(part) => found.contains(part.as_str()),
            Self::Empty => found.is_empty(),
            Self::Matches(pattern) => pattern.is_match(found),
        }
    }

    fn holds_for_list(&self, found: &[String]) -> bool {
        match self {
            Self::Contains(entry) => found.contains(entry),
            Self::Empty => found.is_empty(),
            // No list is read with these.
            Self::Equals(_) | Self::Matches(_) => false,
        }
    }
}
