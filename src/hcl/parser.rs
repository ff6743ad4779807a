//! Parses HCL 1.

use super::lexer::{Lexeme, Lexer};
use super::{Attribute, HclError, MAX_DEPTH, Node, Object, Position, Value};

pub(super) fn read(text: &str) -> Result<Object, HclError> {
    // HCL treats both line ends alike, in heredocs too.
    let text = text.replace("\r\n", "\n");
    let mut parser = Parser { lexer: Lexer::new(&text), at: Position { line: 1, column: 1 }, word: Lexeme::End };
    parser.step()?;
    let object = parser.attributes(0)?;
    if parser.word == Lexeme::End { Ok(object) } else { Err(parser.unexpected("nothing is open that it could close")) }
}

/// Recursive-descent parser with one lexeme of look-ahead.
struct Parser<'a> {
    lexer: Lexer<'a>,
    at: Position,
    word: Lexeme,
}

impl Parser<'_> {
    fn unexpected(&self, advice: &str) -> HclError {
        HclError::new(self.at, self.word.describe(), advice)
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
            Some(_) => return Err(self.lexer.unexpected("a name, a value or one of { } [ ] = , would do")),
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
            _ => Err(self.unexpected("a key would do")),
        }
    }

    /// `key = value`, `key { ... }` or `key "label" ... { ... }`.
    fn attribute(&mut self, depth: usize) -> Result<Attribute, HclError> {
        let at = self.at;
        let (Lexeme::Name(key) | Lexeme::Text(key)) = self.step()? else {
            return Err(self.unexpected("a key would do"));
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
            _ if first => Err(self.unexpected("`=` and a value, or a block in braces would do")),
            _ => Err(self.unexpected("a block in braces follows a label")),
        }
    }

    fn too_deep(&self) -> HclError {
        HclError::new(self.at, "one more level", format!("at most {MAX_DEPTH} are read"))
    }

    fn value(&mut self, depth: usize) -> Result<Node, HclError> {
        let at = self.at;
        let value = match &self.word {
            Lexeme::Mark('{' | '[') if depth > MAX_DEPTH => return Err(self.too_deep()),
            Lexeme::Mark('{') => {
                self.step()?;
                let object = self.attributes(depth)?;
                if self.word == Lexeme::End {
                    return Err(self.unexpected(&format!("the block that was opened at {at} needs its `}}`")));
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
                _ => return Err(self.unexpected("a string stands in quotes")),
            },
            Lexeme::Text(_) | Lexeme::Number(_) => match self.step()? {
                Lexeme::Number(number) => return Ok(Node { at, value: Value::Number(number) }),
                Lexeme::Text(text) | Lexeme::Name(text) => return Ok(Node { at, value: Value::Text(text) }),
                Lexeme::Mark(_) | Lexeme::End => return Err(self.unexpected("a value would do")),
            },
            Lexeme::Mark(_) | Lexeme::End => return Err(self.unexpected("a value would do")),
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
                    return Err(self.unexpected(&format!("the list that was opened at {start} needs its `]`")));
                }
                _ => return Err(self.unexpected("`,` or `]` would do")),
            }
        }
        self.step()?;
        Ok(items)
    }

    /// Parses a string in quotes. In `${...}` quotes and line ends are content, and nothing is an escape.
    fn text(&mut self) -> Result<String, HclError> {
        let lexer = &mut self.lexer;
        lexer.next();
        let (mut text, mut braces) = (String::new(), 0_usize);
        loop {
            let position = lexer.position();
            if braces == 0 && lexer.take("${") {
                text.push_str("${");
                braces = 1;
                continue;
            }
            match lexer.next() {
                None => return Err(HclError::new(self.at, "a string without an end", "it ends with `\"`")),
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
                    let advice = "a string ends on its line; \\n or a heredoc writes a line end";
                    return Err(HclError::new(position, "the end of the line", advice));
                }
                Some('\\') => text.push(escape(lexer, position)?),
                Some(next) => text.push(next),
            }
        }
    }
}

/// Parses an escape after its backslash.
fn escape(lexer: &mut Lexer<'_>, start: Position) -> Result<char, HclError> {
    let wrong = |found: &str, advice: &str| HclError::new(start, found, advice);
    let (count, radix) = match lexer.peek() {
        Some('0'..='7') => (3, 8),
        Some('x') => (2, 16),
        Some('u') => (4, 16),
        Some('U') => (8, 16),
        Some(letter) => {
            lexer.next();
            return match letter {
                'a' => Ok('\u{7}'),
                'b' => Ok('\u{8}'),
                'f' => Ok('\u{c}'),
                'n' => Ok('\n'),
                'r' => Ok('\r'),
                't' => Ok('\t'),
                'v' => Ok('\u{b}'),
                '\\' | '"' => Ok(letter),
                _ => {
                    Err(wrong("an escape that is none", "these are: \\\\ \\\" \\n \\r \\t \\a \\b \\f \\v \\x \\u \\U"))
                }
            };
        }
        None => return Err(wrong("a string without an end", "it ends with `\"`")),
    };
    if radix == 16 {
        lexer.next();
    }
    let number = lexer.digits(count, radix)?;
    // Three octal or two hexadecimal digits are a byte, and a byte above 127 alone is not a character.
    if count < 4 && number > 127 {
        return Err(wrong("an escape for half a character", "\\u and four digits write any character"));
    }
    char::from_u32(number).ok_or_else(|| wrong("an escape that is no character", "surrogates are none"))
}
