//! Reasons why a pod is refused. All are collected, so that its author sees them at once.

use super::given::Given;

/// Problems of one pod.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<String>);

impl Problems {
    pub(crate) fn add(&mut self, problem: impl Into<String>) {
        self.0.push(problem.into());
    }

    /// Adds a problem of an annotation, with its value.
    pub(crate) fn value(&mut self, given: &Given, why: &str) {
        let shown: String = given.value.chars().take(MAX_SHOWN).collect();
        let more = if given.value.chars().count() > MAX_SHOWN { "..." } else { "" };
        self.0.push(format!("annotation {} is \"{shown}{more}\": {why}", given.annotation));
    }

    /// Parses the value of an annotation, if it is given.
    pub(crate) fn parse<T>(&mut self, given: Option<&Given>, parse: fn(&str) -> Result<T, String>) -> Option<T> {
        let given = given?;
        parse(&given.value).map_err(|why| self.value(given, &why)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all problems in one line; the longest ones of a hostile pod are cut.
    pub(crate) fn describe(&self) -> String {
        // Names of annotations may be any text: the API server checks them later.
        let mut text = self.0.join("; ").replace(char::is_control, " ");
        if text.len() > MAX_MESSAGE {
            let end = (0..=MAX_MESSAGE).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
            text.truncate(end);
            text.push_str("...");
        }
        text
    }
}

/// Characters of a value that a message repeats.
const MAX_SHOWN: usize = 80;

/// Length of a message in bytes. Clients print it in one line.
const MAX_MESSAGE: usize = 3000;
