//! Replaces what differs from run to run: folders, ports, ids, times.

use regex_lite::Regex;

/// Replacements, made in the order in which they were added.
#[derive(Default)]
pub(super) struct Redactions(Vec<(Regex, String)>);

impl Redactions {
    /// Replaces this text wherever it stands.
    pub(super) fn text(self, text: &str, by: &str) -> Self {
        self.pattern(&regex_lite::escape(text), by)
    }

    /// Replaces what fits a regular expression; `by` may name its groups, as in `${1}`.
    pub(super) fn pattern(mut self, pattern: &str, by: &str) -> Self {
        self.0.push((Regex::new(pattern).unwrap(), by.to_owned()));
        self
    }

    pub(super) fn apply(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (pattern, by)| pattern.replace_all(&text, by.as_str()).into_owned())
    }
}

#[test]
fn redactions_replace_each_place_and_nothing_else() {
    let redactions = Redactions::default().text("/tmp/a.b", "FOLDER").pattern(r"(port )\d+", "${1}PORT");
    assert_eq!(redactions.apply("/tmp/a.b/x /tmp/a.b port 12 /tmp/axb 12"), "FOLDER/x FOLDER port PORT /tmp/axb 12");
}
