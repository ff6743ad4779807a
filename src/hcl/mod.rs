//! A reader of HCL 1 and of its JSON form, the languages of access-control rules and of other agents' configuration.
//!
//! Both forms give the same tree, in which each key and each value knows where it stands. HCL 2 is another language: it
//! refuses `a = 1 b = 2` on one line and takes the number `0640` for 640.

use std::fmt;

mod lexer;

mod json;
mod parser;

/// The longest text that is read, in bytes.
pub const MAX_SIZE: usize = 1 << 20;

/// The deepest that objects, labels and lists may be nested. Whoever walks a tree may recurse once a level.
pub const MAX_DEPTH: usize = 32;

/// A place in a text. Both numbers start at 1; the column counts characters.
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

/// Keys with their values, in the order of the text. A key that stands there twice is there twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Object {
    /// Them.
    pub attributes: Vec<Attribute>,
}

/// A key and its value: `key = value` or `key { ... }`.
///
/// A label is an object of one key: `service "web" { policy = "read" }`, `service { web { policy = "read" } }` and
/// `{"service": {"web": {"policy": "read"}}}` are one and the same, as the language has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The key, without its quotes.
    pub key: String,
    /// Where the key stands.
    pub at: Position,
    /// The value.
    pub value: Node,
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where it begins.
    pub at: Position,
    /// What it is.
    pub value: Value,
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A string or a heredoc, its escapes resolved. What stands in `${...}` is kept as it is written.
    Text(String),
    /// A number as it is written: `0640` and `0x1A0` are told from `416` by whoever must.
    Number(String),
    /// `true` or `false`.
    Bool(bool),
    /// JSON's `null`.
    Null,
    /// A list.
    List(Vec<Node>),
    /// An object, a block's body, or a label with what follows it.
    Object(Object),
}

impl Value {
    /// What it is, to say so.
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

/// Why a text cannot be read. Its text is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{position}: found {found}; {advice}")]
pub struct HclError {
    /// Where.
    pub position: Position,
    /// What stands there.
    pub found: String,
    /// What would do.
    pub advice: String,
}

impl HclError {
    fn new(position: Position, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { position, found: found.into(), advice: advice.into() }
    }
}

/// Reads a text. It is taken for JSON if the first character that is no space is a `{`, and for HCL otherwise.
///
/// # Errors
/// The text is neither, or it is longer than [`MAX_SIZE`] or nested deeper than [`MAX_DEPTH`].
pub fn read(text: &str) -> Result<Object, HclError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > MAX_SIZE {
        let start = Position { line: 1, column: 1 };
        return Err(HclError::new(start, format!("{} bytes", text.len()), format!("at most {MAX_SIZE} are read")));
    }
    if text.trim_start().starts_with('{') { json::read(text) } else { parser::read(text) }
}

/// A piece of a text as a message may show it: in quotes, in one line and not too long.
pub fn quote(text: &str) -> String {
    match text.char_indices().nth(40) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests;
