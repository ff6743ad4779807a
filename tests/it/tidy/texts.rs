//! Words of comments, and words that belong in no file.

use std::path::Path;

use super::{Tree, assert_complaints, read, report_violations, seeded};

#[test]
fn comments_are_statements() {
    report_violations(project_files().iter().flat_map(|(path, text)| indirect_comments(path, text)));
}

#[test]
fn a_comment_that_asks_is_refused() {
    let tree = project_files();
    let check = |path: &str, line: &str, expected: &[&str]| {
        assert_complaints(&indirect_comments(path, &seeded(&tree, path, line)), expected);
    };
    for line in ["/// What it is.", "    //! Whether it is.", "/// Its name.", "// Who calls.", "# Which it is."] {
        check("src/agent/token.rs", line, &["say what is so"]);
    }
    for line in ["/// Whatever it is.", "//What", "/// Says what it is.", "let what = 1; /// What"] {
        check("src/agent/token.rs", line, &[]);
    }
    for path in ["tests/run", "config/keyward.toml", "packaging/systemd/keyward.service", "Cargo.toml", ".ci/run"] {
        check(path, "# Where it is.", &["say what is so"]);
    }
    assert!(indirect_comments("packaging/README.md", "# What it is").is_empty());
}

#[test]
fn texts_describe_the_present_and_name_no_machine() {
    report_violations(all_texts().iter().flat_map(|(path, text)| unwanted(path, text)));
}

#[test]
fn a_word_that_belongs_in_no_file_is_refused() {
    let tree = all_texts();
    for path in ["README.md", "src/agent/token.rs", "tests/run", "fuzz/Cargo.toml", "tests/it/main.rs"] {
        for line in ["// TODO", "FIXME", "#[ignore]", "see issue #4", "/root/.cargo"] {
            assert_complaints(&unwanted(path, &seeded(&tree, path, line)), &[path]);
        }
        assert!(unwanted(path, &seeded(&tree, path, "a network interface, a framework/part")).is_empty());
    }
}

/// Reads the sources, tests, benchmarks, fuzz targets, configurations and scripts, without the files of these checks.
fn project_files() -> Tree {
    let mut tree = Tree::new();
    for folder in ["src", "tests", "config", "packaging", "benches", "fuzz", ".ci", ".cargo", ".github"] {
        tree.extend(read(folder, &[]));
    }
    tree.extend(read("", &["toml"]).into_iter().filter(|(path, _)| !path.contains('/')));
    // Paths of the API in recorded calls look like those of a machine.
    tree.retain(|path, _| !path.starts_with("tests/it/tidy") && path != "tests/it/fixtures/openbao-2.6.2.json");
    tree
}

/// Adds the documents in the package's root.
fn all_texts() -> Tree {
    let mut tree = project_files();
    tree.extend(read("", &["md"]).into_iter().filter(|(path, _)| !path.contains('/')));
    tree
}

/// First words of comments that ask instead of stating something.
const INDIRECT: [&str; 8] = ["What", "Who", "Whose", "Whom", "Whether", "Which", "Where", "Its name"];

/// Complains about lines of comments that begin with one of [`INDIRECT`].
fn indirect_comments(path: &str, text: &str) -> Vec<String> {
    if Path::new(path).extension().is_some_and(|end| end == "md") {
        return Vec::new();
    }
    let begins = |line: &str| {
        let line = line.trim_start();
        let comment = ["/// ", "//! ", "// ", "# "].iter().find_map(|start| line.strip_prefix(start))?;
        let word = INDIRECT.iter().find(|word| comment.starts_with(*word))?;
        (!comment[word.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '_')).then_some(*word)
    };
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(number, line)| Some((number, begins(line)?)))
        .map(|(number, word)| {
            format!(
                "{path}:{}: a comment begins with `{word}`; say what is so, or what the item is or does",
                number + 1
            )
        })
        .collect()
}

/// Complains about words that belong in no file.
fn unwanted(path: &str, text: &str) -> Vec<String> {
    let never = [
        ("TODO", "unfinished work is not in the tree"),
        ("FIXME", "unfinished work is not in the tree"),
        ("#[ignore", "a test that is not run is no test"),
        ("println!(\"not run", "the test runner shows no output of tests that pass: use harness::not_run"),
        ("issue #", "the tree describes the present"),
        ("issue3", "the tree describes the present"),
        ("/root/", "a path of one machine"),
    ];
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (word, why) in never.iter().filter(|(word, _)| line.contains(word)) {
            complaints.push(format!("{path}:{}: {word}: {why}", number + 1));
        }
    }
    complaints
}
