//! Regression tests for bugs that users reported of other agents, each named by its report.
//!
//! They run the real agent, where no other test covers the report. docs/moving-over.md has the whole list and its tests.

mod identities;
mod process;
mod tokens;
mod reporting;

use std::path::Path;

/// Each test on the page exists, and its doc comment names the report.
#[test]
fn every_report_on_the_page_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/moving-over.md")).unwrap();
    let (_, list) = page.split_once("## Known problems of those agents").expect("the page has the list");
    let rows: Vec<_> = list.lines().skip_while(|line| !line.starts_with("|---")).skip(1).collect();
    let mut rows_with_tests = 0;
    for row in rows.iter().take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [reports, _, _, tests] = cells.as_slice() else { panic!("{row}") };
        for test in tests.split(", ") {
            let (file, name) = test.trim_matches('`').split_once("::").unwrap_or_else(|| panic!("{row}"));
            let text = std::fs::read_to_string(root.join("tests/it").join(file)).unwrap_or_else(|_| panic!("{row}"));
            let place = text.find(&format!("fn {name}(")).unwrap_or_else(|| panic!("there is no {name} in {file}"));
            let above = text[..place].rsplit_once("\n\n").map_or("", |(_, above)| above);
            let first = reports.split(", ").next().unwrap();
            assert!(above.contains(first), "{file}: {name} does not name {first}");
        }
        rows_with_tests += 1;
    }
    assert!(rows_with_tests >= 25, "{rows_with_tests} rows");
}
