//! The output that a tutorial shows under its commands, beside the output that they have.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use regex_lite::{Captures, Regex};

use super::{MARK, ROOT, blocks, read, variable};

/// The moment at which the reader follows a tutorial.
const MORNING: &str = "2026-01-31T09:00:00Z";

/// Compares the output of each shell block with the block of text under it, or writes it there with INSTA_UPDATE=always.
pub(super) fn compare(document: &str, output: &str, folder: &Path) {
    let outputs: Vec<String> =
        stable(document, output, folder).split(&format!("{MARK}\n")).skip(1).map(shown).collect();
    let text = read(document);
    let mut parts = text.split("```sh\n");
    let mut written = parts.next().unwrap().to_owned();
    let mut differences = String::new();
    for (part, output) in parts.zip(&outputs) {
        let (commands, rest) = part.split_once("```\n").unwrap();
        written.extend(["```sh\n", commands, "```\n"]);
        let (expected, rest) = match rest.strip_prefix("\n```text\n") {
            Some(block) => block.split_once("```\n").unwrap(),
            None => ("", rest),
        };
        let lines = |text: &str| -> Vec<String> {
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
        };
        let output = if fits(&lines(expected), &lines(output)) {
            expected
        } else {
            differences.extend(["\n", commands, "prints\n", output, "and not\n", expected]);
            output
        };
        if !output.is_empty() {
            written.extend(["\n```text\n", output, "```\n"]);
        }
        written += rest;
    }
    assert_eq!(outputs.len(), blocks(document, "sh").len());
    if variable("INSTA_UPDATE").as_deref() == Some("always") {
        std::fs::write(Path::new(ROOT).join(document), written).unwrap();
    } else {
        assert!(differences.is_empty(), "{document}: with INSTA_UPDATE=always the test writes this:{differences}");
    }
}

/// True if the lines are the same. A line `...` stands for any lines.
fn fits(expected: &[String], output: &[String]) -> bool {
    match expected.split_first() {
        None => output.is_empty(),
        Some((first, rest)) if first == "..." => (0..=output.len()).any(|skipped| fits(rest, &output[skipped..])),
        Some((first, rest)) => output.first() == Some(first) && fits(rest, &output[1..]),
    }
}

/// The output of one block, as a tutorial shows it.
fn shown(output: &str) -> String {
    let mut shown = String::new();
    let mut rows: Vec<&str> = Vec::new();
    // Notes are about this machine. Lists of tokens are in the order of their accessors, which are random.
    for line in output.lines().filter(|line| !line.ends_with("(note)")).chain([""]) {
        let is_row = line.as_bytes().get(8) == Some(&b'-') && line.as_bytes().get(13) == Some(&b'-');
        if is_row {
            rows.push(line);
            continue;
        }
        rows.sort_unstable();
        for line in rows.drain(..).chain([line]) {
            shown += line.trim_end();
            shown.push('\n');
        }
    }
    shown.truncate(shown.trim_end().len());
    if !shown.is_empty() {
        shown.push('\n');
    }
    shown
}

/// The output without what differs between runs: the folder, ids, times.
fn stable(document: &str, output: &str, folder: &Path) -> String {
    let given = blocks(document, "sh").concat();
    let output = output.replace(folder.to_str().unwrap(), "/home/me");
    let id = Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").unwrap();
    let mut ids: BTreeMap<String, String> = BTreeMap::new();
    let output = id.replace_all(&output, |found: &Captures<'_>| {
        let found = &found[0];
        if given.contains(found) || found.starts_with("00000000-0000-0000-0000-") {
            return found.to_owned();
        }
        let next = char::from_digit(u32::try_from(ids.len() + 1).unwrap(), 16).unwrap().to_string();
        ids.entry(found.to_owned())
            .or_insert_with(|| [8, 4, 4, 4, 12].map(|length| next.repeat(length)).join("-"))
            .clone()
    });
    let time = Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").unwrap();
    let output = time.replace_all(&output, |found: &Captures<'_>| {
        let time = humantime::parse_rfc3339(&found[0]).unwrap();
        let ahead = time.duration_since(SystemTime::now()).unwrap_or_default();
        let hours = (ahead.as_secs() + 1800) / 3600;
        let shown = humantime::parse_rfc3339(MORNING).unwrap() + Duration::from_secs(hours * 3600);
        humantime::format_rfc3339_seconds(shown).to_string()
    });
    Regex::new("7 h 59 min").unwrap().replace_all(&output, "8 h").into_owned()
}
