//! Parses the JSON form: an object. A comma after the last entry is allowed, since existing files have it.

use super::lexer::{Lexeme, Lexer};
use super::{Attribute, HclError, MAX_DEPTH, Node, Object, Value};

pub(super) fn read(text: &str) -> Result<Object, HclError> {
    let mut lexer = Lexer::new(text);
    skip(&mut lexer);
    let Value::Object(object) = value(&mut lexer, 0)?.value else { return Err(lexer.unexpected("an object")) };
    match lexer.peek() {
        None => Ok(object),
        Some(_) => Err(lexer.unexpected("the end after the object")),
    }
}

fn skip(lexer: &mut Lexer<'_>) {
    lexer.take_while(|next| matches!(next, ' ' | '\t' | '\r' | '\n'));
}

/// Parses a value and the white space after it.
fn value(lexer: &mut Lexer<'_>, depth: usize) -> Result<Node, HclError> {
    let at = lexer.position();
    let value = match lexer.peek() {
        Some('{' | '[') if depth > MAX_DEPTH => {
            return Err(HclError::new(at, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        Some('{') => {
            let mut items = Vec::new();
            entries(lexer, '}', |lexer| {
                let at = lexer.position();
                if lexer.peek() != Some('"') {
                    return Err(lexer.unexpected("a key in quotes"));
                }
                let key = text(lexer)?;
                skip(lexer);
                if !lexer.take(":") {
                    return Err(lexer.unexpected("`:` after the key"));
                }
                skip(lexer);
                items.push(Attribute { key, at, value: value(lexer, depth + 1)? });
                Ok(())
            })?;
            Value::Object(Object { attributes: items })
        }
        Some('[') => {
            let mut items = Vec::new();
            entries(lexer, ']', |lexer| {
                items.push(value(lexer, depth + 1)?);
                Ok(())
            })?;
            Value::List(items)
        }
        Some('"') => Value::Text(text(lexer)?),
        Some(first) if first.is_ascii_digit() || first == '-' => {
            let number = lexer.number()?;
            if serde_json::from_str::<serde_json::Number>(&number).is_err() {
                let number = Lexeme::Number(number).describe();
                return Err(HclError::new(at, format!("invalid number {number}; JSON has only decimal numbers")));
            }
            Value::Number(number)
        }
        _ => match lexer.take_while(char::is_alphanumeric) {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            "" => return Err(lexer.unexpected("a value")),
            name => {
                let word = Lexeme::Name(name.to_owned()).describe();
                return Err(HclError::expected(at, "a value, with strings in quotes", &word));
            }
        },
    };
    skip(lexer);
    Ok(Node { at, value })
}

/// Parses entries separated by commas, from the opening mark, which comes next, to its closing mark.
fn entries<'a>(
    lexer: &mut Lexer<'a>,
    end: char,
    mut entry: impl FnMut(&mut Lexer<'a>) -> Result<(), HclError>,
) -> Result<(), HclError> {
    let close = end.to_string();
    let at = lexer.position();
    lexer.next();
    skip(lexer);
    while !lexer.take(&close) {
        entry(lexer)?;
        if lexer.take(",") {
            skip(lexer);
        } else if lexer.peek() != Some(end) {
            return Err(lexer.unexpected(&format!("`,` or `{end}` for what was opened at {at}")));
        }
    }
    Ok(())
}

fn text(lexer: &mut Lexer<'_>) -> Result<String, HclError> {
    let start = lexer.position();
    lexer.next();
    let mut text = String::new();
    loop {
        let position = lexer.position();
        match lexer.next() {
            None => return Err(HclError::new(start, "unterminated string; end it with `\"`")),
            Some('"') => return Ok(text),
            Some('\\') => text.push(match lexer.next() {
                Some(same @ ('"' | '\\' | '/')) => same,
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('u') => unicode(lexer).ok_or_else(|| {
                    HclError::new(position, "this escape is not a character; write \\u and four digits")
                })?,
                _ => {
                    let message = "unknown escape; known: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u";
                    return Err(HclError::new(position, message));
                }
            }),
            Some(next) if next < ' ' => {
                let character = Lexeme::Text(next.to_string()).describe();
                let message = format!("control character {character} in a string; write an escape such as \\n");
                return Err(HclError::new(position, message));
            }
            Some(next) => text.push(next),
        }
    }
}

/// Parses the character after `\u`; characters above U+FFFF are written as surrogate pairs.
fn unicode(lexer: &mut Lexer<'_>) -> Option<char> {
    let first = lexer.digits(4, 16).ok()?;
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(first);
    }
    let second = lexer.take("\\u").then(|| lexer.digits(4, 16).ok()).flatten()?;
    let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
    char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + low)
}
