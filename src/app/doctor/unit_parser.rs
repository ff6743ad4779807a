//! Parses systemd unit files with their drop-ins (`systemd.syntax(7)`): the settings of one section, in their order.

use keyward_config::systemd::split_unit_words;

/// Settings of one section of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Unit {
    settings: Vec<(String, String)>,
}

impl Unit {
    /// Parses the unit's file and then its drop-ins. Lines that are not settings are ignored, as systemd does.
    pub(crate) fn parse<'a>(section: &str, texts: impl IntoIterator<Item = &'a str>) -> Self {
        let header = format!("[{section}]");
        let mut settings = Vec::new();
        for text in texts {
            let mut is_inside = false;
            for line in logical_lines(text) {
                let line = line.trim();
                if line.starts_with('[') {
                    is_inside = line == header;
                } else if let (true, Some((key, value))) = (is_inside, line.split_once('=')) {
                    settings.push((key.trim().to_owned(), value.trim().to_owned()));
                }
            }
        }
        Self { settings }
    }

    /// Returns all values of a key, with empty ones.
    pub(crate) fn assignments(&self, key: &str) -> Vec<&str> {
        self.settings.iter().filter(|(name, _)| name == key).map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the last value of a key; `None` if it is empty or absent.
    pub(crate) fn last(&self, key: &str) -> Option<&str> {
        self.assignments(key).last().copied().filter(|value| !value.is_empty())
    }

    /// Returns the values of a key whose settings add up; an empty one discards those before it.
    pub(crate) fn values(&self, key: &str) -> Vec<&str> {
        let mut values = Vec::new();
        for value in self.assignments(key) {
            if value.is_empty() { values.clear() } else { values.push(value) }
        }
        values
    }

    /// Returns the words of [`Unit::values`].
    pub(crate) fn words(&self, key: &str) -> Vec<String> {
        self.values(key).into_iter().flat_map(split_unit_words).collect()
    }

    /// Returns the value of a flag; false if it is absent.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.last(key).is_some_and(is_true)
    }
}

/// True for the words that systemd reads as a true boolean.
fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "1" | "yes" | "y" | "true" | "t" | "on")
}

/// Joins lines that end in a backslash with the next one. Comments and empty lines are omitted, also inside of a joined line.
pub(super) fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = None::<String>;
    for line in text.lines() {
        let trimmed = line.trim_start();
        if trimmed.starts_with(['#', ';']) || (trimmed.is_empty() && open.is_none()) {
            continue;
        }
        let (part, continues) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        let mut joined = open.take().unwrap_or_default();
        joined.push_str(part);
        if continues {
            joined.push(' ');
            open = Some(joined);
        } else {
            lines.push(joined);
        }
    }
    lines.extend(open);
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "[Unit]\nDescription=x\nUser=not-this\n[Service]\n# a comment\nUser=keyward\nReadWritePaths=/a \"/b c\"\n\
                        ExecPaths=/usr/bin/keyward \\\n  # inside\n  /usr/lib\nPrivateTmp=yes\nstray\n[Install]\nUser=nor-this\n";

    #[test]
    fn the_settings_of_one_section_are_read_with_joined_lines_and_quotes() {
        let unit = Unit::parse("Service", [FILE]);
        assert_eq!((unit.last("User"), unit.flag("PrivateTmp"), unit.flag("Absent")), (Some("keyward"), true, false));
        assert_eq!(unit.words("ReadWritePaths"), ["/a", "/b c"]);
        assert_eq!(unit.words("ExecPaths"), ["/usr/bin/keyward", "/usr/lib"]);
    }

    #[test]
    fn a_drop_in_adds_to_lists_replaces_single_values_and_resets_by_an_empty_one() {
        let drop_in = "[Service]\nUser=other\nReadWritePaths=/d\nExecPaths=\nExecPaths=/only\nPrivateTmp=no\n";
        let unit = Unit::parse("Service", [FILE, drop_in]);
        assert_eq!((unit.last("User"), unit.flag("PrivateTmp")), (Some("other"), false));
        assert_eq!(unit.words("ReadWritePaths"), ["/a", "/b c", "/d"]);
        assert_eq!(unit.words("ExecPaths"), ["/only"]);
        let unit = Unit::parse("Service", [FILE, "[Service]\nUser=\n"]);
        assert_eq!(unit.last("User"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_a_unit(text in "(\\[Service\\]|[A-Za-z]+|=|%|\\\\|\"|'|\n| |-|/|:|#|.){0,60}") {
            let unit = Unit::parse("Service", [text.as_str()]);
            prop_assert!(unit.settings.iter().all(|(key, value)| key.trim() == key && value.trim() == value));
        }
    }
}
