//! Parses HCL 1.

use super::lexer::{Lexeme, Lexer};
use super::{Attribute, HclError, MAX_DEPTH, Node, Object, Position, Value};

pub(super) fn read(text: &str) -> Result<Object, HclError> {
    // HCL treats both line ends alike, in heredocs too.
    let text = text.replace("\r\n", "\n");
    let mut parser = Parser { lexer: Lexer::new(&text), at: Position { line: 1, column: 1 }, word: Lexeme::End };
    parser.step()?;
    let object = parser.attributes(0)?;
    if parser.word == Lexeme::End { Ok(object) } else { Err(HclError::new(parser.at, "unmatched `}`")) }
}

/// Recursive-descent parser with one lexeme of look-ahead.
struct Parser<'a> {
    lexer: Lexer<'a>,
    at: Position,
    word: Lexeme,
}

impl Parser<'_> {
    fn unexpected(&self, expected: &str) -> HclError {
        HclError::expected(self.at, expected, &self.word.describe())
    }

    /// Reads the next lexeme and returns the current one.
    fn step(&mut self) -> Result<Lexeme, HclError> {
        self.lexer.skip_comments()?;
        self.at = self.lexer.position();
        let next = match self.lexer.peek() {
            None => Lexeme::End,
            Some('"') => Lexeme::Text(self.text()?),
            Some('<') if self.lexer.take("<<") => Lexeme::Text(self.lexer.heredoc(self.at)?),
            Some(first) if first.is_alphabetic() || first == '_' => {
                let name = |next: char| next.is_alphanumeric() || matches!(next, '_' | '-' | '.');
                Lexeme::Name(self.lexer.take_while(name).to_owned())
            }
            Some(first) if first.is_ascii_digit() || first == '-' => Lexeme::Number(self.lexer.number()?),
            Some(mark) if "{}[]=,".contains(mark) => {
                self.lexer.next();
                Lexeme::Mark(mark)
            }
            Some(_) => return Err(self.lexer.unexpected("a name, a value, a bracket, a brace, `=` or `,`")),
        };
        Ok(std::mem::replace(&mut self.word, next))
    }

    /// Parses attributes up to a closing brace or the end, which is not consumed.
    fn attributes(&mut self, depth: usize) -> Result<Object, HclError> {
        let mut items = Vec::new();
        while let Lexeme::Name(_) | Lexeme::Text(_) = self.word {
            items.push(self.attribute(depth)?);
            // HCL 1 allows commas between attributes, as in a list of maps.
            if self.word == Lexeme::Mark(',') {
                self.step()?;
            }
        }
        match self.word {
            Lexeme::Mark('}') | Lexeme::End => Ok(Object { attributes: items }),
            _ => Err(self.unexpected("a key")),
        }
    }

    /// `key = value`, `key { ... }` or `key "label" ... { ... }`.
    fn attribute(&mut self, depth: usize) -> Result<Attribute, HclError> {
        let at = self.at;
        let (Lexeme::Name(key) | Lexeme::Text(key)) = self.step()? else {
            return Err(self.unexpected("a key"));
        };
        let value = self.after_key(depth, true)?;
        Ok(Attribute { key, at, value })
    }

    fn after_key(&mut self, depth: usize, first: bool) -> Result<Node, HclError> {
        let at = self.at;
        match self.word {
            Lexeme::Mark('=') if first => {
                self.step()?;
                self.value(depth + 1)
            }
            Lexeme::Mark('{') => self.value(depth + 1),
            Lexeme::Name(_) | Lexeme::Text(_) if depth >= MAX_DEPTH => Err(self.too_deep()),
            Lexeme::Name(_) | Lexeme::Text(_) => {
                let (Lexeme::Name(label) | Lexeme::Text(label)) = self.step()? else {
                    return Err(self.unexpected("a label"));
                };
                let value = self.after_key(depth + 1, false)?;
                let label = Attribute { key: label, at, value };
                Ok(Node { at, value: Value::Object(Object { attributes: vec![label] }) })
            }
            _ if first => Err(self.unexpected("`=` and a value, or a block in braces")),
            _ => Err(self.unexpected("a block in braces after the label")),
        }
    }

    fn too_deep(&self) -> HclError {
        HclError::new(self.at, format!("nested deeper than {MAX_DEPTH} levels"))
    }

    fn value(&mut self, depth: usize) -> Result<Node, HclError> {
        let at = self.at;
        let value = match &self.word {
            Lexeme::Mark('{' | '[') if depth > MAX_DEPTH => return Err(self.too_deep()),
            Lexeme::Mark('{') => {
                self.step()?;
                let object = self.attributes(depth)?;
                if self.word == Lexeme::End {
                    return Err(self.unexpected(&format!("`}}` for the block opened at {at}")));
                }
                Value::Object(object)
            }
            Lexeme::Mark('[') => {
                self.step()?;
                return Ok(Node { at, value: Value::List(self.list(at, depth)?) });
            }
            Lexeme::Name(name) => match name.as_str() {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                _ => return Err(self.unexpected("a value, with strings in quotes")),
            },
            Lexeme::Text(_) | Lexeme::Number(_) => match self.step()? {
                Lexeme::Number(number) => return Ok(Node { at, value: Value::Number(number) }),
                Lexeme::Text(text) | Lexeme::Name(text) => return Ok(Node { at, value: Value::Text(text) }),
                Lexeme::Mark(_) | Lexeme::End => return Err(self.unexpected("a value")),
            },
            Lexeme::Mark(_) | Lexeme::End => return Err(self.unexpected("a value")),
        };
        self.step()?;
        Ok(Node { at, value })
    }

    fn list(&mut self, start: Position, depth: usize) -> Result<Vec<Node>, HclError> {
        let mut items = Vec::new();
        while self.word != Lexeme::Mark(']') {
            items.push(self.value(depth + 1)?);
            match self.word {
                Lexeme::Mark(',') => drop(self.step()?),
                Lexeme::Mark(']') => {}
                Lexeme::End => {
                    return Err(self.unexpected(&format!("`]` for the list opened at {start}")));
                }
                _ => return Err(self.unexpected("`,` or `]`")),
            }
        }
        self.step()?;
        Ok(items)
    }

    /// Parses a string in quotes. In `${...}` quotes and line ends are content, and nothing is an escape.
    fn text(&mut self) -> Result<String, HclError> {
        let lexer = &mut self.lexer;
        lexer.next();
        let mut text = String::new();
        let mut braces = 0_usize;
        loop {
            let position = lexer.position();
            if braces == 0 && lexer.take("${") {
                text.push_str("${");
                braces = 1;
                continue;
            }
            match lexer.next() {
                None => return Err(HclError::new(self.at, UNTERMINATED_STRING)),
                Some(next) if braces > 0 => {
                    text.push(next);
                    braces = match next {
                        '{' => braces + 1,
                        '}' => braces - 1,
                        _ => braces,
                    };
                }
                Some('"') => return Ok(text),
                Some('\n') => {
                    let message = "line end in a string; write \\n, or a heredoc";
                    return Err(HclError::new(position, message));
                }
                Some('\\') => text.push(escape(lexer, position)?),
                Some(next) => text.push(next),
            }
        }
    }
}

const UNTERMINATED_STRING: &str = "unterminated string; end it with `\"`";

/// Parses an escape after its backslash.
fn escape(lexer: &mut Lexer<'_>, start: Position) -> Result<char, HclError> {
    let error = |message: &str| HclError::new(start, message);
    let (count, radix) = match lexer.peek() {
        Some('0'..='7') => (3, 8),
        Some('x') => (2, 16),
        Some('u') => (4, 16),
        Some('U') => (8, 16),
        Some(character) => {
            lexer.next();
            return match character {
                'a' => Ok('\u{7}'),
                'b' => Ok('\u{8}'),
                'f' => Ok('\u{c}'),
                'n' => Ok('\n'),
                'r' => Ok('\r'),
                't' => Ok('\t'),
                'v' => Ok('\u{b}'),
                '\\' | '"' => Ok(character),
                _ => Err(error("unknown escape; known: \\\\ \\\" \\n \\r \\t \\a \\b \\f \\v \\x \\u \\U")),
            };
        }
        None => return Err(error(UNTERMINATED_STRING)),
    };
    if radix == 16 {
        lexer.next();
    }
    let number = lexer.digits(count, radix)?;
    // Three octal or two hexadecimal digits are a byte, and a byte above 127 alone is not a character.
    if count < 4 && number > 127 {
        return Err(error("this escape is one byte of a multi-byte character; use \\u and four digits"));
    }
    char::from_u32(number).ok_or_else(|| error("this escape is a surrogate, which is not a character"))
}
