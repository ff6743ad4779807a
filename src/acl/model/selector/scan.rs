//! Scanner of selectors: blanks, operators, names and literals.
//!
//! The language is that of `go-bexpr`, which Consul evaluates selectors with. More is accepted where it is unambiguous: a
//! value without quotes may have any characters but blanks and signs, `\"` escapes a quote, and no blank is needed beside
//! a parenthesis or a quote.

use super::SelectorError;

/// Position in the text of a selector.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

/// Error whose position the caller may forget: another reading of the text can be valid.
pub(super) type Scan<T> = Result<T, SelectorError>;

/// Go's blanks. Others are part of a name, which then is unknown.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// Characters that end a value without quotes.
const SIGNS: &str = "()[]=!\"`";

fn ends_word(next: char) -> bool {
    BLANKS.contains(&next) || SIGNS.contains(next)
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the position, for [`Self::return_to`].
    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn return_to(&mut self, position: usize) {
        self.at = position;
    }

    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn is_at_end(&mut self) -> bool {
        self.skip_blanks();
        self.rest().is_empty()
    }

    /// Skips blanks; returns false if there are none.
    fn skip_blanks(&mut self) -> bool {
        let begin = self.at;
        self.at += self.rest().len() - self.rest().trim_start_matches(BLANKS).len();
        self.at > begin
    }

    /// Skips blanks and the sign, if it follows.
    pub(super) fn accept(&mut self, sign: &str) -> bool {
        let begin = self.at;
        self.skip_blanks();
        let found = self.rest().starts_with(sign);
        self.at = if found { self.at + sign.len() } else { begin };
        found
    }

    /// Skips the words, if they follow as words of their own.
    pub(super) fn accept_words(&mut self, words: &[&str]) -> bool {
        let begin = self.at;
        for word in words {
            let before = self.text.get(..self.at).and_then(|before| before.chars().next_back());
            let is_apart = before.is_none_or(|before| SIGNS.contains(before));
            let after = if self.skip_blanks() || is_apart { self.rest().strip_prefix(word) } else { None };
            let Some(after) = after.filter(|after| after.chars().next().is_none_or(ends_word)) else {
                self.at = begin;
                return false;
            };
            self.at = self.text.len() - after.len();
        }
        true
    }

    /// Reads a name and its parts: `NAME`, then any number of `.NAME` and `["TEXT"]`.
    pub(super) fn accept_path(&mut self) -> Scan<Option<Vec<Vec<u8>>>> {
        self.skip_blanks();
        let Some(first) = self.accept_name() else { return Ok(None) };
        let mut path = vec![first.as_bytes().to_vec()];
        loop {
            if self.rest().starts_with('[') {
                self.at += 1;
                self.skip_blanks();
                let Some(text) = self.accept_quoted()? else { return Err(self.fail("a name in quotes")) };
                path.push(text);
                if !self.accept("]") {
                    return Err(self.fail("\"]\""));
                }
                continue;
            }
            let begin = self.at;
            if self.rest().starts_with('.') {
                self.at += 1;
                if let Some(name) = self.accept_name() {
                    path.push(name.as_bytes().to_vec());
                    continue;
                }
            }
            self.at = begin;
            return Ok(Some(path));
        }
    }

    fn accept_name(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        if !rest.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return None;
        }
        let end = rest.find(|inner: char| !inner.is_ascii_alphanumeric() && inner != '_').unwrap_or(rest.len());
        self.at += end;
        rest.get(..end)
    }

    /// Reads a value: a text in quotes, a path, whose parts are joined by `.`, or a word.
    pub(super) fn parse_value(&mut self) -> Scan<Vec<u8>> {
        self.skip_blanks();
        let begin = self.at;
        if let Some(text) = self.accept_quoted()? {
            return Ok(text);
        }
        if let Some(path) = self.accept_path()? {
            let ends = |next: char| BLANKS.contains(&next) || next == ')';
            if self.rest().chars().next().is_none_or(ends) {
                return Ok(path.join(&b"."[..]));
            }
            self.at = begin;
        }
        let word = self.word();
        if word.is_empty() {
            return Err(self.fail("a name or a value"));
        }
        self.at += word.len();
        Ok(word.as_bytes().to_vec())
    }

    fn word(&self) -> &'a str {
        self.rest().split(ends_word).next().unwrap_or_default()
    }

    fn accept_quoted(&mut self) -> Scan<Option<Vec<u8>>> {
        let unclosed = |scanner: &Self| scanner.fail_as("a closing quote", "the end");
        if let Some(rest) = self.rest().strip_prefix('`') {
            let Some((raw, _)) = rest.split_once('`') else { return Err(unclosed(self)) };
            self.at += raw.len() + 2;
            // Go drops carriage returns from such a string.
            return Ok(Some(raw.bytes().filter(|byte| *byte != b'\r').collect()));
        }
        if !self.rest().starts_with('"') {
            return Ok(None);
        }
        let begin = self.at;
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let Some(next) = self.rest().chars().next() else {
                self.at = begin;
                return Err(unclosed(self));
            };
            match next {
                '"' => {
                    self.at += 1;
                    return Ok(Some(text));
                }
                '\\' => self.parse_escape(&mut text)?,
                '\n' => return Err(self.fail_as("`\\n`, or a string in backticks", "a line break")),
                _ => {
                    text.extend(next.encode_utf8(&mut [0; 4]).bytes());
                    self.at += next.len_utf8();
                }
            }
        }
    }

    /// Reads one of Go's escapes of a string in double quotes.
    fn parse_escape(&mut self, text: &mut Vec<u8>) -> Scan<()> {
        let mut rest = self.rest().chars().skip(1);
        let escaped = rest.next();
        let invalid = |scanner: &Self| {
            let found = escaped.map_or("the end".to_owned(), |character| format!("\\{character}"));
            Err(scanner.fail_as("an escape, such as \\\\, \\n, \\t or \\u00e9", &found))
        };
        let (length, digits, radix) = match escaped {
            Some('x') => (2, self.rest().get(2..4), 16),
            Some('u') => (4, self.rest().get(2..6), 16),
            Some('U') => (8, self.rest().get(2..10), 16),
            Some('0'..='7') => (3, self.rest().get(1..4), 8),
            _ => {
                let byte = match escaped {
                    Some('a') => 0x07,
                    Some('b') => 0x08,
                    Some('f') => 0x0c,
                    Some('n') => b'\n',
                    Some('r') => b'\r',
                    Some('t') => b'\t',
                    Some('v') => 0x0b,
                    Some('\\') => b'\\',
                    Some('"') => b'"',
                    _ => return invalid(self),
                };
                text.push(byte);
                self.at += 2;
                return Ok(());
            }
        };
        let digits = digits.filter(|digits| digits.chars().all(|digit| digit.is_digit(radix)));
        let Some(code) = digits.and_then(|digits| u32::from_str_radix(digits, radix).ok()) else {
            return invalid(self);
        };
        if length >= 4 {
            let Some(character) = char::from_u32(code) else { return invalid(self) };
            text.extend(character.encode_utf8(&mut [0; 4]).bytes());
        } else {
            let Ok(byte) = u8::try_from(code) else { return invalid(self) };
            text.push(byte);
        }
        self.at += length + if radix == 16 { 2 } else { 1 };
        Ok(())
    }

    /// Error at this position, which tells the text that follows.
    pub(super) fn fail(&mut self, expected: &'static str) -> SelectorError {
        self.skip_blanks();
        let found = match self.rest().chars().next() {
            None => "the end".to_owned(),
            Some('"' | '`') => "a string".to_owned(),
            Some(_) if self.rest().starts_with("==") => "==".to_owned(),
            Some(_) if self.rest().starts_with("!=") => "!=".to_owned(),
            Some(sign) if SIGNS.contains(sign) => sign.to_string(),
            Some(_) => self.word().chars().take(64).collect(),
        };
        self.fail_as(expected, &found)
    }

    fn fail_as(&self, expected: &'static str, found: &str) -> SelectorError {
        let at = self.text.get(..self.at).map_or(0, |before| before.chars().count()) + 1;
        SelectorError::Syntax { at, expected, found: found.to_owned() }
    }
}
