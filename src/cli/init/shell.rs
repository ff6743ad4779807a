//! Text for a shell, and for a file in TOML.

pub(super) use keyward_config::TomlText;

/// Quotes a word for a shell, if it needs quotes.
pub(super) fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/:._-@%+=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes a given value for a shell, or returns a placeholder in capitals.
pub(super) fn quote_or_placeholder(value: Option<&String>, capitals: &str) -> String {
    value.map_or_else(|| capitals.to_owned(), |value| quote(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_quoted_words_as_they_were() {
        for (word, expected) in
            [("a/b-c.d:8=x", "a/b-c.d:8=x"), ("", "''"), ("a b", "'a b'"), ("it's $HOME", r"'it'\''s $HOME'")]
        {
            assert_eq!(quote(word), expected);
        }
        assert_eq!(quote_or_placeholder(None, "TENANT"), "TENANT");
    }
}
