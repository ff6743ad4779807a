//! Troubleshooting, examples and the comparison with other agents: complete, and about things that exist.

use std::collections::BTreeSet;

use super::{cells, read, texts};

/// Codes of errors in a text.
fn codes(text: &str) -> BTreeSet<String> {
    let pattern = regex_lite::Regex::new(r"KW-\d{4}").unwrap();
    pattern.find_iter(text).map(|found| found.as_str().to_owned()).collect()
}

/// A code of a configuration's error. `keyward check` names file, line and what to write for each.
fn is_of_the_configuration(code: &str) -> bool {
    code.starts_with("KW-10")
}

#[test]
fn troubleshooting_has_every_error_of_a_running_agent_and_no_code_that_does_not_exist() {
    let known: BTreeSet<String> = read("docs/errors.md")
        .lines()
        .filter_map(|line| line.strip_prefix("### ")?.split_once(':').map(|(code, _)| code.to_owned()))
        .collect();
    assert!(known.len() > 80, "the codes were not found");
    let named = codes(&read("docs/troubleshooting.md"));
    let unknown: Vec<&String> = named.difference(&known).collect();
    assert!(unknown.is_empty(), "docs/troubleshooting.md names {unknown:?}, which do not exist");
    let missing: Vec<&String> = known.difference(&named).filter(|code| !is_of_the_configuration(code)).collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md lacks {missing:?}");
}

#[test]
fn each_row_of_troubleshooting_has_a_symptom_a_cause_and_a_command() {
    let text = read("docs/troubleshooting.md");
    let (tables, _) = text.split_once("\n## `keyward doctor`").unwrap();
    let rows: Vec<Vec<String>> = tables.lines().filter_map(cells).filter(|row| row[0] != "symptom").collect();
    assert!(rows.len() > 40, "the rows were not found");
    for row in &rows {
        assert!(row.len() == 3 && row.iter().all(|cell| !cell.is_empty()), "{row:?}");
    }
}

#[test]
fn each_example_has_its_sentence_and_its_link() {
    let examples = texts("config", ".toml");
    assert!(examples.len() > 10, "the examples were not found");
    let page = read("docs/examples.md");
    let rows: Vec<Vec<String>> = page.lines().filter_map(cells).filter(|row| row[0] != "file").collect();
    let listed: Vec<&str> = rows
        .iter()
        .map(|row| {
            assert!(row[1].split(' ').count() >= 5, "{row:?}");
            let (_, target) = row[0].split_once("](../").unwrap();
            target.trim_end_matches(')')
        })
        .collect();
    let missing: Vec<&str> =
        examples.iter().map(|(path, _)| path.as_str()).filter(|path| !listed.contains(path)).collect();
    assert!(missing.is_empty(), "docs/examples.md lacks {missing:?}");
    assert_eq!(listed.len(), examples.len(), "docs/examples.md lists a file that does not exist");
}

#[test]
fn each_feature_of_another_agent_has_one_of_three_answers() {
    let text = read("docs/moving-over.md");
    let (tables, _) = text.split_once("\n## Known problems").unwrap();
    let rows: Vec<Vec<String>> = tables.lines().filter_map(cells).filter(|row| row[0] != "theirs").collect();
    assert!(rows.len() > 70, "the rows were not found: {}", rows.len());
    for row in &rows {
        let [feature, answer, explanation] = row.as_slice() else { panic!("{row:?}") };
        assert!(["yes", "better", "no"].contains(&answer.as_str()), "{feature}: {answer}");
        assert!(!explanation.is_empty(), "{feature} has no explanation");
    }
}

#[test]
fn each_cell_of_the_comparison_is_a_yes_or_a_no_with_a_link() {
    let readme = read("README.md");
    let (_, section) = readme.split_once("\n## Beside other agents\n").unwrap();
    let table = section.split("\n\nMeasured").next().unwrap();
    let rows: Vec<Vec<String>> = table.lines().filter_map(cells).skip(1).collect();
    assert!(rows.len() >= 8, "the rows were not found");
    for row in &rows {
        assert_eq!(row.len(), 6, "{row:?}");
        for cell in &row[1..] {
            let link = cell.strip_prefix("[yes][").or_else(|| cell.strip_prefix("[no]["));
            let name = link.and_then(|rest| rest.strip_suffix(']')).unwrap_or_else(|| panic!("{}: {cell}", row[0]));
            assert!(readme.contains(&format!("\n[{name}]: ")), "{name} is not defined");
        }
    }
}
