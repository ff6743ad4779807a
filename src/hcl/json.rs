//! The JSON form: an object. A comma may stand after the last entry, as in texts that people have.

use super::lexer::{Scan, Word};
use super::{HclError, Item, MAX_DEPTH, Node, Object, Value};

pub(super) fn read(text: &str) -> Result<Object, HclError> {
    let mut scan = Scan::new(text);
    skip(&mut scan);
    let Value::Object(object) = value(&mut scan, 0)?.value else { return Err(scan.unexpected("an object would do")) };
    match scan.peek() {
        None => Ok(object),
        Some(_) => Err(scan.unexpected("nothing follows the object")),
    }
}

fn skip(scan: &mut Scan<'_>) {
    scan.take_while(|next| matches!(next, ' ' | '\t' | '\r' | '\n'));
}

/// A value, and the spaces after it.
fn value(scan: &mut Scan<'_>, depth: usize) -> Result<Node, HclError> {
    let at = scan.place();
    let value = match scan.peek() {
        Some('{' | '[') if depth > MAX_DEPTH => {
            return Err(HclError::new(at, "one more level", format!("at most {MAX_DEPTH} are read")));
        }
        Some('{') => {
            let mut items = Vec::new();
            entries(scan, '}', |scan| {
                let at = scan.place();
                if scan.peek() != Some('"') {
                    return Err(scan.unexpected("a key in quotes would do"));
                }
                let key = text(scan)?;
                skip(scan);
                if !scan.take(":") {
                    return Err(scan.unexpected("`:` follows a key"));
                }
                skip(scan);
                items.push(Item { key, at, value: value(scan, depth + 1)? });
                Ok(())
            })?;
            Value::Object(Object { items })
        }
        Some('[') => {
            let mut items = Vec::new();
            entries(scan, ']', |scan| {
                items.push(value(scan, depth + 1)?);
                Ok(())
            })?;
            Value::List(items)
        }
        Some('"') => Value::Text(text(scan)?),
        Some(first) if first.is_ascii_digit() || first == '-' => {
            let number = scan.number()?;
            if serde_json::from_str::<serde_json::Number>(&number).is_err() {
                return Err(HclError::new(at, Word::Number(number).shown(), "JSON has decimal numbers alone"));
            }
            Value::Number(number)
        }
        _ => match scan.take_while(char::is_alphanumeric) {
            "true" => Value::Flag(true),
            "false" => Value::Flag(false),
            "null" => Value::Null,
            "" => return Err(scan.unexpected("a value would do")),
            name => return Err(HclError::new(at, Word::Name(name.to_owned()).shown(), "a string stands in quotes")),
        },
    };
    skip(scan);
    Ok(Node { at, value })
}

/// What stands between an opening mark, which is here, and its closing one, parted by commas.
fn entries<'a>(
    scan: &mut Scan<'a>,
    end: char,
    mut entry: impl FnMut(&mut Scan<'a>) -> Result<(), HclError>,
) -> Result<(), HclError> {
    let close = end.to_string();
    let at = scan.place();
    scan.next();
    skip(scan);
    while !scan.take(&close) {
        entry(scan)?;
        if scan.take(",") {
            skip(scan);
        } else if scan.peek() != Some(end) {
            return Err(scan.unexpected(&format!("`,` or `{end}` would do; it was opened at {at}")));
        }
    }
    Ok(())
}

fn text(scan: &mut Scan<'_>) -> Result<String, HclError> {
    let start = scan.place();
    scan.next();
    let mut text = String::new();
    loop {
        let place = scan.place();
        match scan.next() {
            None => return Err(HclError::new(start, "a string without an end", "it ends with `\"`")),
            Some('"') => return Ok(text),
            Some('\\') => text.push(match scan.next() {
                Some(same @ ('"' | '\\' | '/')) => same,
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('u') => unicode(scan)
                    .ok_or_else(|| HclError::new(place, "an escape that is no character", "\\u and four digits"))?,
                _ => {
                    return Err(HclError::new(
                        place,
                        "an escape that is none",
                        "JSON has \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u",
                    ));
                }
            }),
            Some(next) if next < ' ' => {
                let advice = "a control character is written as an escape, such as \\n";
                return Err(HclError::new(place, Word::Text(next.to_string()).shown(), advice));
            }
            Some(next) => text.push(next),
        }
    }
}

/// The character after `\u`; one beyond the first 65536 is written as two halves.
fn unicode(scan: &mut Scan<'_>) -> Option<char> {
    let first = scan.digits(4, 16).ok()?;
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(first);
    }
    let second = scan.take("\\u").then(|| scan.digits(4, 16).ok()).flatten()?;
    let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
    char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + low)
}
