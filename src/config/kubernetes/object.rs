//! An object of the Kubernetes API, with its keys in the order in which people read them, and with comments.

use std::fmt::Write as _;

use serde_json::Value;

/// A value in an [`Object`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A string, of one line or more.
    Text(String),
    /// A whole number.
    Number(i64),
    /// `true` or `false`.
    Flag(bool),
    /// An array.
    List(Vec<Self>),
    /// An object.
    Object(Object),
}

/// A mapping of keys to values. Its order is that of the YAML; JSON has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object {
    entries: Vec<Entry>,
    /// Comment for the next entry.
    comment: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    comment: String,
    key: String,
    value: Node,
}

impl From<&str> for Node {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Node {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Node {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Node {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<Object> for Node {
    fn from(object: Object) -> Self {
        Self::Object(object)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Node {
    fn from(items: Vec<T>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}

impl Object {
    /// An object without keys.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), comment: String::new() }
    }

    /// Adds a key.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Node>) -> Self {
        let comment = std::mem::take(&mut self.comment);
        self.entries.push(Entry { comment, key: key.to_owned(), value: value.into() });
        self
    }

    /// Adds a key if there is a value.
    #[must_use]
    pub fn with_optional(self, key: &str, value: Option<impl Into<Node>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Writes a comment of one or more lines above the next key.
    #[must_use]
    pub fn comment(mut self, text: &str) -> Self {
        text.clone_into(&mut self.comment);
        self
    }

    /// The object as JSON, without its comments.
    pub fn to_json(&self) -> Value {
        self.entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json())).collect()
    }

    /// The object as YAML.
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, 0, "");
        text
    }

    /// Writes each entry at `indent`; the first one follows `marker`, which stands in the columns before.
    fn write(&self, text: &mut String, indent: usize, marker: &str) {
        let mut marker = marker;
        for entry in &self.entries {
            let margin = " ".repeat(indent - marker.len());
            for line in entry.comment.lines() {
                let _ = writeln!(text, "{margin}# {line}");
            }
            let _ = write!(text, "{margin}{marker}{}:", scalar(&entry.key));
            entry.value.write(text, indent);
            marker = "";
        }
    }
}

impl Node {
    fn to_json(&self) -> Value {
        match self {
            Self::Text(text) => Value::from(text.as_str()),
            Self::Number(number) => Value::from(*number),
            Self::Flag(flag) => Value::from(*flag),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Object(object) => object.to_json(),
        }
    }

    /// Writes the value after its key, which stands at `indent`, and ends the line.
    fn write(&self, text: &mut String, indent: usize) {
        match self {
            Self::Object(object) if !object.entries.is_empty() => {
                text.push('\n');
                object.write(text, indent + 2, "");
            }
            Self::List(items) if items.iter().any(|item| matches!(item, Self::Object(_))) => {
                text.push('\n');
                for item in items {
                    match item {
                        Self::Object(object) => object.write(text, indent + 4, "- "),
                        other => {
                            let _ = writeln!(text, "{}- {}", " ".repeat(indent + 2), other.inline());
                        }
                    }
                }
            }
            Self::Text(value) if value.contains('\n') && is_block(value) => {
                text.push_str(if value.ends_with('\n') { " |\n" } else { " |-\n" });
                for line in value.lines() {
                    let margin = if line.is_empty() { 0 } else { indent + 2 };
                    let _ = writeln!(text, "{}{line}", " ".repeat(margin));
                }
            }
            other => {
                let _ = writeln!(text, " {}", other.inline());
            }
        }
    }

    /// The value on one line.
    fn inline(&self) -> String {
        match self {
            Self::Text(text) => scalar(text),
            Self::List(items) => {
                let item = |item: &Self| if let Self::Text(text) = item { quote(text) } else { item.inline() };
                let items: Vec<String> = items.iter().map(item).collect();
                format!("[{}]", items.join(", "))
            }
            other => other.to_json().to_string(),
        }
    }
}

/// True if a literal block of YAML keeps a text as it is: no character that needs an escape, no indentation or empty line at which the
/// block's own indentation would be guessed wrong, and at most one line break at its end.
fn is_block(text: &str) -> bool {
    let is_plain = |character: char| character == '\n' || character == '\t' || is_printable(character);
    text.chars().all(is_plain) && !text.starts_with([' ', '\t', '\n']) && !text.ends_with("\n\n")
}

/// Formats a text on one line: plain if every reader of YAML takes it as a text, else in quotes.
fn scalar(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"./_-".contains(&byte);
    let is_start = |first: char| first.is_ascii_alphabetic() || first == '/';
    // Words that YAML 1.1, which Kubernetes reads, takes as something else.
    let is_word = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word));
    // A colon is part of an image's name; in front of a space it would end a key.
    if text.starts_with(is_start)
        && text.bytes().all(|byte| is_plain(byte) || byte == b':')
        && !text.ends_with(':')
        && !is_word
    {
        return text.to_owned();
    }
    quote(text)
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            other if is_printable(other) => quoted.push(other),
            other => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(other));
            }
        }
    }
    quoted.push('"');
    quoted
}

/// True for a character that stands for itself in YAML. Line separators of Unicode are line breaks for some readers.
fn is_printable(character: char) -> bool {
    !character.is_control() && !matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_written_in_its_order_with_its_comments() {
        let container = Object::new()
            .comment("the first\nof two")
            .with("name", "web")
            .with("args", vec!["run", "--config", "/a b"])
            .comment("why")
            .with("probe", Object::new().with("port", 8301))
            .with("empty", Object::new())
            .with_optional("absent", None::<&str>);
        let yaml = Object::new().with("on", true).with("containers", vec![container]).with("last", "1").to_yaml();
        let expected = "\"on\": true
containers:
  # the first
  # of two
  - name: web
    args: [\"run\", \"--config\", \"/a b\"]
    # why
    probe:
      port: 8301
    empty: {}
last: \"1\"
";
        assert_eq!(yaml, expected);
    }

    #[test]
    fn a_text_is_plain_only_if_no_reader_takes_it_as_something_else() {
        for plain in ["web", "/run/a.b", "registry.example.com:5000/a/b", "v1", "Always", "a-b_c"] {
            assert_eq!(scalar(plain), plain);
        }
        for quoted in
            ["", "1.0", "0640", "true", "No", "null", "-", "a: b", "a:", "a #b", "*a", "~", "1e3", " a", "ü", "{}"]
        {
            assert_eq!(scalar(quoted), format!("\"{quoted}\""));
        }
        assert_eq!(scalar("a\"\\\n\t\u{7f}\u{2028}"), r#""a\"\\\n\U00000009\U0000007f\U00002028""#);
    }

    #[test]
    fn lines_stand_in_a_block_if_it_keeps_them() {
        let yaml = |text: &str| Object::new().with("a", text).to_yaml();
        assert_eq!(yaml("[x]\n  y = 1\n\nz\n"), "a: |\n  [x]\n    y = 1\n\n  z\n");
        assert_eq!(yaml("x\ny"), "a: |-\n  x\n  y\n");
        for text in [" x\ny\n", "\nx\n", "x\n\n", "x\r\ny\n", "x\u{2028}\n"] {
            assert!(yaml(text).starts_with("a: \""), "{text:?}");
        }
    }

    #[test]
    fn json_has_the_same_values() {
        let object = Object::new().comment("x").with("a", vec![1]).with("b", Object::new().with("c", false));
        assert_eq!(object.to_json(), serde_json::json!({"a": [1], "b": {"c": false}}));
    }
}
