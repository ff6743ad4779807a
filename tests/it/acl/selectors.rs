//! Selectors of binding rules against go-bexpr, on which Consul's are: `tests/oracles` evaluates generated ones with it.

use std::collections::BTreeMap;
use std::path::Path;

use regex_lite::Regex;
use serde::Deserialize;

/// Results of go-bexpr: the claims of the logins, then a selector and its results in each line.
const RESULTS: &str = "tests/it/fixtures/selectors.jsonl";

/// Selectors on which keyward differs, by reason. A selector belongs to the first row that fits.
const DIFFERENCES: &str = "tests/it/fixtures/selector-differences.toml";

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[derive(Deserialize)]
struct Login {
    values: BTreeMap<String, String>,
    lists: BTreeMap<String, Vec<String>>,
}

/// Difference from go-bexpr.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    kind: Kind,
    /// Pattern of the selectors that differ.
    pattern: String,
    /// Number of selectors that differ for this reason.
    selectors: usize,
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// Consul refuses the selector, keyward evaluates it.
    Accepted,
    /// Consul evaluates the selector, keyward refuses it.
    Refused,
    /// Of the logins that lack a claim, Consul selects more.
    Lacking,
    /// Of other logins, Consul selects more.
    Narrower,
}

const REFUSED: &str = "refused";

/// Evaluates a selector with keyward, for a method that maps these claims.
fn evaluate(selector: &str, logins: &[Login]) -> String {
    let mut results = String::new();
    for login in logins {
        let values = ["name", "team", "env"].map(|name| (name, login.values.get(name).map(String::as_str)));
        let texts = |list: &'static str| Some(login.lists.get(list)?.iter().map(String::as_str).collect::<Vec<_>>());
        let [groups, empty] = ["groups", "empty"].map(texts);
        let lists = [("groups", groups.as_deref()), ("empty", empty.as_deref())];
        match keyward_acl::model::fuzz::select(selector, &values, &lists) {
            Ok(matches) => results.push(if matches { 'm' } else { '-' }),
            Err(_) => return REFUSED.to_owned(),
        }
    }
    results
}

/// Returns how the results differ. No login may get more than from Consul.
fn classify(selector: &str, theirs: &str, ours: &str, logins: &[Login]) -> Option<Kind> {
    match (theirs, ours) {
        _ if theirs == ours => return None,
        (REFUSED, _) => return Some(Kind::Accepted),
        (_, REFUSED) => return Some(Kind::Refused),
        _ => {}
    }
    let lacks = |login: &Login| {
        let names = ["name", "team", "env"].into_iter().filter(|name| selector.contains(name));
        names.into_iter().any(|name| !login.values.contains_key(name))
    };
    let mut kind = Kind::Lacking;
    for ((theirs, ours), login) in theirs.chars().zip(ours.chars()).zip(logins) {
        match (theirs, ours) {
            _ if theirs == ours => {}
            ('m', '-') if lacks(login) => {}
            ('m', '-') => kind = Kind::Narrower,
            _ => panic!("{selector:?} selects a login that Consul does not select"),
        }
    }
    Some(kind)
}

#[test]
fn selectors_select_the_logins_that_consul_selects() {
    let results = read(RESULTS);
    let (logins, results) = results.split_once('\n').unwrap();
    let logins: Vec<Login> = serde_json::from_str(logins).unwrap();
    let table: BTreeMap<String, Difference> = toml::from_str(&read(DIFFERENCES)).unwrap();
    let patterns: BTreeMap<_, _> = table.iter().map(|(name, row)| (name, Regex::new(&row.pattern).unwrap())).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut unlisted = Vec::new();
    let mut compared = 0;
    for line in results.lines() {
        let (selector, theirs): (String, String) = serde_json::from_str(line).unwrap();
        let ours = evaluate(&selector, &logins);
        compared += if theirs == REFUSED { 1 } else { theirs.len() };
        let Some(kind) = classify(&selector, &theirs, &ours, &logins) else { continue };
        let fits = |(name, row): &(&String, &Difference)| row.kind == kind && patterns[name].is_match(&selector);
        match table.iter().find(fits) {
            Some((name, _)) => *counts.entry(name).or_default() += 1,
            None => unlisted.push((selector, kind, theirs, ours)),
        }
    }
    assert!(compared > 25_000, "only {compared} results were compared");
    assert!(unlisted.is_empty(), "{} differ and are not in the table: {unlisted:#?}", unlisted.len());
    for (name, row) in &table {
        assert!(row.reason.len() > 30, "{name} has no reason");
        let found = counts.get(name.as_str()).copied().unwrap_or_default();
        assert_eq!(found, row.selectors, "{found} selectors differ for the reason {name}");
    }
}
