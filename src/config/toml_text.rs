//! Writes a configuration as TOML.

use std::fmt::Write as _;

use super::references::escape;

/// A configuration as it is written. Its strings come from flags, answers and annotations, so `${` in them is text and no reference.
#[derive(Debug, Default)]
pub struct TomlText(String);

impl TomlText {
    /// Begins the file with a comment.
    pub fn new(comment: &str) -> Self {
        Self(format!("# {comment}\n"))
    }

    /// Begins a section, after a comment of one or more lines.
    pub fn section(&mut self, comment: &str, name: &str) -> &mut Self {
        self.0.push('\n');
        self.comment(comment);
        let _ = writeln!(self.0, "[{name}]");
        self
    }

    /// Writes a comment of one or more lines.
    pub fn comment(&mut self, comment: &str) -> &mut Self {
        for line in comment.lines() {
            let _ = writeln!(self.0, "# {line}");
        }
        self
    }

    /// Writes a key with a string.
    pub fn text(&mut self, key: &str, value: &str) -> &mut Self {
        let _ = writeln!(self.0, "{key} = {}", toml::Value::from(escape(value)));
        self
    }

    /// Writes a key whose string may contain `${`, as the contents of a template may: no reference is read there.
    pub fn verbatim(&mut self, key: &str, value: &str) -> &mut Self {
        let _ = writeln!(self.0, "{key} = {}", toml::Value::from(value));
        self
    }

    /// Writes a key with a string, if there is one.
    pub fn optional(&mut self, key: &str, value: Option<&String>) -> &mut Self {
        if let Some(value) = value {
            self.text(key, value);
        }
        self
    }

    /// Writes a key with a list of strings.
    pub fn texts(&mut self, key: &str, values: &[String]) -> &mut Self {
        let values: Vec<_> = values.iter().map(|value| toml::Value::from(escape(value)).to_string()).collect();
        let _ = writeln!(self.0, "{key} = [{}]", values.join(", "));
        self
    }

    /// Writes a key with a boolean.
    pub fn flag(&mut self, key: &str, value: bool) -> &mut Self {
        let _ = writeln!(self.0, "{key} = {value}");
        self
    }

    /// Returns the whole file.
    pub fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
