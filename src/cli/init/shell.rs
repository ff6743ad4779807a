//! Text for a shell, and for a file in TOML.

use std::fmt::Write as _;

use keyward_config::references::escape;

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

/// A configuration as it is written. Its strings are flags and answers, so `${` in them is text and no reference.
#[derive(Debug, Default)]
pub(super) struct TomlText(String);

impl TomlText {
    pub(super) fn new(comment: &str) -> Self {
        Self(format!("# {comment}\n"))
    }

    /// Begins a section, after a comment of one or more lines.
    pub(super) fn section(&mut self, comment: &str, name: &str) -> &mut Self {
        self.0.push('\n');
        self.comment(comment);
        let _ = writeln!(self.0, "[{name}]");
        self
    }

    pub(super) fn comment(&mut self, comment: &str) -> &mut Self {
        for line in comment.lines() {
            let _ = writeln!(self.0, "# {line}");
        }
        self
    }

    pub(super) fn text(&mut self, key: &str, value: &str) -> &mut Self {
        let _ = writeln!(self.0, "{key} = {}", toml::Value::from(escape(value)));
        self
    }

    pub(super) fn optional(&mut self, key: &str, value: Option<&String>) -> &mut Self {
        if let Some(value) = value {
            self.text(key, value);
        }
        self
    }

    pub(super) fn texts(&mut self, key: &str, values: &[String]) -> &mut Self {
        let values: Vec<_> = values.iter().map(|value| toml::Value::from(escape(value)).to_string()).collect();
        let _ = writeln!(self.0, "{key} = [{}]", values.join(", "));
        self
    }

    pub(super) fn flag(&mut self, key: &str, value: bool) -> &mut Self {
        let _ = writeln!(self.0, "{key} = {value}");
        self
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
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

    #[test]
    fn a_configuration_reads_back_what_was_written() {
        let mut toml = TomlText::new("first");
        toml.section("a\nb", "server.main")
            .text("address", "a \"b\" \\ \n c")
            .texts("list", &["x'\"${env:A}".to_owned()])
            .text("reference", "/${file:/a}")
            .flag("on", true);
        let text = toml.finish();
        let read: toml::Table = text.parse().unwrap();
        assert_eq!(read["server"]["main"]["address"].as_str(), Some("a \"b\" \\ \n c"));
        assert_eq!(read["server"]["main"]["list"][0].as_str(), Some("x'\"$${env:A}"));
        assert_eq!(read["server"]["main"]["reference"].as_str(), Some("/$${file:/a}"));
        assert!(text.starts_with("# first\n\n# a\n# b\n[server.main]\n"), "{text}");
    }
}
