//! The documents name what the program names: every log event, metric and configuration key.

use std::collections::BTreeSet;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// All texts of a folder's files that end so, joined.
fn texts(folder: &str, ending: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut pending = vec![Path::new(ROOT).join(folder)];
    while let Some(next) = pending.pop() {
        for path in std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                pending.push(path);
            } else if path.to_str().unwrap().ends_with(ending) {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(ROOT).unwrap().display().to_string(), text));
            }
        }
    }
    found
}

fn documents() -> String {
    texts("docs", ".md").into_iter().map(|(_, text)| text).collect()
}

/// The text in quotes right after each place where `start` stands.
fn quoted_after<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let rest = text.match_indices(start).map(|(at, _)| &text[at + start.len()..]);
    rest.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split_once('"').map(|(name, _)| name)).collect()
}

#[track_caller]
fn complain(kind: &str, missing: &BTreeSet<String>) {
    assert!(missing.is_empty(), "{kind} that no document names: {missing:#?}");
}

#[test]
fn every_log_event_stands_in_a_document() {
    let (sources, documents) = (texts("src", ".rs"), documents());
    let all: BTreeSet<&str> = sources.iter().flat_map(|(_, text)| quoted_after(text, "event = ")).collect();
    assert!(all.len() > 100, "the events were not found");
    let missing = all.iter().filter(|event| !documents.contains(&format!("`{event}`")));
    complain("log events", &missing.map(ToString::to_string).collect());
}

#[test]
fn every_metric_stands_in_a_document() {
    let documents = documents();
    // A metric with labels stands in the text that is scraped once it has counted something: the source has them all.
    let source = std::fs::read_to_string(Path::new(ROOT).join("src/metrics.rs")).unwrap();
    let registered = ["add(all,", "registry.register("].map(|start| quoted_after(&source, start)).concat();
    let all: BTreeSet<String> = registered.iter().map(|name| format!("keyward_{name}")).collect();
    assert!(all.len() > 20, "the metrics were not found: {all:?}");
    complain("metrics", &all.into_iter().filter(|name| !documents.contains(name)).collect());
}

#[test]
fn every_configuration_key_stands_in_a_document() {
    let (sources, documents) = (texts("src/config", ".rs"), documents());
    let reader = &sources.iter().find(|(path, _)| path == "src/config/reader.rs").unwrap().1;
    // The reader's getters are its functions that take a key's name first.
    let getters: BTreeSet<&str> = reader
        .match_indices("fn ")
        .map(|(at, _)| &reader[at + 3..])
        .filter(|rest| {
            let arguments = rest.split_once('(').map_or("", |(_, arguments)| arguments);
            let second = arguments.split_once(',').map_or("", |(_, second)| second.trim_start());
            second.starts_with("name: &'static str")
        })
        .filter_map(|rest| rest.split(['(', '<']).next())
        .collect();
    assert!(getters.len() > 10 && getters.contains("text"), "the getters were not found: {getters:?}");
    let mut missing = BTreeSet::new();
    let mut seen = 0;
    for (path, text) in sources.iter().filter(|(path, _)| !path.starts_with("src/config/migrate")) {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for getter in &getters {
            for key in quoted_after(code, &format!(".{getter}(")) {
                seen += 1;
                let shown = [format!("`{key}`"), format!("`{key} ="), format!("{key} = "), format!("[{key}")];
                let nested = documents.contains(&format!(".{key}")) || documents.contains(&format!("`{key}."));
                if !nested && !shown.iter().any(|shown| documents.contains(shown.as_str())) {
                    missing.insert(format!("{key} ({path})"));
                }
            }
        }
    }
    assert!(seen > 100, "the keys were not found: {seen}");
    complain("configuration keys", &missing);
}
