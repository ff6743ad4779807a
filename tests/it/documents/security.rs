//! docs/security.md has every threat, and the tests that it names are those that there are.

use super::{read, texts};

const PAGE: &str = "docs/security.md";

/// A test that is named after a threat begins so.
fn names_a_threat(name: &str) -> bool {
    let rest = name.strip_prefix('t').and_then(|rest| rest.split_once('_'));
    rest.is_some_and(|(number, _)| number.len() == 2 && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[test]
fn each_test_of_the_page_exists_and_each_test_of_a_threat_is_on_the_page_under_its_number() {
    let (page, mut named) = (read(PAGE), Vec::new());
    for section in page.split("\n##") {
        for text in section.split('`').skip(1).step_by(2) {
            let Some((stem, name)) = text.split_once(".rs::") else { continue };
            let file = format!("{stem}.rs");
            let code = read(&format!("tests/it/{file}"));
            assert!(code.contains(&format!("fn {name}(")), "{PAGE}: there is no {name} in {file}");
            if names_a_threat(name) {
                let number: u32 = name[1..3].parse().unwrap();
                assert!(section.starts_with(&format!("# T{number} ")), "{PAGE}: {name} is not under T{number}");
            }
            named.push((format!("tests/it/{file}"), name.to_owned()));
        }
    }
    assert!(named.len() > 60, "{PAGE}: {} tests", named.len());
    let mut threats = 0;
    for (path, text) in texts("tests/it", ".rs") {
        let functions =
            text.lines().filter_map(|line| line.trim_start().trim_start_matches("async ").strip_prefix("fn "));
        for name in functions.filter_map(|rest| rest.split('(').next()).filter(|name| names_a_threat(name)) {
            assert!(named.contains(&(path.clone(), name.to_owned())), "{PAGE} does not name {path}::{name}");
            threats += 1;
        }
    }
    assert!(threats > 25, "{threats} tests of threats");
}

#[test]
fn each_threat_has_a_test_of_its_own_or_says_why_it_has_none() {
    let page = read(PAGE);
    let sections: Vec<&str> = page.split("\n### T").skip(1).map(|rest| rest.split("\n## ").next().unwrap()).collect();
    assert_eq!(sections.len(), 41, "{PAGE}");
    for (index, section) in sections.iter().enumerate() {
        let number = index + 1;
        assert!(section.starts_with(&format!("{number} ")), "{PAGE}: T{number} is not in its place: {section:.40}");
        let own = section.contains(&format!("::t{number:02}_"));
        let admits_no_test = ["*Not yet:*", "No test", "(T2)"].iter().any(|word| section.contains(word));
        assert!(own || admits_no_test, "{PAGE}: T{number} has no test and does not say why");
    }
}
