//! The reference of log events: every event of the sources with its levels and fields.

use std::collections::{BTreeMap, BTreeSet};

use super::{compare, rows, texts};

const DOCUMENT: &str = "docs/reference/events.md";

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// An event as the sources log it, over all places.
#[derive(Default)]
struct Event {
    levels: BTreeSet<usize>,
    fields: BTreeSet<String>,
}

/// Arguments of a macro, up to its closing parenthesis.
fn arguments(text: &str) -> Vec<String> {
    let (mut found, mut current, mut depth, mut quoted) = (Vec::new(), String::new(), 0, false);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' if quoted => {
                current.push(character);
                current.extend(characters.next());
                continue;
            }
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(std::mem::take(&mut current).trim().to_owned());
                continue;
            }
            _ => {}
        }
        current.push(character);
    }
    found.push(current.trim().to_owned());
    found
}

/// Events and fields that a log macro with these arguments logs, in a file with this text.
fn logged(arguments: &[String], file: &str) -> (Vec<String>, BTreeSet<String>) {
    let (mut names, mut fields) = (Vec::new(), BTreeSet::new());
    for argument in arguments.iter().take_while(|argument| !argument.starts_with('"')) {
        let (name, value) =
            argument.split_once('=').map_or((argument.as_str(), ""), |(name, value)| (name, value.trim()));
        match (name.trim(), value.strip_prefix('"')) {
            ("event", Some(value)) => names.push(value.trim_end_matches('"').to_owned()),
            // A variable, which a function of that name fills.
            ("event", None) => {
                let function = file.split_once("fn event(").unwrap().1.split("\n    }\n").next().unwrap();
                names.extend(function.split('"').skip(1).step_by(2).map(str::to_owned));
            }
            (name, _) if name.starts_with("target:") || name.is_empty() => {}
            (name, _) => {
                fields.insert(name.trim_start_matches(['%', '?']).to_owned());
            }
        }
    }
    (names, fields)
}

fn events() -> BTreeMap<String, Event> {
    let mut events: BTreeMap<String, Event> = BTreeMap::new();
    for (_, text) in texts("src", ".rs") {
        for (level, word) in LEVELS.iter().enumerate() {
            let start = format!("tracing::{word}!(");
            for (at, _) in text.match_indices(&start) {
                let (names, fields) = logged(&arguments(&text[at + start.len()..]), &text);
                for name in names {
                    let event = events.entry(name).or_default();
                    event.levels.insert(level);
                    event.fields.extend(fields.iter().cloned());
                }
            }
        }
    }
    events
}

#[test]
fn the_reference_has_every_event_with_its_levels_and_fields_and_none_more() {
    let events = events();
    assert!(events.len() > 100, "the events were not found");
    let line = |(name, event): (&String, &Event)| {
        let levels: Vec<&str> = event.levels.iter().map(|level| LEVELS[*level]).collect();
        let fields: Vec<String> = event.fields.iter().map(|field| format!("`{field}`")).collect();
        format!("| `{name}` | {} | {} |", levels.join(", "), fields.join(", "))
    };
    let code: Vec<String> = events.iter().map(line).collect();
    let rows = rows(DOCUMENT);
    let written: Vec<String> =
        rows.iter().map(|cells| format!("| `{}` | {} | {} |", cells[0], cells[1], cells[2])).collect();
    compare(DOCUMENT, &code, &written);
    assert_eq!(rows.len(), code.len(), "an event stands twice in {DOCUMENT}");
    assert!(rows.iter().all(|cells| cells.len() == 4 && cells[3].len() > 5), "an event has no meaning in {DOCUMENT}");
}

#[test]
fn arguments_of_macros_are_split() {
    let text = r#"event = "a.b", count = list.len(), %error, ?kind, renewal, name = f("x, y", (1, 2)), "text {x}, more", x); rest"#;
    let (names, fields) = logged(&arguments(text), "");
    assert_eq!(names, ["a.b"]);
    assert_eq!(fields.into_iter().collect::<Vec<_>>(), ["count", "error", "kind", "name", "renewal"]);
}
