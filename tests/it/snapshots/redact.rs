//! Replaces text that differs between runs: folders, ports, ids, times.

use std::collections::HashMap;

use regex_lite::{Captures, Regex};

/// Replacements, made in the order in which they were added.
#[derive(Default)]
pub(super) struct Redactions(Vec<Redaction>);

enum Redaction {
    By { pattern: Regex, text: String },
    Numbered { pattern: Regex, name: String, known: HashMap<String, usize> },
}

impl Redactions {
    /// Replaces this text wherever it stands.
    pub(super) fn text(self, text: &str, by: &str) -> Self {
        self.pattern(&regex_lite::escape(text), by)
    }

    /// Replaces matches of a regular expression; `by` may name its groups, as in `${1}`.
    pub(super) fn pattern(mut self, pattern: &str, by: &str) -> Self {
        self.0.push(Redaction::By { pattern: Regex::new(pattern).unwrap(), text: by.to_owned() });
        self
    }

    /// Replaces matches of a regular expression by `NAME-1`, `NAME-2` and so on: equal texts get equal numbers.
    pub(super) fn numbered(mut self, pattern: &str, name: &str) -> Self {
        let pattern = Regex::new(pattern).unwrap();
        self.0.push(Redaction::Numbered { pattern, name: name.to_owned(), known: HashMap::new() });
        self
    }

    pub(super) fn apply(&mut self, text: &str) -> String {
        self.0.iter_mut().fold(text.to_owned(), |text, redaction| redaction.apply(&text))
    }
}

impl Redaction {
    fn apply(&mut self, text: &str) -> String {
        match self {
            Self::By { pattern, text: by } => pattern.replace_all(text, by.as_str()).into_owned(),
            Self::Numbered { pattern, name, known } => {
                let number = |found: &Captures<'_>| {
                    let next = known.len() + 1;
                    format!("{name}-{}", known.entry(found[0].to_owned()).or_insert(next))
                };
                pattern.replace_all(text, number).into_owned()
            }
        }
    }
}

#[test]
fn redactions_replace_each_place_and_nothing_else() {
    let mut redactions =
        Redactions::default().text("/tmp/a.b", "FOLDER").pattern(r"(port )\d+", "${1}PORT").numbered(r"id[0-9]+", "ID");
    assert_eq!(redactions.apply("/tmp/a.b/x /tmp/a.b port 12 /tmp/axb 12"), "FOLDER/x FOLDER port PORT /tmp/axb 12");
    assert_eq!(redactions.apply("id7 id9 id7"), "ID-1 ID-2 ID-1");
    assert_eq!(redactions.apply("id3 id9"), "ID-3 ID-2");
}
