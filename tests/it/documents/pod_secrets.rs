//! The page for users of the injector, of secrets-store-csi and of External Secrets has each of their settings, and only keys that
//! keyward has.

use std::collections::BTreeSet;

use serde_json::Value;

use super::read;

const PAGE: &str = "docs/from-the-injector.md";

/// Rows of a page's tables, by their cells.
fn rows(page: &str) -> Vec<Vec<String>> {
    let page = page.replace("\\|", "/");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn each_setting_of_the_others_has_a_row_and_an_answer() {
    let names: Value = serde_json::from_str(&read("tests/it/fixtures/pod_secrets.json")).unwrap();
    let page = read(PAGE);
    let rows = rows(&page);
    let mut named = BTreeSet::new();
    for row in &rows {
        assert!(row.len() == 3 && ["yes", "better", "no"].contains(&row[1].as_str()), "{row:?}");
        for name in quoted(&row[0]) {
            named.insert(name.replace("-NAME", ""));
            named.extend(name.split(['.', '[', ']']).map(str::to_owned));
        }
    }
    let mut count = 0;
    for (of, list) in names.as_object().unwrap() {
        for name in list["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()) {
            assert!(named.contains(name), "{PAGE} has no {name} of {of}");
            count += 1;
        }
    }
    assert!(count > 150, "{count}");
}

#[test]
fn each_key_that_it_names_is_one_of_the_reference() {
    let reference = read("docs/reference/configuration.md");
    let sections: Vec<&str> = reference.split("\n## ").collect();
    let mut count = 0;
    for row in rows(&read(PAGE)) {
        for key in quoted(&row[2]).filter(|text| !text.contains([' ', '/', '{', '['])) {
            let Some((section, name)) = key.rsplit_once('.') else { continue };
            let kinds = ["server", "session", "template", "templates", "sink", "listener", "log"];
            if !kinds.contains(&section.split('.').next().unwrap()) {
                continue;
            }
            let has = |heading: &str| {
                sections.iter().any(|part| part.starts_with(heading) && part.contains(&format!("\n| `{name}` |")))
            };
            let methods = ["cloud", "jwt", "kubernetes", "cert"];
            let found = match section.strip_suffix(".METHOD") {
                Some(session) => methods.iter().all(|method| has(&format!("`[{session}.{method}]`"))),
                None => has(&format!("`[{section}]`")),
            };
            assert!(found, "{PAGE}: {key} is no key of docs/reference/configuration.md");
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
}
