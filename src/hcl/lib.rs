//! Parses HCL 1 and its JSON form: the language of ACL rules and of Vault Agent's and Consul Template's configuration.
//!
//! Both forms give the same tree with the position of each key and value. HCL 2 is another language: it rejects `a = 1
//! b = 2` on one line and takes the number `0640` for 640.
//!
//! [`read`] parses a text; [`Object`] is the tree.

// 0: characters -> lexemes
mod lexer;

// 1: lexemes -> the tree
mod json;
mod parser;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

use std::fmt;

/// Longest text that is parsed, in bytes.
pub const MAX_SIZE: usize = 1 << 20;

/// Deepest nesting of objects, labels and lists, so that code that walks a tree may recurse.
pub(crate) const MAX_DEPTH: usize = 32;

/// Position in a source. Both numbers start at 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}", self.line, self.column)
    }
}

/// Attributes in the order of the text. A repeated key occurs repeatedly.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Object {
    /// Attributes in the order of the text.
    pub attributes: Vec<Attribute>,
}

/// A key and its value: `key = value` or `key { ... }`.
///
/// A label is an object with one key: `service "web" { policy = "read" }`, `service { web { policy = "read" } }` and
/// `{"service": {"web": {"policy": "read"}}}` are equal, as the language defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The key, without its quotes.
    pub key: String,
    /// Position of the key.
    pub at: Position,
    /// The value.
    pub value: Node,
}

/// A value with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Position of its first character.
    pub at: Position,
    /// The value.
    pub value: Value,
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A string or a heredoc with its escapes resolved. The content of `${...}` is kept as written.
    Text(String),
    /// A number as written: only the reader of a value knows if `0640` and `416` are equal.
    Number(String),
    /// `true` or `false`.
    Bool(bool),
    /// JSON's `null`.
    Null,
    /// A list.
    List(Vec<Node>),
    /// An object, a block's body, or a label with its block.
    Object(Object),
}

impl Value {
    /// Returns the kind of the value with its article, for messages.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Number(_) => "a number",
            Self::Bool(_) => "a boolean",
            Self::Null => "null",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

/// Syntax error. Its message is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {message}")]
pub struct HclError {
    /// Position of the error.
    pub position: Position,
    /// The error, such as "expected a key, found `[`".
    pub message: String,
}

impl HclError {
    fn new(position: Position, message: impl Into<String>) -> Self {
        Self { position, message: message.into() }
    }

    /// An error about `found` in the place of something else.
    pub fn expected(position: Position, expected: &str, found: &str) -> Self {
        Self::new(position, format!("expected {expected}, found {found}"))
    }
}

/// Parses a string. It is parsed as JSON if its first character after white space is `{`, else as HCL.
pub fn read(text: &str) -> Result<Object, HclError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > MAX_SIZE {
        let start = Position { line: 1, column: 1 };
        return Err(HclError::new(start, format!("the text has {} bytes, the maximum is {MAX_SIZE}", text.len())));
    }
    if text.trim_start().starts_with('{') { json::read(text) } else { parser::read(text) }
}

/// Quotes a string for a message: on one line, with escapes, cut after 40 characters.
pub fn quote(text: &str) -> String {
    match text.char_indices().nth(40) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests;
