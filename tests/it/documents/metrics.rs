//! The reference of metrics: every metric of `src/metrics.rs` with its type, labels and description.

use super::{compare, read, rows};

const DOCUMENT: &str = "docs/reference/metrics.md";

/// Fields of a struct: documentation, name and type.
fn fields(source: &str, name: &str) -> Vec<(String, String, String)> {
    let (_, text) = source.split_once(&format!("pub struct {name} {{\n")).unwrap_or_else(|| panic!("no struct {name}"));
    let (mut found, mut documentation) = (Vec::new(), Vec::new());
    for line in text.split("\n}\n").next().unwrap().lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            documentation.push(text.trim().to_owned());
        } else if let Some((field, kind)) = line.strip_prefix("pub ").and_then(|rest| rest.split_once(": ")) {
            found.push((documentation.join(" "), field.to_owned(), kind.trim_end_matches(',').to_owned()));
            documentation.clear();
        }
    }
    found
}

/// The name that a field's metric is registered by.
fn registered(source: &str, field: &str) -> String {
    let after = |start: &str| source.split_once(start).map(|(_, rest)| rest.trim_start());
    let direct = after(&format!(" {field}: add(")).map(|rest| rest.trim_start_matches("all,"));
    let rest = direct.unwrap_or_else(|| {
        // Registered by itself, above.
        let until = source.find(&format!("Family::clone(&{field})")).unwrap_or_else(|| panic!("{field}"));
        source[..until].rsplit_once("registry.register(").unwrap().1
    });
    rest.split('"').nth(1).unwrap().to_owned()
}

#[test]
fn the_reference_has_every_metric_with_its_type_labels_and_description() {
    let source = read("src/metrics.rs");
    let mut code = vec!["| `keyward_build_info` | info | `version` | Version of the program. |".to_owned()];
    for (documentation, field, kind) in fields(&source, "Inner") {
        let mut name = format!("keyward_{}", registered(&source, &field));
        let word = ["Counter", "Gauge", "Histogram"].into_iter().find(|word| kind.contains(word)).unwrap();
        if word == "Counter" {
            name.push_str("_total");
        }
        let labels = kind.strip_prefix("Family<").map(|rest| rest.split(',').next().unwrap());
        let labels = labels.map(|labels| fields(&source, labels)).unwrap_or_default();
        let labels: Vec<String> = labels.iter().map(|(_, label, _)| format!("`{label}`")).collect();
        code.push(format!("| `{name}` | {} | {} | {documentation} |", word.to_lowercase(), labels.join(", ")));
    }
    assert!(code.len() > 30, "the metrics were not found: {code:?}");
    let registrations = [": add(", "registry.register("].map(|start| source.matches(start).count());
    assert_eq!(
        registrations.iter().sum::<usize>(),
        code.len() + 1,
        "each is registered once; `add` itself is one more"
    );
    let written = rows(DOCUMENT);
    let written: Vec<String> =
        written.iter().map(|cells| format!("| `{}` | {} |", cells[0], cells[1..].join(" | "))).collect();
    compare(DOCUMENT, &code, &written);
    assert_eq!(written.len(), code.len(), "a metric stands twice in {DOCUMENT}");
}
