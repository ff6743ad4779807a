//! Fields of log events.

use super::{assert_complaints, read, report_violations, seeded};

#[test]
fn log_events_have_fields_of_one_form() {
    let tree = read("src", &["rs"]);
    assert!(tree.values().map(|text| log_calls(text).len()).sum::<usize>() > 150, "the events were not found");
    report_violations(tree.iter().flat_map(|(path, text)| irregular_fields(path, text)));
}

#[test]
fn an_event_with_fields_of_another_form_is_refused() {
    let tree = read("src", &["rs"]);
    let path = "src/agent/sinks/file.rs";
    let check = |arguments: &str, expected: &[&str]| {
        let text = seeded(&tree, path, &format!("fn f() {{\n    tracing::warn!({arguments});\n}}"));
        assert_complaints(&irregular_fields(path, &text), expected);
    };
    check(r#"event = "a.b", error, retry_in_seconds = seconds(wait), code = code.as_str(), "why? {x}", x"#, &[]);
    check(r#"event = "a.b", name = f(|it| it?.cause, "a, ?b"), "why = ?x, %y""#, &[]);
    check(r#"event = "a.b", what = ?scope, "cleared""#, &["Debug"]);
    check(r#"event = "a.b", ?kind, "made""#, &["Debug"]);
    check(r#"event = "a.b", kind = format!("{kind:?}"), "made""#, &["Debug"]);
    check(r#"event = "a.b", "made \"{:?}\"", kind"#, &["Debug"]);
    check(r#"event = "a.b", %error, path = %path.display(), "failed""#, &["quoted", "quoted"]);
    check(r#"event = "a.b", cause = text, wait_ms = 3, "failed""#, &["called `error`", "numbers of seconds"]);
}

/// Names that a field of a log event does not have, with the one that it has.
const OTHER_FIELDS: [(&str, &str); 16] = [
    ("cause", "error"),
    ("failure", "error"),
    ("message", "error"),
    ("why", "error"),
    ("again", "retry_in_seconds"),
    ("retry_after", "retry_in_seconds"),
    ("retry_in", "retry_in_seconds"),
    ("wait", "retry_in_seconds"),
    ("lasted", "lasted_seconds"),
    ("age", "age_seconds"),
    ("ahead", "ahead_seconds"),
    ("leased", "lease_seconds"),
    ("seconds", "ttl_seconds"),
    ("ttl", "ttl_seconds"),
    ("aside", "moved_to"),
    ("untold", "suppressed"),
];

/// Complains about fields of log events that differ from the others: texts are quoted (no `%`), nothing is printed as
/// Rust's Debug (no `?`), durations are numbers of seconds, and one thing has one name.
fn irregular_fields(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (line, arguments) in log_calls(text) {
        let mut refuse = |why: &str| complaints.push(format!("{path}:{line}: {why}"));
        if arguments.iter().any(|argument| argument.contains(":?}") || argument.contains(":#?}")) {
            refuse("a log event holds no Debug output; write a text");
        }
        for argument in arguments.iter().take_while(|argument| !argument.starts_with('"')) {
            let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
            let (name, value) = (name.trim(), value.trim());
            if name.starts_with('?') || value.starts_with('?') {
                refuse("a log event holds no Debug output; write a text");
            }
            if name.starts_with('%') || value.starts_with('%') {
                refuse("texts of a log event are quoted; give a string in place of `%`");
            }
            let name = name.trim_start_matches(['?', '%']);
            if let Some((_, instead)) = OTHER_FIELDS.iter().find(|(other, _)| *other == name) {
                refuse(&format!("the field `{name}` is called `{instead}` in log events"));
            }
            if ["_ms", "_millis", "_secs", "_minutes", "_hours"].iter().any(|unit| name.ends_with(unit)) {
                refuse("durations of log events are numbers of seconds, in a field that ends with `_seconds`");
            }
        }
    }
    complaints
}

/// Finds the calls of log macros, each with its line and its arguments.
fn log_calls(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut calls = Vec::new();
    for (at, start) in text.match_indices("tracing::") {
        let Some((level, rest)) = text[at + start.len()..].split_once("!(") else { continue };
        if ["error", "warn", "info", "debug", "trace", "event"].contains(&level) {
            calls.push((text[..at].lines().count(), arguments(rest)));
        }
    }
    calls
}

/// Splits a text at its commas, up to the parenthesis that closes it.
fn arguments(text: &str) -> Vec<String> {
    let (mut found, mut depth, mut quoted, mut escaped) = (vec![String::new()], 0, false, false);
    for character in text.chars() {
        match character {
            '"' if !escaped => quoted = !quoted,
            _ if quoted => {}
            ')' if depth == 0 => break,
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        escaped = quoted && character == '\\' && !escaped;
        found.last_mut().unwrap().push(character);
    }
    found.into_iter().map(|argument| argument.trim().to_owned()).collect()
}
