//! Splits HCL into lexemes, for both forms of the language.

use super::{HclError, Position, quote};

/// The unread source, with the position of the next character.
#[derive(Debug, Clone)]
pub(super) struct Lexer<'a> {
    rest: &'a str,
    position: Position,
}

/// A lexeme of HCL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lexeme {
    /// A bare name; `true` and `false` are names too.
    Name(String),
    /// A string or a heredoc.
    Text(String),
    /// A number as written.
    Number(String),
    /// One of `{ } [ ] = : ,`.
    Mark(char),
    /// End of the text.
    End,
}

impl Lexeme {
    /// Describes the lexeme for messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Name(text) | Self::Number(text) => quote(text).replace('"', "`"),
            Self::Text(text) => quote(text),
            Self::Mark(mark) => format!("`{mark}`"),
            Self::End => "the end".to_owned(),
        }
    }
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, position: Position { line: 1, column: 1 } }
    }

    pub(super) fn position(&self) -> Position {
        self.position
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next()?;
        self.rest = chars.as_str();
        if next == '\n' {
            self.position = Position { line: self.position.line + 1, column: 1 };
        } else {
            self.position.column += 1;
        }
        Some(next)
    }

    /// Consumes `text` if it comes next; returns true if it did.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let stands = self.rest.starts_with(text);
        if stands {
            for _ in text.chars() {
                self.next();
            }
        }
        stands
    }

    pub(super) fn take_while(&mut self, mut matches: impl FnMut(char) -> bool) -> &'a str {
        let start = self.rest;
        while self.peek().is_some_and(&mut matches) {
            self.next();
        }
        &start[..start.len() - self.rest.len()]
    }

    /// Consumes the rest of the line with its line end.
    fn line(&mut self) -> &'a str {
        let start = self.rest;
        self.take_while(|next| next != '\n');
        self.next();
        &start[..start.len() - self.rest.len()]
    }

    /// Builds an error about the next character.
    pub(super) fn unexpected(&self, expected: &str) -> HclError {
        let next = self.peek().map_or_else(|| "the end".to_owned(), |next| quote(&next.to_string()));
        HclError::expected(self.position, expected, &next)
    }

    /// Skips white space and comments: `#` and `//` to the end of the line, `/* */`.
    pub(super) fn skip_comments(&mut self) -> Result<(), HclError> {
        loop {
            self.take_while(char::is_whitespace);
            let start = self.position;
            if self.rest.starts_with('#') || self.rest.starts_with("//") {
                self.line();
            } else if self.take("/*") {
                while !self.take("*/") {
                    if self.next().is_none() {
                        return Err(HclError::new(start, "unterminated comment; end it with `*/`"));
                    }
                }
            } else {
                return Ok(());
            }
        }
    }

    /// Consumes a number as HCL writes it: decimal, `0x` hexadecimal, `0` octal, or with a fraction or an exponent.
    pub(super) fn number(&mut self) -> Result<String, HclError> {
        let start = self.position;
        let mut last = ' ';
        let text = self.take_while(|next| {
            let exponent = matches!(last, 'e' | 'E') && matches!(next, '+' | '-');
            let continues = next.is_alphanumeric() || next == '.' || exponent || (last == ' ' && next == '-');
            last = next;
            continues
        });
        let digits = text.strip_prefix('-').unwrap_or(text);
        let all = |text: &str, radix| !text.is_empty() && text.chars().all(|digit| digit.is_digit(radix));
        let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
        let good = match hexadecimal {
            Some(digits) => all(digits, 16),
            None if all(digits, 10) => !digits.starts_with('0') || all(digits, 8),
            None => digits.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte)) && is_float(digits),
        };
        if good { Ok(text.to_owned()) } else { Err(HclError::new(start, format!("invalid number {}", quote(text)))) }
    }

    /// Consumes a heredoc after its `<<`: whole lines up to the line that holds only the anchor. With `<<-` the lines
    /// lose the indentation of that last line, if all of them have it.
    pub(super) fn heredoc(&mut self, start: Position) -> Result<String, HclError> {
        let indented = self.take("-");
        let anchor = self.take_while(|next| next.is_alphanumeric() || next == '_').to_owned();
        if anchor.is_empty() || self.peek() != Some('\n') {
            return Err(self.unexpected("a word and the end of the line after `<<`"));
        }
        self.next();
        let mut lines = Vec::new();
        loop {
            if self.rest.is_empty() {
                let message = format!("unterminated heredoc; end it with {anchor} on a line of its own");
                return Err(HclError::new(start, message));
            }
            let mut look_ahead = self.clone();
            let indentation = look_ahead.take_while(|next| next != '\n' && next.is_whitespace());
            if look_ahead.take(&anchor) && matches!(look_ahead.peek(), None | Some('\n')) {
                *self = look_ahead;
                let dedented = |line: &&'a str| line.strip_prefix(indentation);
                let all: Option<String> = indented.then(|| lines.iter().map(dedented).collect()).flatten();
                return Ok(all.unwrap_or_else(|| lines.concat()));
            }
            lines.push(self.line());
        }
    }

    /// Consumes exactly `count` digits of this radix and returns their value.
    pub(super) fn digits(&mut self, count: usize, radix: u32) -> Result<u32, HclError> {
        let mut number = 0;
        for _ in 0..count {
            let Some(digit) = self.peek().and_then(|next| next.to_digit(radix)) else {
                return Err(self.unexpected(&format!("{count} digits")));
            };
            self.next();
            number = number * radix + digit;
        }
        Ok(number)
    }
}

/// Returns true if a string of digits, `.`, `e`, `+` and `-` is a number with a fraction or an exponent.
fn is_float(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit()) && text.parse::<f64>().is_ok()
}
