//! Parser of selectors.

use regex_lite::{Regex, RegexBuilder};

use super::{Expression, MAX_SELECTOR, Predicate, SelectorError, VerifiedClaims};

/// Deepest nesting of parentheses and `not`.
const MAX_DEPTH: usize = 32;

/// Largest compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Sign(&'static str),
    End,
}

impl Token {
    fn describe(&self) -> String {
        match self {
            Self::Word(word) => word.chars().take(64).collect(),
            Self::Text(_) => "a string".to_owned(),
            Self::Sign(sign) => (*sign).to_owned(),
            Self::End => "the end".to_owned(),
        }
    }
}

pub(super) fn expression(text: &str, claim_names: &VerifiedClaims) -> Result<Expression, SelectorError> {
    if text.len() > MAX_SELECTOR {
        return Err(SelectorError::TooLong);
    }
    let mut parser = Parser { tokens: tokens(text)?, next: 0, claim_names };
    let expression = parser.parse_or(0)?;
    match parser.peek() {
        Token::End => Ok(expression),
        _ => parser.fail("\"and\", \"or\" or the end"),
    }
}

/// Splits a string into tokens with their character positions, ending with [`Token::End`].
fn tokens(text: &str) -> Result<Vec<(usize, Token)>, SelectorError> {
    let characters: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&character) = characters.get(at) {
        let begin = at;
        let token = match character {
            space if space.is_whitespace() => {
                at += 1;
                continue;
            }
            '(' | ')' | '[' | ']' => {
                at += 1;
                Token::Sign(match character {
                    '(' => "(",
                    ')' => ")",
                    '[' => "[",
                    _ => "]",
                })
            }
            '=' | '!' if characters.get(at + 1) == Some(&'=') => {
                at += 2;
                Token::Sign(if character == '=' { "==" } else { "!=" })
            }
            '"' | '`' => Token::Text(parse_quoted(&characters, &mut at)?),
            '=' | '!' => {
                let expected = "\"==\" or \"!=\"";
                return Err(SelectorError::Syntax { at: begin + 1, expected, found: character.to_string() });
            }
            _ => {
                let ends = |character: &char| character.is_whitespace() || "()[]=!\"`".contains(*character);
                let word: String = characters[at..].iter().take_while(|character| !ends(character)).collect();
                at += word.chars().count();
                Token::Word(word)
            }
        };
        tokens.push((begin + 1, token));
    }
    tokens.push((characters.len() + 1, Token::End));
    Ok(tokens)
}

/// Reads a string in quotes with backslash escapes, or in backticks without.
fn parse_quoted(characters: &[char], at: &mut usize) -> Result<String, SelectorError> {
    let begin = *at;
    let quote = characters[begin];
    let mut text = String::new();
    *at += 1;
    loop {
        let character = characters.get(*at).copied();
        *at += 1;
        match character {
            Some(character) if character == quote => return Ok(text),
            Some('\\') if quote == '"' => {
                let escaped = characters.get(*at).copied();
                *at += 1;
                text.push(match escaped {
                    Some(quoted @ ('"' | '\\')) => quoted,
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('r') => '\r',
                    other => {
                        let found = other.map_or("the end".to_owned(), |character| format!("\\{character}"));
                        let expected = "one of \\\", \\\\, \\n, \\t and \\r";
                        return Err(SelectorError::Syntax { at: *at - 1, expected, found });
                    }
                });
            }
            Some(character) => text.push(character),
            None => {
                let expected = "a closing quote";
                return Err(SelectorError::Syntax { at: begin + 1, expected, found: "the end".to_owned() });
            }
        }
    }
}

struct Parser<'a> {
    tokens: Vec<(usize, Token)>,
    next: usize,
    claim_names: &'a VerifiedClaims,
}

impl Parser<'_> {
    /// Returns the next token and its position; stays at the end.
    fn position(&self) -> &(usize, Token) {
        const END: &(usize, Token) = &(0, Token::End);
        self.tokens.get(self.next).or(self.tokens.last()).unwrap_or(END)
    }

    fn peek(&self) -> &Token {
        &self.position().1
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let is = matches!(self.peek(), Token::Word(text) if text == word);
        self.next += usize::from(is);
        is
    }

    fn accept_sign(&mut self, sign: &str) -> bool {
        let is = matches!(self.peek(), Token::Sign(next_sign) if *next_sign == sign);
        self.next += usize::from(is);
        is
    }

    fn fail<T>(&self, expected: &'static str) -> Result<T, SelectorError> {
        let (at, token) = self.position();
        Err(SelectorError::Syntax { at: *at, expected, found: token.describe() })
    }

    fn parse_or(&mut self, depth: usize) -> Result<Expression, SelectorError> {
        let first = self.parse_and(depth)?;
        let mut parts = vec![first];
        while self.accept_word("or") {
            parts.push(self.parse_and(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Any(parts) })
    }

    fn parse_and(&mut self, depth: usize) -> Result<Expression, SelectorError> {
        let first = self.parse_not(depth)?;
        let mut parts = vec![first];
        while self.accept_word("and") {
            parts.push(self.parse_not(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::All(parts) })
    }

    fn parse_not(&mut self, depth: usize) -> Result<Expression, SelectorError> {
        if depth > MAX_DEPTH {
            return Err(SelectorError::TooDeep);
        }
        if self.accept_word("not") {
            return Ok(Expression::Not(Box::new(self.parse_not(depth + 1)?)));
        }
        if self.accept_sign("(") {
            let inner = self.parse_or(depth + 1)?;
            return if self.accept_sign(")") { Ok(inner) } else { self.fail("\")\"") };
        }
        self.parse_comparison()
    }

    fn parse_comparison(&mut self) -> Result<Expression, SelectorError> {
        let word_after = |tokens: usize, word: &str| matches!(self.tokens.get(self.next + tokens), Some((_, Token::Word(text))) if text == word);
        if word_after(1, "in") || word_after(1, "not") && word_after(2, "in") {
            let value = self.parse_value()?;
            let negated = self.accept_word("not");
            self.accept_word("in");
            let field = self.parse_field()?;
            return Ok(negate(self.build_test(field, Predicate::Contains(value))?, negated));
        }
        let field = self.parse_field()?;
        let negated = self.accept_word("not");
        let (test, negated) = if self.accept_word("contains") {
            (Predicate::Contains(self.parse_value()?), negated)
        } else if self.accept_word("matches") {
            (Predicate::Matches(self.parse_pattern()?), negated)
        } else if negated {
            return self.fail("\"in\", \"contains\" or \"matches\"");
        } else if self.accept_sign("==") {
            (Predicate::Equals(self.parse_value()?), false)
        } else if self.accept_sign("!=") {
            (Predicate::Equals(self.parse_value()?), true)
        } else if self.accept_word("is") {
            let negated = self.accept_word("not");
            if !self.accept_word("empty") {
                return self.fail("\"empty\"");
            }
            (Predicate::Empty, negated)
        } else {
            return self.fail("an operator, such as \"==\" or \"in\"");
        };
        Ok(negate(self.build_test(field, test)?, negated))
    }

    fn parse_value(&mut self) -> Result<String, SelectorError> {
        match self.peek() {
            Token::Word(_) | Token::Text(_) => match self.take() {
                Token::Word(text) | Token::Text(text) => Ok(text),
                _ => Ok(String::new()),
            },
            _ => self.fail("a name or a value"),
        }
    }

    fn parse_pattern(&mut self) -> Result<Regex, SelectorError> {
        let pattern = self.parse_value()?;
        let compiled = RegexBuilder::new(&pattern).size_limit(MAX_PATTERN_BYTES).build();
        compiled.map_err(|_| SelectorError::Pattern { pattern: pattern.chars().take(128).collect() })
    }

    /// Reads `value.NAME` or `list.NAME`, or the form with `["NAME"]`.
    fn parse_field(&mut self) -> Result<Field, SelectorError> {
        const WANTED: &str = "\"value.NAME\" or \"list.NAME\"";
        let Token::Word(word) = self.peek() else { return self.fail(WANTED) };
        let (kind, name) = word.split_once('.').map_or((word.as_str(), None), |(kind, name)| (kind, Some(name)));
        let listed = match kind {
            "value" => false,
            "list" => true,
            _ => {
                return Err(SelectorError::Unknown {
                    name: word.chars().take(128).collect(),
                    available: self.claim_names.describe_names(),
                });
            }
        };
        let name = name.map(str::to_owned);
        self.next += 1;
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            return Ok(Field { listed, name });
        }
        if !self.accept_sign("[") {
            return self.fail(WANTED);
        }
        let Token::Text(name) = self.take() else { return self.fail("a name in quotes") };
        if self.accept_sign("]") { Ok(Field { listed, name }) } else { self.fail("\"]\"") }
    }

    fn build_test(&self, field: Field, test: Predicate) -> Result<Expression, SelectorError> {
        let Field { listed, name } = field;
        let qualified = |name: &str| format!("{}.{name}", if listed { "list" } else { "value" });
        let claims = if listed {
            self.claim_names.lists.contains_key(&name)
        } else {
            self.claim_names.values.contains_key(&name)
        };
        if !claims {
            let name = qualified(&name).chars().take(128).collect();
            return Err(SelectorError::Unknown { name, available: self.claim_names.describe_names() });
        }
        match test {
            Predicate::Equals(_) | Predicate::Matches(_) if listed => {
                Err(SelectorError::List { name: qualified(&name) })
            }
            test if listed => Ok(Expression::List(name, test)),
            test => Ok(Expression::Value(name, test)),
        }
    }
}

/// Field of a selector: a claim's name, and whether the claim is a list.
struct Field {
    listed: bool,
    name: String,
}

fn negate(expression: Expression, negated: bool) -> Expression {
    if negated { Expression::Not(Box::new(expression)) } else { expression }
}
