//! The reference of metrics: every metric that a part declares, with its type, labels and description.

use super::{compare, rows, texts};

const DOCUMENT: &str = "docs/reference/metrics.md";

/// Fields of a struct: documentation, name and type.
fn fields(source: &str, name: &str) -> Vec<(String, String, String)> {
    let (_, text) = source.split_once(&format!(" struct {name} {{\n")).unwrap_or_else(|| panic!("no struct {name}"));
    let (mut found, mut documentation) = (Vec::new(), Vec::new());
    for line in text.split("\n}\n").next().unwrap().lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            documentation.push(text.trim().to_owned());
        } else if let Some((field, kind)) = line.split_once(": ") {
            let field = field.rsplit(' ').next().unwrap();
            found.push((documentation.join(" "), field.to_owned(), kind.trim_end_matches(',').to_owned()));
            documentation.clear();
        }
    }
    found
}

/// The name that a field of a set is served by, without the suffix of counters.
fn registered(source: &str, set: &str, field: &str) -> String {
    let (_, text) = source.split_once(&format!("impl MetricSet for {set} ")).unwrap();
    let (_, text) = text.split_once(&format!(" {field}: registry")).unwrap_or_else(|| panic!("{set} {field}"));
    let mut parts = text.split('"');
    let prefix = if parts.next().unwrap().contains(".add_unprefixed(") { "" } else { "keyward_" };
    format!("{prefix}{}", parts.next().unwrap())
}

#[test]
fn the_reference_has_every_metric_with_its_type_labels_and_description() {
    let mut sources = texts("src", ".rs");
    sources.retain(|(path, text)| path != "src/telemetry/metrics.rs" && text.contains("impl MetricSet for "));
    let all: String = sources.iter().map(|(_, text)| text.as_str()).collect();
    let mut code = vec!["| `keyward_build_info` | info | `version` | Version of the program. |".to_owned()];
    let sets = all.split("impl MetricSet for ").skip(1).map(|text| text.split(' ').next().unwrap());
    for (set, (documentation, field, kind)) in
        sets.flat_map(|set| fields(&all, set).into_iter().map(move |field| (set, field)))
    {
        let mut name = registered(&all, set, &field);
        let word = ["Counter", "Gauge", "Histogram"].into_iter().find(|word| kind.contains(word)).unwrap();
        if word == "Counter" {
            name.push_str("_total");
        }
        let labels = kind.strip_prefix("Family<").map(|rest| rest.split(',').next().unwrap());
        let labels = labels.map(|labels| fields(&all, labels)).unwrap_or_default();
        let labels: Vec<String> = labels.iter().map(|(_, label, _)| format!("`{label}`")).collect();
        code.push(format!("| `{name}` | {} | {} | {documentation} |", word.to_lowercase(), labels.join(", ")));
    }
    assert!(code.len() > 30, "the metrics were not found: {code:?}");
    assert_eq!(all.matches(": registry").count() + 1, code.len(), "each is registered once");
    let written = rows(DOCUMENT);
    let written: Vec<String> =
        written.iter().map(|cells| format!("| `{}` | {} |", cells[0], cells[1..].join(" | "))).collect();
    compare(DOCUMENT, &code, &written);
    assert_eq!(written.len(), code.len(), "a metric stands twice in {DOCUMENT}");
}
