//! HCL 1 itself.

use super::lexer::{Scan, Word};
use super::{HclError, Item, MAX_DEPTH, Node, Object, Place, Value};

pub(super) fn read(text: &str) -> Result<Object, HclError> {
    // The language takes both line ends for one, in heredocs too.
    let text = text.replace("\r\n", "\n");
    let mut reader = Reader { scan: Scan::new(&text), at: Place { line: 1, column: 1 }, word: Word::End };
    reader.step()?;
    let object = reader.items(0)?;
    if reader.word == Word::End { Ok(object) } else { Err(reader.unexpected("nothing is open that it could close")) }
}

/// One word is always read ahead.
struct Reader<'a> {
    scan: Scan<'a>,
    at: Place,
    word: Word,
}

impl Reader<'_> {
    fn unexpected(&self, advice: &str) -> HclError {
        HclError::new(self.at, self.word.shown(), advice)
    }

    /// Reads the next word and gives the one before.
    fn step(&mut self) -> Result<Word, HclError> {
        self.scan.skip_comments()?;
        self.at = self.scan.place();
        let next = match self.scan.peek() {
            None => Word::End,
            Some('"') => Word::Text(self.text()?),
            Some('<') if self.scan.take("<<") => Word::Text(self.scan.heredoc(self.at)?),
            Some(first) if first.is_alphabetic() || first == '_' => {
                let name = |next: char| next.is_alphanumeric() || matches!(next, '_' | '-' | '.');
                Word::Name(self.scan.take_while(name).to_owned())
            }
            Some(first) if first.is_ascii_digit() || first == '-' => Word::Number(self.scan.number()?),
            Some(mark) if "{}[]=,".contains(mark) => {
                self.scan.next();
                Word::Mark(mark)
            }
            Some(_) => return Err(self.scan.unexpected("a name, a value or one of { } [ ] = , would do")),
        };
        Ok(std::mem::replace(&mut self.word, next))
    }

    /// Items up to a closing brace or the end, which is left where it stands.
    fn items(&mut self, depth: usize) -> Result<Object, HclError> {
        let mut items = Vec::new();
        while let Word::Name(_) | Word::Text(_) = self.word {
            items.push(self.item(depth)?);
            // The language lets items be parted by commas, as in a list of maps.
            if self.word == Word::Mark(',') {
                self.step()?;
            }
        }
        match self.word {
            Word::Mark('}') | Word::End => Ok(Object { items }),
            _ => Err(self.unexpected("a key would do")),
        }
    }

    /// `key = value`, `key { ... }` or `key "label" ... { ... }`.
    fn item(&mut self, depth: usize) -> Result<Item, HclError> {
        let at = self.at;
        let (Word::Name(key) | Word::Text(key)) = self.step()? else { return Err(self.unexpected("a key would do")) };
        let value = self.after_key(depth, true)?;
        Ok(Item { key, at, value })
    }

    fn after_key(&mut self, depth: usize, first: bool) -> Result<Node, HclError> {
        let at = self.at;
        match self.word {
            Word::Mark('=') if first => {
                self.step()?;
                self.value(depth + 1)
            }
            Word::Mark('{') => self.value(depth + 1),
            Word::Name(_) | Word::Text(_) if depth >= MAX_DEPTH => Err(self.too_deep()),
            Word::Name(_) | Word::Text(_) => {
                let (Word::Name(label) | Word::Text(label)) = self.step()? else {
                    return Err(self.unexpected("a label"));
                };
                let value = self.after_key(depth + 1, false)?;
                let label = Item { key: label, at, value };
                Ok(Node { at, value: Value::Object(Object { items: vec![label] }) })
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
            Word::Mark('{' | '[') if depth > MAX_DEPTH => return Err(self.too_deep()),
            Word::Mark('{') => {
                self.step()?;
                let object = self.items(depth)?;
                if self.word == Word::End {
                    return Err(self.unexpected(&format!("the block that was opened at {at} needs its `}}`")));
                }
                Value::Object(object)
            }
            Word::Mark('[') => {
                self.step()?;
                return Ok(Node { at, value: Value::List(self.list(at, depth)?) });
            }
            Word::Name(name) => match name.as_str() {
                "true" => Value::Flag(true),
                "false" => Value::Flag(false),
                _ => return Err(self.unexpected("a string stands in quotes")),
            },
            Word::Text(_) | Word::Number(_) => match self.step()? {
                Word::Number(number) => return Ok(Node { at, value: Value::Number(number) }),
                Word::Text(text) | Word::Name(text) => return Ok(Node { at, value: Value::Text(text) }),
                Word::Mark(_) | Word::End => return Err(self.unexpected("a value would do")),
            },
            Word::Mark(_) | Word::End => return Err(self.unexpected("a value would do")),
        };
        self.step()?;
        Ok(Node { at, value })
    }

    fn list(&mut self, start: Place, depth: usize) -> Result<Vec<Node>, HclError> {
        let mut items = Vec::new();
        while self.word != Word::Mark(']') {
            items.push(self.value(depth + 1)?);
            match self.word {
                Word::Mark(',') => drop(self.step()?),
                Word::Mark(']') => {}
                Word::End => return Err(self.unexpected(&format!("the list that was opened at {start} needs its `]`"))),
                _ => return Err(self.unexpected("`,` or `]` would do")),
            }
        }
        self.step()?;
        Ok(items)
    }

    /// A string in quotes. In `${...}` quotes and line ends are text, and nothing is an escape.
    fn text(&mut self) -> Result<String, HclError> {
        let scan = &mut self.scan;
        scan.next();
        let (mut text, mut braces) = (String::new(), 0_usize);
        loop {
            let place = scan.place();
            if braces == 0 && scan.take("${") {
                text.push_str("${");
                braces = 1;
                continue;
            }
            match scan.next() {
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
                    return Err(HclError::new(place, "the end of the line", advice));
                }
                Some('\\') => text.push(escape(scan, place)?),
                Some(next) => text.push(next),
            }
        }
    }
}

/// The character that an escape stands for; its backslash has been read.
fn escape(scan: &mut Scan<'_>, start: Place) -> Result<char, HclError> {
    let wrong = |found: &str, advice: &str| HclError::new(start, found, advice);
    let (count, radix) = match scan.peek() {
        Some('0'..='7') => (3, 8),
        Some('x') => (2, 16),
        Some('u') => (4, 16),
        Some('U') => (8, 16),
        Some(letter) => {
            scan.next();
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
        scan.next();
    }
    let number = scan.digits(count, radix)?;
    // In three octal or two hexadecimal digits stands a byte, and a byte above 127 alone is no character.
    if count < 4 && number > 127 {
        return Err(wrong("an escape for half a character", "\\u and four digits write any character"));
    }
    char::from_u32(number).ok_or_else(|| wrong("an escape that is no character", "surrogates are none"))
}
