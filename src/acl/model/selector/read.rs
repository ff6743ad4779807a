//! The reader of selectors.

use regex_lite::{Regex, RegexBuilder};

use super::{Expression, Known, MAX_SELECTOR, SelectorError, Test};

/// How deep parentheses and `not` may be nested.
const DEEPEST: usize = 32;

/// How large a compiled pattern may be, in bytes.
const PATTERN: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Sign(&'static str),
    End,
}

impl Token {
    fn told(&self) -> String {
        match self {
            Self::Word(word) => word.chars().take(64).collect(),
            Self::Text(_) => "a text".to_owned(),
            Self::Sign(sign) => (*sign).to_owned(),
            Self::End => "the end".to_owned(),
        }
    }
}

pub(super) fn expression(text: &str, blank: &Known) -> Result<Expression, SelectorError> {
    if text.len() > MAX_SELECTOR {
        return Err(SelectorError::TooLong);
    }
    let mut reader = Reader { tokens: tokens(text)?, next: 0, blank };
    let expression = reader.any(0)?;
    match reader.peek() {
        Token::End => Ok(expression),
        _ => reader.fail("\"and\", \"or\" or the end"),
    }
}

/// The tokens of a text with the character where each begins, the end at last.
fn tokens(text: &str) -> Result<Vec<(usize, Token)>, SelectorError> {
    let letters: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&letter) = letters.get(at) {
        let begin = at;
        let token = match letter {
            space if space.is_whitespace() => {
                at += 1;
                continue;
            }
            '(' | ')' | '[' | ']' => {
                at += 1;
                Token::Sign(match letter {
                    '(' => "(",
                    ')' => ")",
                    '[' => "[",
                    _ => "]",
                })
            }
            '=' | '!' if letters.get(at + 1) == Some(&'=') => {
                at += 2;
                Token::Sign(if letter == '=' { "==" } else { "!=" })
            }
            '"' | '`' => Token::Text(quoted(&letters, &mut at)?),
            '=' | '!' => {
                let found = letter.to_string();
                return Err(SelectorError::Syntax { at: begin + 1, wanted: "\"==\" or \"!=\"", found });
            }
            _ => {
                let ends = |letter: &char| letter.is_whitespace() || "()[]=!\"`".contains(*letter);
                let word: String = letters[at..].iter().take_while(|letter| !ends(letter)).collect();
                at += word.chars().count();
                Token::Word(word)
            }
        };
        found.push((begin + 1, token));
    }
    found.push((letters.len() + 1, Token::End));
    Ok(found)
}

/// A text in quotes, where a backslash escapes, or in backticks, where nothing does.
fn quoted(letters: &[char], at: &mut usize) -> Result<String, SelectorError> {
    let begin = *at;
    let quote = letters[begin];
    let mut text = String::new();
    *at += 1;
    loop {
        let letter = letters.get(*at).copied();
        *at += 1;
        match letter {
            Some(letter) if letter == quote => return Ok(text),
            Some('\\') if quote == '"' => {
                let escaped = letters.get(*at).copied();
                *at += 1;
                text.push(match escaped {
                    Some(same @ ('"' | '\\')) => same,
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('r') => '\r',
                    other => {
                        let found = other.map_or("the end".to_owned(), |letter| format!("\\{letter}"));
                        let wanted = "one of \\\", \\\\, \\n, \\t and \\r";
                        return Err(SelectorError::Syntax { at: *at - 1, wanted, found });
                    }
                });
            }
            Some(letter) => text.push(letter),
            None => {
                let found = "the end".to_owned();
                return Err(SelectorError::Syntax { at: begin + 1, wanted: "a closing quote", found });
            }
        }
    }
}

struct Reader<'a> {
    tokens: Vec<(usize, Token)>,
    next: usize,
    blank: &'a Known,
}

impl Reader<'_> {
    /// The next token; the last one is the end, and stays the next.
    fn place(&self) -> &(usize, Token) {
        const END: &(usize, Token) = &(0, Token::End);
        self.tokens.get(self.next).or(self.tokens.last()).unwrap_or(END)
    }

    fn peek(&self) -> &Token {
        &self.place().1
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn took_word(&mut self, word: &str) -> bool {
        let is = matches!(self.peek(), Token::Word(found) if found == word);
        self.next += usize::from(is);
        is
    }

    fn took_sign(&mut self, sign: &str) -> bool {
        let is = matches!(self.peek(), Token::Sign(found) if *found == sign);
        self.next += usize::from(is);
        is
    }

    fn fail<T>(&self, wanted: &'static str) -> Result<T, SelectorError> {
        let (at, token) = self.place();
        Err(SelectorError::Syntax { at: *at, wanted, found: token.told() })
    }

    fn any(&mut self, depth: usize) -> Result<Expression, SelectorError> {
        let first = self.all(depth)?;
        let mut parts = vec![first];
        while self.took_word("or") {
            parts.push(self.all(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Any(parts) })
    }

    fn all(&mut self, depth: usize) -> Result<Expression, SelectorError> {
        let first = self.negated(depth)?;
        let mut parts = vec![first];
        while self.took_word("and") {
            parts.push(self.negated(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::All(parts) })
    }

    fn negated(&mut self, depth: usize) -> Result<Expression, SelectorError> {
        if depth > DEEPEST {
            return Err(SelectorError::TooDeep);
        }
        if self.took_word("not") {
            return Ok(Expression::Not(Box::new(self.negated(depth + 1)?)));
        }
        if self.took_sign("(") {
            let inner = self.any(depth + 1)?;
            return if self.took_sign(")") { Ok(inner) } else { self.fail("\")\"") };
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Expression, SelectorError> {
        let word_after = |tokens: usize, word: &str| matches!(self.tokens.get(self.next + tokens), Some((_, Token::Word(found))) if found == word);
        if word_after(1, "in") || word_after(1, "not") && word_after(2, "in") {
            let value = self.value()?;
            let negated = self.took_word("not");
            self.took_word("in");
            let field = self.field()?;
            return Ok(negate(self.named(field, Test::Contains(value))?, negated));
        }
        let field = self.field()?;
        let negated = self.took_word("not");
        let (test, negated) = if self.took_word("contains") {
            (Test::Contains(self.value()?), negated)
        } else if self.took_word("matches") {
            (Test::Matches(self.pattern()?), negated)
        } else if negated {
            return self.fail("\"in\", \"contains\" or \"matches\"");
        } else if self.took_sign("==") {
            (Test::Equals(self.value()?), false)
        } else if self.took_sign("!=") {
            (Test::Equals(self.value()?), true)
        } else if self.took_word("is") {
            let negated = self.took_word("not");
            if !self.took_word("empty") {
                return self.fail("\"empty\"");
            }
            (Test::Empty, negated)
        } else {
            return self.fail("an operator, such as \"==\" or \"in\"");
        };
        Ok(negate(self.named(field, test)?, negated))
    }

    fn value(&mut self) -> Result<String, SelectorError> {
        match self.peek() {
            Token::Word(_) | Token::Text(_) => match self.take() {
                Token::Word(text) | Token::Text(text) => Ok(text),
                _ => Ok(String::new()),
            },
            _ => self.fail("a name or a value"),
        }
    }

    fn pattern(&mut self) -> Result<Regex, SelectorError> {
        let pattern = self.value()?;
        let compiled = RegexBuilder::new(&pattern).size_limit(PATTERN).build();
        compiled.map_err(|_| SelectorError::Pattern { pattern: pattern.chars().take(128).collect() })
    }

    /// What is looked at: `value.NAME`, `list.NAME`, or the same with `["NAME"]`.
    fn field(&mut self) -> Result<(bool, String), SelectorError> {
        const WANTED: &str = "\"value.NAME\" or \"list.NAME\"";
        let Token::Word(word) = self.peek() else { return self.fail(WANTED) };
        let (kind, name) = word.split_once('.').map_or((word.as_str(), None), |(kind, name)| (kind, Some(name)));
        let listed = match kind {
            "value" => false,
            "list" => true,
            _ => {
                return Err(SelectorError::Unknown {
                    name: word.chars().take(128).collect(),
                    known: self.blank.names(),
                });
            }
        };
        let name = name.map(str::to_owned);
        self.next += 1;
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            return Ok((listed, name));
        }
        if !self.took_sign("[") {
            return self.fail(WANTED);
        }
        let Token::Text(name) = self.take() else { return self.fail("a name in quotes") };
        if self.took_sign("]") { Ok((listed, name)) } else { self.fail("\"]\"") }
    }

    fn named(&self, (listed, name): (bool, String), test: Test) -> Result<Expression, SelectorError> {
        let told = |name: &str| format!("{}.{name}", if listed { "list" } else { "value" });
        let known = if listed { self.blank.lists.contains_key(&name) } else { self.blank.values.contains_key(&name) };
        if !known {
            let name = told(&name).chars().take(128).collect();
            return Err(SelectorError::Unknown { name, known: self.blank.names() });
        }
        match test {
            Test::Equals(_) | Test::Matches(_) if listed => Err(SelectorError::List { name: told(&name) }),
            test if listed => Ok(Expression::List(name, test)),
            test => Ok(Expression::Value(name, test)),
        }
    }
}

fn negate(expression: Expression, negated: bool) -> Expression {
    if negated { Expression::Not(Box::new(expression)) } else { expression }
}
