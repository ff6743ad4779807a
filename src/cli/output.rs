//! Formats output as a table, as fields or as JSON. Heads and names of fields begin with a capital letter; a time is as RFC 3339 has it,
//! and a span that has passed or is left as `format_span` has it.

use std::fmt::Display;

use serde::Serialize;

use super::print_line;

/// Rows below a head, each column as wide as its widest cell.
pub(super) fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    let mut all = vec![head.map(str::to_owned)];
    all.extend(rows.into_iter().map(|row| row.map(|cell| strip_control_chars(&cell).replace(['\n', '\t'], " "))));
    let widths: [usize; N] =
        std::array::from_fn(|column| all.iter().map(|row| row[column].chars().count()).max().unwrap_or_default());
    for row in &all {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        print_line(cells.join("  ").trim_end());
    }
}

/// Fields of one object, a line each: `Name:  value`.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(&'static str, String)>);

impl Fields {
    /// A field, even an empty one.
    pub(super) fn add(&mut self, name: &'static str, value: impl Display) -> &mut Self {
        self.0.push((name, value.to_string()));
        self
    }

    /// Adds a field, if it has a value.
    pub(super) fn optional(&mut self, name: &'static str, value: Option<impl Display>) -> &mut Self {
        if let Some(value) = value {
            self.add(name, value);
        }
        self
    }

    /// A field with many values, a line each; nothing, if there are none.
    #[cfg(feature = "acl")]
    pub(super) fn list_field(&mut self, name: &'static str, values: impl IntoIterator<Item = String>) -> &mut Self {
        for (index, value) in values.into_iter().enumerate() {
            self.0.push((if index == 0 { name } else { "" }, value));
        }
        self
    }

    pub(super) fn print(&self) {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or_default() + 1;
        for (name, value) in &self.0 {
            let name = if name.is_empty() { String::new() } else { format!("{name}:") };
            print_line(format!("{name:width$}  {}", strip_control_chars(value)).trim_end());
        }
    }
}

/// JSON, indented.
pub(super) fn json(value: &impl Serialize) {
    // Fails only for maps whose keys are not strings; there are none.
    print_line(&serde_json::to_string_pretty(value).unwrap_or_default());
}

/// Removes control characters from a server's text, which could move the cursor or change colours.
pub(super) fn strip_control_chars(text: &str) -> String {
    let is_invisible =
        |character| matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    let is_harmful =
        |character: char| (character.is_control() && !matches!(character, '\n' | '\t')) || is_invisible(character);
    let mut output = String::with_capacity(text.len());
    for character in text.chars() {
        if is_harmful(character) { output.extend(character.escape_default()) } else { output.push(character) }
    }
    output
}
