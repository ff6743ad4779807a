//! How output looks: a table, or JSON.

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

/// JSON, indented.
pub(super) fn json(value: &impl Serialize) {
    // Fails for maps with keys that are no texts alone; there are none.
    print_line(&serde_json::to_string_pretty(value).unwrap_or_default());
}

/// Removes control characters from a server's text, which could move the cursor or change colours.
pub(super) fn strip_control_chars(text: &str) -> String {
    let unseen = |letter| matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    let harm = |letter: char| (letter.is_control() && !matches!(letter, '\n' | '\t')) || unseen(letter);
    let mut output = String::with_capacity(text.len());
    for letter in text.chars() {
        if harm(letter) { output.extend(letter.escape_default()) } else { output.push(letter) }
    }
    output
}
