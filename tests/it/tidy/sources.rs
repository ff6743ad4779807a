//! Conventions of source files, and files that are not compiled.

use super::{Tree, assert_complaints, declared_module, read, report_violations, seeded, without_comments};

/// The file that may allow `unsafe`, for itself and its folder.
const UNSAFE: &str = "src/machine/os.rs";

#[test]
fn sources_keep_the_conventions() {
    report_violations(read("src", &["rs"]).iter().flat_map(|(path, text)| violations(path, text)));
}

#[test]
fn a_source_that_breaks_a_convention_is_refused() {
    let tree = read("src", &["rs"]);
    let check = |path: &str, lines: &str, expected: &[&str]| {
        assert_complaints(&violations(path, &seeded(&tree, path, lines)), expected);
    };
    let (agent, sink) = ("src/agent/lib.rs", "src/agent/sinks/file.rs");
    check(agent, &"\n".repeat(400), &["no file is longer than 400"]);
    check(sink, "use super::super::token;", &["by `super::super`"]);
    check(sink, "impl fmt::Debug for Wire<'_> {\nf.debug_struct(\"Line\")", &["own name"]);
    check(sink, "impl fmt::Debug for Wire<'_> {\nf.debug_struct(\"Wire\")", &[]);
    check(agent, "#![expect(unsafe_code, reason = \"seeded\")]", &["`unsafe` stands in src/machine/os alone"]);
    check("src/machine/os/key_files.rs", "#![allow(unsafe_code)]", &["`unsafe` stands in src/machine/os alone"]);
    assert!(tree[UNSAFE].contains("#![expect(unsafe_code"), "{UNSAFE} does not allow `unsafe`");
}

#[test]
fn every_source_and_test_file_is_declared() {
    report_violations(["src", "tests/it"].iter().flat_map(|folder| undeclared(&read(folder, &["rs"]))));
}

#[test]
fn a_file_that_is_declared_nowhere_is_refused() {
    for (folder, file) in [
        ("tests/it", "tests/it/b.rs"),
        ("tests/it", "tests/it/agent/b.rs"),
        ("tests/it", "tests/it/config/b.rs"),
        ("tests/it", "tests/it/other/mod.rs"),
        ("src", "src/agent/b.rs"),
        ("src", "src/agent/sinks/b.rs"),
        ("src", "src/cli/b.rs"),
    ] {
        let mut tree = read(folder, &["rs"]);
        tree.insert(file.to_owned(), String::new());
        assert_complaints(&undeclared(&tree), &[file]);
    }
    let mut tree = read("tests/it", &["rs"]);
    let main = tree.get_mut("tests/it/main.rs").unwrap();
    *main = main.replace("mod tidy;", "");
    assert_complaints(&undeclared(&tree), &["tests/it/tidy.rs"]);
}

/// Complains about a source file that breaks a convention.
fn violations(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines = text.lines().count();
    if lines > 400 {
        complaints.push(format!("{path}: {lines} lines; no file is longer than 400"));
    }
    let mut debugged = "";
    for (number, line) in without_comments(text).lines().enumerate() {
        let mut refuse = |why: &str| complaints.push(format!("{path}:{}: {why}", number + 1));
        if let Some((_, its_type)) = line.split_once("Debug for ") {
            debugged = leading_name(its_type);
        }
        if line.split_once("debug_struct(\"").is_some_and(|(_, printed)| leading_name(printed) != debugged) {
            refuse("print the type's own name in its `Debug`");
        }
        if line.contains("super::super") {
            refuse("name it from the root instead of by `super::super`");
        }
        // The lint denies `unsafe`, unless a file allows it.
        if line.contains("unsafe_code") && path != UNSAFE {
            refuse("`unsafe` stands in src/machine/os alone");
        }
    }
    complaints
}

fn leading_name(text: &str) -> &str {
    text.split(|character: char| !character.is_alphanumeric()).next().unwrap_or_default()
}

/// Complains about files that no module declares, and that nothing compiles.
fn undeclared(tree: &Tree) -> Vec<String> {
    let declares = |path: &str, name: &str| {
        let is_declaration = |line: &str| declared_module(line) == Some(name);
        tree.get(path).is_some_and(|text| text.lines().any(is_declaration))
    };
    let missing = tree.keys().filter(|path| {
        let Some((folder, file)) = path.rsplit_once('/') else { return false };
        // A folder's own file is declared where the folder stands.
        let (folder, name) = match file {
            "lib.rs" | "main.rs" => return false,
            "mod.rs" => folder.rsplit_once('/').unwrap_or_default(),
            _ => (folder, file.trim_end_matches(".rs")),
        };
        let parents = ["/lib.rs", "/main.rs", "/mod.rs", ".rs"].map(|end| format!("{folder}{end}"));
        !parents.iter().any(|parent| declares(parent, name))
    });
    missing.map(|path| format!("{path} is declared nowhere")).collect()
}
