//! Alerts, dashboard and documents name metrics that exist, and each alert has its runbook and its test.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{read, rows, texts};

const ALERTS: &str = "packaging/monitoring/alerts.yaml";
const TESTS: &str = "packaging/monitoring/alerts.test.yaml";
const DASHBOARD: &str = "packaging/monitoring/dashboard.json";
const RUNBOOKS: &str = "docs/operations/monitoring.md";

/// Names of all time series: of the metrics reference, which is compared with the code, with the suffixes of histograms.
fn series() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for row in rows("docs/reference/metrics.md") {
        if row[1] == "histogram" {
            names.extend(["_bucket", "_sum", "_count"].map(|suffix| format!("{}{suffix}", row[0])));
        }
        names.insert(row[0].clone());
    }
    assert!(names.len() > 50, "the metrics were not found: {names:?}");
    names
}

/// Words of a text that begin as metrics do. A word before `*` stands for several.
fn metrics(text: &str) -> Vec<&str> {
    let pattern = regex_lite::Regex::new(r"keyward_[a-z0-9_]+\*?|process_start_time_seconds").unwrap();
    pattern.find_iter(text).map(|found| found.as_str()).filter(|word| !word.ends_with('*')).collect()
}

/// Values of a key in a YAML file that has one key a line.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix(key)).map(str::trim).collect()
}

#[test]
fn alerts_dashboard_and_documents_name_metrics_that_exist() {
    let series = series();
    let mut sources = texts("docs", ".md");
    sources.extend(
        [ALERTS, TESTS, DASHBOARD, "README.md", "packaging/README.md"].map(|path| (path.to_owned(), read(path))),
    );
    let manifests = texts("src", "Cargo.toml");
    let crates: BTreeSet<String> =
        manifests.iter().map(|(path, _)| format!("keyward_{}", path.split('/').nth(1).unwrap())).collect();
    let mut wrong = Vec::new();
    for (path, text) in &sources {
        wrong.extend(
            metrics(text)
                .into_iter()
                .filter(|name| !series.contains(*name) && !crates.contains(*name))
                .map(|name| format!("{path}: {name}")),
        );
    }
    assert!(wrong.is_empty(), "no such metric: {wrong:#?}");
}

#[test]
fn each_alert_has_a_runbook_and_a_test_and_no_runbook_is_left_over() {
    let (alerts, tests, runbooks) = (read(ALERTS), read(TESTS), read(RUNBOOKS));
    let names = values(&alerts, "alert:");
    assert!(names.len() > 20, "the alerts were not found: {names:?}");
    let anchors: Vec<String> =
        names.iter().map(|name| format!("file:///usr/share/doc/keyward/{RUNBOOKS}#{}", name.to_lowercase())).collect();
    assert_eq!(values(&alerts, "runbook_url:"), anchors, "each alert names its own section");
    let headings: Vec<&str> = runbooks.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let sections: Vec<&str> = headings.into_iter().filter(|heading| heading.starts_with("Keyward")).collect();
    assert_eq!(sections, names, "{RUNBOOKS} has a section for each alert, in the order of the rules");
    let tested = values(&tests, "name:");
    let untested: Vec<&&str> = names.iter().filter(|name| !tested.contains(name)).collect();
    assert!(untested.is_empty(), "{TESTS} does not test {untested:?}");
}

#[test]
fn the_dashboard_has_a_query_in_each_panel_and_shows_every_metric() {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut queries = String::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty() && panel["description"].is_string(), "{panel}");
        for target in targets {
            let query = target["expr"].as_str().unwrap();
            assert!(!metrics(query).is_empty() && query.contains("$instance"), "{query}");
            queries.push_str(query);
        }
    }
    let dashboard_metrics = metrics(&queries);
    let all = rows("docs/reference/metrics.md");
    let missing: Vec<&str> = all
        .iter()
        .map(|row| row[0].as_str())
        .filter(|name| !dashboard_metrics.iter().any(|dashboard_metrics| dashboard_metrics.starts_with(name)))
        .collect();
    assert!(missing.is_empty(), "{DASHBOARD} does not show {missing:?}");
}
