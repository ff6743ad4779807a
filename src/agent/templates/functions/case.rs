//! Upper case, lower case and names, character by character as Go converts them.

/// Converts to upper case; a character that would become several stays.
pub(super) fn upper(text: &str) -> String {
    text.chars().map(upper_char).collect()
}

/// Converts to lower case.
pub(super) fn lower(text: &str) -> String {
    text.chars().map(lower_char).collect()
}

pub(super) fn upper_char(c: char) -> char {
    single(c.to_uppercase(), c)
}

pub(super) fn lower_char(c: char) -> char {
    single(c.to_lowercase(), c)
}

fn single(mut converted: impl Iterator<Item = char>, c: char) -> char {
    match (converted.next(), converted.next()) {
        (Some(only), None) => only,
        _ => c,
    }
}

/// Converts the first letter of each word to upper case.
pub(super) fn title(text: &str) -> String {
    let mut begins = true;
    let convert = |c: char| {
        let converted = if begins { upper_char(c) } else { c };
        begins = if c.is_ascii() { !(c.is_ascii_alphanumeric() || c == '_' || c == '\'') } else { c.is_whitespace() };
        converted
    };
    text.chars().map(convert).collect()
}

/// Converts the case of each word's first letter, and that of the others.
pub(super) fn by_word(text: &str, first: fn(char) -> char, other: fn(char) -> char) -> String {
    let mut begins = true;
    let convert = |c: char| {
        let converted = if begins { first(c) } else { other(c) };
        begins = c.is_whitespace();
        converted
    };
    text.chars().map(convert).collect()
}

/// Splits a name into its words: at spaces, dashes and underscores, before a capital letter, and before the last capital letter
/// of several.
pub(super) fn words(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (at, c) in chars.iter().enumerate() {
        if c.is_whitespace() || ['-', '_'].contains(c) {
            words.push(String::new());
            continue;
        }
        let before = at.checked_sub(1).map(|before| chars[before]);
        let is_start = c.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_numeric()
                    || before.is_uppercase() && chars.get(at + 1).is_some_and(|next| next.is_lowercase())
            });
        if is_start {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(*c);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
