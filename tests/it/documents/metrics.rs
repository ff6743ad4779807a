//! The reference of metrics: every metric that a part declares, with its type, labels and description.

use super::{compare, rows, texts};

const DOCUMENT: &str = "docs/reference/metrics.md";

/// A field of a struct: documentation, name, and type with what follows it.
type Field = (String, String, String);

/// The fields of a struct, or of a set of metrics.
fn fields(source: &str, name: &str) -> Vec<Field> {
    let (_, text) = source.split_once(&format!(" struct {name} {{\n")).unwrap_or_else(|| panic!("no struct {name}"));
    let (mut found, mut documentation) = (Vec::new(), Vec::new());
    let mut lines = text.lines().map(str::trim).take_while(|line| *line != "}");
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("///") {
            documentation.push(text.trim().to_owned());
        } else if let Some((field, kind)) = line.split_once(": ") {
            let field = field.rsplit(' ').next().unwrap();
            let next = if kind.ends_with('=') { lines.next().unwrap() } else { "" };
            found.push((documentation.join(" "), field.to_owned(), format!("{kind} {next}")));
            documentation.clear();
        }
    }
    found
}

#[test]
fn the_reference_has_every_metric_with_its_type_labels_and_description() {
    let mut sources = texts("src", ".rs");
    sources.retain(|(path, text)| path != "src/telemetry/metrics.rs" && text.contains("metric_set! {\n"));
    let all: String = sources.iter().map(|(_, text)| text.as_str()).collect();
    let mut code = vec!["| `keyward_build_info` | info | `version` | Version of the program. |".to_owned()];
    let sets = all.split("metric_set! {\n").skip(1).map(|text| {
        let (_, text) = text.split_once(" struct ").unwrap();
        text.split(' ').next().unwrap()
    });
    for (documentation, _, declaration) in sets.flat_map(|set| fields(&all, set)) {
        let (kind, name) = declaration.split_once('=').unwrap();
        let mut name = name.split('"').nth(1).unwrap().to_owned();
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
    let written = rows(DOCUMENT);
    let written: Vec<String> =
        written.iter().map(|cells| format!("| `{}` | {} |", cells[0], cells[1..].join(" | "))).collect();
    compare(DOCUMENT, &code, &written);
    assert_eq!(written.len(), code.len(), "a metric stands twice in {DOCUMENT}");
}
