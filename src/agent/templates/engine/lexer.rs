//! A template's text as tokens.

/// A token and its byte offset.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) offset: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind<'a> {
    /// Text between actions, trimmed.
    Text(&'a str),
    Open,
    Close,
    Space,
    Dot,
    /// A field, without its dot.
    Field(&'a str),
    /// A variable, with its dollar sign.
    Variable(&'a str),
    /// A keyword, a constant or a function.
    Word(&'a str),
    Number(&'a str),
    /// A character in its quotes.
    Char(&'a str),
    /// A string in its quotes.
    Quoted(&'a str),
    /// A raw string without its quotes.
    Raw(&'a str),
    Assign,
    Declare,
    Pipe,
    LeftParen,
    RightParen,
    Other(char),
    End,
    Error(String),
}

/// Splits a text into tokens. The last one is [`Kind::End`] or [`Kind::Error`].
pub(super) fn split<'a>(text: &'a str, left: &'a str, right: &'a str) -> Vec<Token<'a>> {
    let mut lexer = Lexer { text, left, right, at: 0, tokens: Vec::new(), parens: 0 };
    let last = lexer.texts().err();
    let offset = last.as_ref().map_or(text.len(), |error| error.offset);
    let kind = last.map_or(Kind::End, |error| Kind::Error(error.message));
    lexer.tokens.push(Token { kind, offset });
    lexer.tokens
}

struct LexError {
    offset: usize,
    message: String,
}

struct Lexer<'a> {
    text: &'a str,
    left: &'a str,
    right: &'a str,
    at: usize,
    tokens: Vec<Token<'a>>,
    parens: usize,
}

const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn push(&mut self, kind: Kind<'a>, length: usize) {
        self.tokens.push(Token { kind, offset: self.at });
        self.at += length;
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, LexError> {
        Err(LexError { offset: self.at, message: message.into() })
    }

    /// Reads texts and the actions between them.
    fn texts(&mut self) -> Result<(), LexError> {
        loop {
            let Some(length) = self.rest().find(self.left) else {
                if !self.rest().is_empty() {
                    self.push(Kind::Text(self.rest()), self.rest().len());
                }
                return Ok(());
            };
            let action = &self.rest()[length + self.left.len()..];
            let is_trimmed = action.strip_prefix('-').is_some_and(|rest| rest.starts_with(SPACES));
            let text = &self.rest()[..length];
            let text = if is_trimmed { text.trim_end_matches(SPACES) } else { text };
            if !text.is_empty() {
                self.push(Kind::Text(text), 0);
            }
            self.at += length;
            let begin = self.left.len() + if is_trimmed { 2 } else { 0 };
            if self.rest()[begin..].starts_with("/*") {
                self.comment(begin)?;
            } else {
                self.push(Kind::Open, self.left.len() + usize::from(is_trimmed));
                self.action()?;
            }
        }
    }

    fn comment(&mut self, begin: usize) -> Result<(), LexError> {
        let Some(length) = self.rest()[begin..].find("*/") else { return self.error("unclosed comment") };
        let offset = self.at;
        self.at += begin + length + 2;
        if let Some(length) = self.close() {
            self.at += length;
            return Ok(());
        }
        self.at = offset;
        self.error("the comment ends before the closing delimiter")
    }

    /// Returns the length of the closing delimiter, if it is next, with the text that it trims.
    fn close(&self) -> Option<usize> {
        if self.rest().starts_with(self.right) {
            return Some(self.right.len());
        }
        let trimming = self.rest().strip_prefix(SPACES)?.strip_prefix('-')?.strip_prefix(self.right)?;
        let trimmed = trimming.trim_start_matches(SPACES);
        Some(self.rest().len() - trimmed.len())
    }

    /// Reads an action to its closing delimiter.
    fn action(&mut self) -> Result<(), LexError> {
        self.parens = 0;
        loop {
            if let Some(length) = self.close() {
                if self.parens > 0 {
                    return self.error("unclosed left parenthesis");
                }
                self.push(Kind::Close, length);
                return Ok(());
            }
            let rest = self.rest();
            let Some(c) = rest.chars().next() else { return self.error("unclosed action") };
            match c {
                c if SPACES.contains(&c) => {
                    let mut length = rest.len() - rest.trim_start_matches(SPACES).len();
                    // The last one may belong to the closing delimiter.
                    if rest[length..].strip_prefix('-').is_some_and(|rest| rest.starts_with(self.right)) {
                        length -= 1;
                    }
                    self.push(Kind::Space, length);
                }
                '=' => self.push(Kind::Assign, 1),
                ':' if rest.starts_with(":=") => self.push(Kind::Declare, 2),
                ':' => return self.error("expected :="),
                '|' => self.push(Kind::Pipe, 1),
                '"' => self.quoted('"', "unterminated string")?,
                '\'' => self.quoted('\'', "unterminated character")?,
                '`' => match rest[1..].find('`') {
                    Some(length) => self.push(Kind::Raw(&rest[1..=length]), length + 2),
                    None => return self.error("unterminated raw string"),
                },
                '$' => {
                    let length = 1 + name_length(&rest[1..]);
                    self.terminated(length)?;
                    self.push(Kind::Variable(&rest[..length]), length);
                }
                '.' if rest[1..].starts_with(|next: char| next.is_ascii_digit()) => self.number()?,
                '.' => {
                    let length = name_length(&rest[1..]);
                    self.terminated(1 + length)?;
                    let kind = if length == 0 { Kind::Dot } else { Kind::Field(&rest[1..=length]) };
                    self.push(kind, 1 + length);
                }
                '+' | '-' | '0'..='9' => self.number()?,
                '(' => {
                    self.parens += 1;
                    self.push(Kind::LeftParen, 1);
                }
                ')' => match self.parens.checked_sub(1) {
                    Some(parens) => {
                        self.parens = parens;
                        self.push(Kind::RightParen, 1);
                    }
                    None => return self.error("unexpected right parenthesis"),
                },
                c if is_name_char(c) => {
                    let length = name_length(rest);
                    self.terminated(length)?;
                    self.push(Kind::Word(&rest[..length]), length);
                }
                c if c.is_ascii_graphic() => self.push(Kind::Other(c), 1),
                _ => return self.error("unexpected character in an action"),
            }
        }
    }

    /// Checks that a name ends where it ends.
    fn terminated(&mut self, length: usize) -> Result<(), LexError> {
        let rest = &self.rest()[length..];
        let is_end = rest.is_empty() || rest.starts_with(SPACES) || rest.starts_with(['.', ',', '|', ':', ')', '(']);
        if is_end || rest.starts_with(self.right) {
            return Ok(());
        }
        self.at += length;
        self.error("unexpected character after a name")
    }

    fn quoted(&mut self, mark: char, unterminated: &str) -> Result<(), LexError> {
        let rest = self.rest();
        let mut is_escaped = false;
        for (at, c) in rest.char_indices().skip(1) {
            match c {
                '\n' => break,
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                c if c == mark => {
                    let whole = &rest[..=at];
                    self.push(if mark == '"' { Kind::Quoted(whole) } else { Kind::Char(whole) }, whole.len());
                    return Ok(());
                }
                _ => {}
            }
        }
        self.error(unterminated)
    }

    fn number(&mut self) -> Result<(), LexError> {
        let rest = self.rest();
        let length = number_length(rest);
        let follows = rest[length..].chars().next();
        if length == 0 || follows.is_some_and(|c| is_name_char(c) || c == '+' || c == '-') {
            return self.error("bad number syntax");
        }
        self.push(Kind::Number(&rest[..length]), length);
        Ok(())
    }
}

fn is_name_char(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn name_length(text: &str) -> usize {
    text.find(|c: char| !is_name_char(c)).unwrap_or(text.len())
}

/// Returns the length of the number that a text begins with; 0 without digits.
fn number_length(text: &str) -> usize {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let prefix = rest.get(..2).unwrap_or_default().to_ascii_lowercase();
    let radix = match prefix.as_str() {
        "0x" => 16,
        "0o" => 8,
        "0b" => 2,
        _ => 10,
    };
    if radix != 10 {
        rest = &rest[2..];
    }
    let skip = |rest: &mut &str| *rest = rest.trim_start_matches(|c: char| c == '_' || c.is_digit(radix));
    let begin = rest.len();
    skip(&mut rest);
    if let Some(fraction) = rest.strip_prefix('.') {
        rest = fraction;
        skip(&mut rest);
    }
    if begin == rest.len() {
        return 0;
    }
    let exponents = if radix == 16 { ['p', 'P'] } else { ['e', 'E'] };
    if radix != 8
        && radix != 2
        && let Some(exponent) = rest.strip_prefix(exponents)
    {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        rest = exponent.trim_start_matches(|c: char| c == '_' || c.is_ascii_digit());
    }
    text.len() - rest.len()
}
