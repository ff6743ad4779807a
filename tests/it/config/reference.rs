//! The reference of the configuration matches the reader: every key, its type and range, and its default.

pub(super) mod sections;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use keyward_config::Diagnostic;
use keyward_config::references::REFERENCE_KEYS;

use self::sections::SECTIONS;
use super::check;

const DOCUMENT: &str = "docs/reference/configuration.md";

/// A row of the reference.
pub(super) struct Row {
    pub(super) key: String,
    kind: String,
    pub(super) default: String,
}

pub(super) fn documented() -> Vec<(String, Vec<Row>)> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT)).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').map(str::trim).collect();
        let [key, kind, default, _meaning, ""] = cells.as_slice() else { panic!("{line}") };
        Some(Row { key: key.trim_matches('`').to_owned(), kind: (*kind).to_owned(), default: (*default).to_owned() })
    };
    let section = |part: &str| (part.lines().next().unwrap().to_owned(), part.lines().filter_map(row).collect());
    text.split("\n## ").skip(1).map(section).collect()
}

/// The table in which a key at `@` stands, such as `server.a`.
fn path(base: &str) -> &str {
    let head = base.split('@').next().unwrap();
    head.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']')).next_back().unwrap()
}

/// The configuration with this line at `@`, and without the section's own line of that key.
pub(super) fn filled(base: &str, key: &str, line: &str) -> String {
    let (head, tail) = base.split_once("@\n").unwrap();
    let section = head.rfind(&format!("[{}]\n", path(base))).unwrap();
    let is_other_key = |line: &&str| !line.starts_with(&format!("{key} = "));
    let lines: String = head[section..].split_inclusive('\n').filter(is_other_key).collect();
    format!("{}{lines}{line}\n{tail}", &head[..section])
}

/// Errors about a key that has this value.
fn errors(base: &str, key: &str, value: &str) -> Vec<Diagnostic> {
    let full = format!("{}.{key}", path(base));
    let errors = check(&filled(base, key, &format!("{key} = {value}"))).1.errors;
    errors.into_iter().filter(|error| error.key == full).collect()
}

/// Keys of the section, as the error about an unknown one lists them.
fn known(base: &str) -> Vec<String> {
    let errors = errors(base, "zzzzzzzzzzzz", "1");
    let list = errors.iter().find_map(|error| error.advice.strip_prefix("known keys: "));
    list.unwrap_or_else(|| panic!("{base}: {errors:?}")).split(", ").map(str::to_owned).collect()
}

/// A duration in its largest whole unit.
fn short(text: &str) -> String {
    let duration = humantime::parse_duration(text).unwrap();
    let seconds = duration.as_secs();
    match seconds {
        _ if duration.subsec_millis() > 0 => format!("{}ms", duration.as_millis()),
        0 => "0s".to_owned(),
        _ if seconds.is_multiple_of(86400) => format!("{}d", seconds / 86400),
        _ if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

/// The type of a key, by the errors about wrong values; `None` if this configuration does not accept the key.
fn kind(base: &str, key: &str) -> Option<String> {
    if base.contains(&format!("[{}.{key}", path(base))) {
        return Some("table".to_owned());
    }
    let expected = errors(base, key, "1979-05-27").into_iter().find_map(|error| {
        let expected = error.message.strip_prefix("expected ")?.strip_suffix(", found a date")?.to_owned();
        Some(expected)
    })?;
    let has = |value: &str, text: &str| errors(base, key, value).iter().any(|error| error.message.contains(text));
    let advice = |value: &str, start: &str| {
        let advice =
            errors(base, key, value).into_iter().find_map(|error| Some(error.advice.strip_prefix(start)?.to_owned()));
        advice.unwrap_or_else(|| panic!("{key} = {value}: {:?}", errors(base, key, value)))
    };
    Some(match expected.as_str() {
        "a boolean" => "boolean".to_owned(),
        "a number" => format!("integer, {}", advice("-1", "write ").replace(", without quotes", "")),
        "an array" => "list".to_owned(),
        "a table" | "tables with names" => "table".to_owned(),
        "a string" if has("[1.5]", "expected a string, found a float") => "text or list".to_owned(),
        "a string" if has("1", "has no unit") => {
            let bounds = advice("\"9999999999d\"", "write one from ");
            let (least, most) = bounds.split_once(" to ").unwrap();
            format!("duration, {} to {}", short(least), short(most))
        }
        "a string" if has("1", "is not a mode") => "mode".to_owned(),
        "a string" if has("\"~\"", "is not a known value") && advice("\"~\"", "write ").starts_with('"') => {
            let words = advice("\"~\"", "write ").replace(" or ", ", ");
            let words: Vec<String> = words.split(", ").map(|word| format!("`{word}`")).collect();
            format!("one of {}", words.join(", "))
        }
        "a string" if has("\"a/b\"", "is not an absolute path") => "path".to_owned(),
        "a string" => "text".to_owned(),
        other => panic!("{key}: {other}"),
    })
}

/// The key from the top with `*` for names, as [`REFERENCE_KEYS`] has it.
fn pattern(base: &str, key: &str) -> String {
    let parts = path(base).split('.').map(|part| if matches!(part, "a" | "A") { "*" } else { part });
    format!("{}.{key}", parts.collect::<Vec<_>>().join("."))
}

/// Another value that this type allows, to see that the key has an effect. Some booleans only change what is checked.
fn other_value(kind: &str, default: &str) -> Option<String> {
    if let Some(words) = kind.strip_prefix("one of ") {
        return words.split(", ").map(|word| word.trim_matches('`').to_owned()).find(|word| word != default);
    }
    let (kind, range) = kind.split_once(", ")?;
    let (least, most) = range.split_once(" to ")?;
    let of = |text: &str| humantime::parse_duration(text).unwrap_or(Duration::ZERO);
    match kind {
        "integer" => Some(if default == least { most } else { least }.to_owned()),
        "duration" if of(default.trim_matches('"')) == of(most) => Some(format!("\"{least}\"")),
        "duration" => Some(format!("\"{most}\"")),
        _ => None,
    }
}

#[test]
fn the_reference_has_every_section_and_every_key_and_none_more() {
    let documented = documented();
    let headings: Vec<&str> = documented.iter().map(|(heading, _)| heading.as_str()).collect();
    assert_eq!(headings, SECTIONS.iter().map(|(heading, _)| *heading).collect::<Vec<_>>());
    let mut tables: BTreeMap<&str, (BTreeSet<String>, BTreeSet<String>)> = BTreeMap::new();
    for ((_, rows), (_, bases)) in documented.iter().zip(SECTIONS) {
        let (written, accepted) = tables.entry(path(bases[0])).or_default();
        written.extend(rows.iter().map(|row| row.key.clone()));
        for base in *bases {
            let is_table = |key: &String| kind(base, key).is_some_and(|kind| kind == "table");
            accepted.extend(known(base).into_iter().filter(|key| !is_table(key)));
        }
    }
    for (table, (written, accepted)) in &tables {
        assert_eq!(written, accepted, "[{table}] of {DOCUMENT}, and what the reader accepts");
    }
    // The first name of each heading is a key of the file itself.
    let first = |heading: &&str| heading.trim_start_matches("`[").split(['.', ']']).next().unwrap().to_owned();
    let errors = check("zzzzzzzzzzzz = 1\n").1.errors;
    let list = errors.iter().find_map(|error| error.advice.strip_prefix("known keys: ")).unwrap();
    let top: BTreeSet<String> = list.split(", ").map(str::to_owned).collect();
    assert_eq!(headings.iter().map(first).collect::<BTreeSet<_>>(), top);
}

#[test]
fn the_reference_has_the_type_of_every_key_and_whether_it_takes_references() {
    let mut wrong = Vec::new();
    for ((heading, rows), (_, bases)) in documented().iter().zip(SECTIONS) {
        for row in rows {
            let found = bases.iter().find_map(|base| kind(base, &row.key));
            let reference = if REFERENCE_KEYS.contains(&&*pattern(bases[0], &row.key)) { ", R" } else { "" };
            let found = found.map(|kind| format!("{kind}{reference}"));
            if found.as_ref() != Some(&row.kind) {
                wrong.push(format!("{heading} {}: {:?} is written, {found:?} is accepted", row.key, row.kind));
            }
        }
    }
    assert!(wrong.is_empty(), "{DOCUMENT}: {wrong:#?}");
}

#[test]
fn the_reference_has_the_default_of_every_key() {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for ((heading, rows), (_, bases)) in documented().iter().zip(SECTIONS) {
        for row in rows {
            let key = &row.key;
            let read = |base: &str, line: &str| check(&filled(base, key, line)).1;
            if row.default == "required" {
                let full = format!("{}.{key}", path(bases[0]));
                if !read(bases[0], "").errors.iter().any(|error| error.key == full && error.message == "missing") {
                    wrong.push(format!("{heading} {key} may be left out"));
                }
                continue;
            }
            let literal = row.default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
            let Some(literal) = literal.filter(|literal| !literal.contains('`')) else { continue };
            compared += 1;
            // Some keys are accepted only together with others.
            let accepted = bases.iter().find_map(|base| {
                Some((base, read(base, "").config?, read(base, &format!("{key} = {literal}")).config?))
            });
            let Some((base, without, with)) = accepted else {
                wrong.push(format!("{heading} {key}: {:?}", read(bases[0], &format!("{key} = {literal}")).errors));
                continue;
            };
            if without != with {
                wrong.push(format!("{heading} {key}: {literal} is not the default"));
            }
            let other =
                other_value(&row.kind, literal).and_then(|value| read(base, &format!("{key} = {value}")).config);
            if other.is_some_and(|other| other == without) {
                wrong.push(format!("{heading} {key}: it has no effect"));
            }
        }
    }
    assert!(compared > 70, "only {compared} defaults were compared");
    assert!(wrong.is_empty(), "{DOCUMENT}: {wrong:#?}");
}

/// The first block of TOML in a part of the reference.
fn example(part: &str) -> Option<&str> {
    let (_, rest) = part.split_once("\n```toml\n")?;
    Some(rest.split_once("```").unwrap().0)
}

/// True if a text has a table of this heading, such as "[sink.web.encrypt]" for "`[sink.NAME.encrypt]`".
fn has_table(text: &str, heading: &str) -> bool {
    let names = |table: &str| -> Vec<String> { table.split('.').map(str::to_owned).collect() };
    let wanted = names(heading.trim_start_matches("`[").split(']').next().unwrap());
    text.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']')).map(names).any(|table| {
        table.len() == wanted.len()
            && table.iter().zip(&wanted).all(|(name, wanted)| wanted == "NAME" || name == wanted)
    })
}

#[test]
fn each_section_of_the_reference_has_an_example_that_passes_the_check() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT)).unwrap();
    let (head, _) = text.split_once("\n## ").unwrap();
    let (server, session) = example(head).unwrap().split_once("\n\n").unwrap();
    let mut wrong = Vec::new();
    for part in text.split("\n## ").skip(1) {
        let heading = part.lines().next().unwrap();
        let Some(example) = example(part).filter(|example| has_table(example, heading)) else {
            wrong.push(format!("{heading} has no example"));
            continue;
        };
        let mut whole = example.to_owned();
        for (table, common) in [("[session.", session), ("[server.", server)] {
            if !example.contains(table) {
                whole = format!("{common}\n\n{whole}");
            }
        }
        let outcome = check(&whole).1;
        // An example of a section need not use every session and server.
        let warnings = outcome.warnings.iter().filter(|warning| warning.code.to_string() != "KW-1016");
        wrong.extend(outcome.errors.iter().chain(warnings).map(|error| format!("{heading} {error}")));
    }
    assert!(wrong.is_empty(), "{DOCUMENT}: {wrong:#?}");
}
