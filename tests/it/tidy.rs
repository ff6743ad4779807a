//! Checks that the compiler does not make: module layers, file length, type names, first words of comments, fields of log
//! events, and words that never belong in the tree.
//!
//! Each rule is a function from texts to complaints; the tests below it check that it complains where it should.

use std::collections::BTreeMap;
use std::path::Path;

/// Files by their path from the package's root.
type Tree = BTreeMap<String, String>;

const PARTS: [&str; 5] = ["agent", "acl", "gateway", "ui", "emulators"];

#[test]
fn modules_import_only_modules_of_lower_layers() {
    let tree = read("src", &["rs"]);
    assert!(tree.len() > 20, "the sources were not found");
    for list in ["src/lib.rs", "src/agent/mod.rs"] {
        assert!(layers(&tree[list]).len() > 1, "{list} lists no layers");
    }
    report_violations(tree.keys().flat_map(|path| misplaced(&tree, path)));
}

#[test]
fn sources_keep_the_conventions() {
    let tree = read("src", &["rs"]);
    report_violations(tree.iter().flat_map(|(path, text)| conventions(path, text)));
    let long: Vec<_> = tree.iter().filter(|(_, text)| text.lines().count() > 250).map(|(path, _)| path).collect();
    let limit = (tree.len() / 8).max(8);
    assert!(long.len() <= limit, "{} files are longer than 250 lines, {limit} may be: {long:?}", long.len());
}

#[test]
fn public_types_of_a_part_have_distinct_names() {
    report_violations(repeated_types(&read("src", &["rs"])));
}

#[test]
fn comments_are_statements() {
    report_violations(project_files().iter().flat_map(|(path, text)| indirect_comments(path, text)));
}

#[test]
fn log_events_have_fields_of_one_form() {
    let tree = read("src", &["rs"]);
    assert!(tree.values().map(|text| log_calls(text).len()).sum::<usize>() > 150, "the events were not found");
    report_violations(tree.iter().flat_map(|(path, text)| irregular_fields(path, text)));
}

#[test]
fn texts_describe_the_present_and_name_no_machine() {
    let mut tree = project_files();
    tree.extend(read("", &["md"]).into_iter().filter(|(path, _)| !path.contains('/')));
    report_violations(tree.iter().flat_map(|(path, text)| unwanted(path, text)));
}

#[test]
fn every_test_file_is_run_and_no_test_is_left_out() {
    let tree = read("tests/it", &["rs"]);
    report_violations(undeclared(&tree));
}

#[test]
fn every_example_configuration_is_shown_or_parsed() {
    let examples = read("config", &["toml"]);
    let mut texts = read("tests/it", &["rs"]);
    texts.extend(read("src/config", &["rs"]));
    texts.extend(read("", &["md"]).into_iter().filter(|(path, _)| path == "README.md"));
    texts.remove("tests/it/tidy.rs");
    report_violations(unmentioned(&examples, &texts));
}

fn report_violations(complaints: impl IntoIterator<Item = String>) {
    let complaints: Vec<_> = complaints.into_iter().collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// Reads every file below a folder of the package that has one of these extensions (any, if none is given).
fn read(folder: &str, endings: &[&str]) -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tree = Tree::new();
    let mut left = vec![root.join(folder)];
    while let Some(next) = left.pop() {
        let Ok(entries) = std::fs::read_dir(&next) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let expected = endings.is_empty() || endings.iter().any(|end| name.ends_with(&format!(".{end}")));
            if path.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
                left.push(path);
            } else if expected && let Ok(text) = std::fs::read_to_string(&path) {
                tree.insert(name, text);
            }
        }
    }
    tree
}

/// Reads the sources, tests, benchmarks, fuzz targets, configurations and scripts, without this file.
fn project_files() -> Tree {
    let mut tree = Tree::new();
    for folder in ["src", "tests", "config", "packaging", "benches", "fuzz", ".ci", ".cargo", ".github"] {
        tree.extend(read(folder, &[]));
    }
    tree.extend(read("", &["toml"]).into_iter().filter(|(path, _)| !path.contains('/')));
    tree.remove("tests/it/tidy.rs").expect("this file is among them");
    tree
}

/// Complains about imports that the layers forbid.
fn misplaced(tree: &Tree, path: &str) -> Vec<String> {
    let me = module(path);
    let text = without_comments(&tree[path]);
    let mut complaints = Vec::new();
    for target in references(&text, &me) {
        let shared = me.iter().zip(&target).take_while(|(mine, theirs)| mine == theirs).count();
        let (Some(mine), Some(theirs)) = (me.get(shared), target.get(shared)) else { continue };
        let mut refuse = |why: &str| complaints.push(format!("{path}: names {}: {why}", target.join("::")));
        if shared == 0 && PARTS.contains(&mine.as_str()) && PARTS.contains(&theirs.as_str()) {
            refuse("parts do not import each other");
            continue;
        }
        let holder = &me[..shared];
        let list = if shared == 0 { "src/lib.rs".to_owned() } else { format!("src/{}/mod.rs", holder.join("/")) };
        let Some(layers) = tree.get(&list).map(|text| layers(text)) else { continue };
        // Folders inside a part have layers only if their comments say so.
        let part = shared == 1 && PARTS.contains(&holder[0].as_str());
        if shared > 0 && !part && layers.len() < 2 {
            continue;
        }
        let place = |name: &str| layers.iter().flat_map(|layer| &layer.modules).position(|module| module == name);
        let layer = |name: &str| layers.iter().position(|layer| layer.modules.iter().any(|module| module == name));
        let (Some(my_place), Some(their_place)) = (place(mine), place(theirs)) else { continue };
        if their_place > my_place {
            refuse(&format!("{theirs} stands below {mine} in {list}"));
        } else if layer(mine) == layer(theirs) && layer(mine).is_some_and(|layer| layers[layer].strangers) {
            refuse("outputs do not import each other");
        } else if layer(mine).is_some_and(|layer| layers[layer].strangers) && theirs == "token_lifecycle" {
            refuse("outputs take a credential watch and do not import its publisher");
        }
    }
    complaints
}

/// Modules between two comments that begin a layer (`// Layer 1: …` or `// 1: …`).
#[derive(Debug, Default, PartialEq)]
struct Layer {
    strangers: bool,
    modules: Vec<String>,
}

fn layers(text: &str) -> Vec<Layer> {
    let mut layers = vec![Layer::default()];
    for line in text.lines() {
        let opens = line.strip_prefix("// ").map(|rest| rest.strip_prefix("Layer ").unwrap_or(rest));
        if opens.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit())) {
            layers.push(Layer { strangers: line.contains("strangers"), modules: Vec::new() });
        }
        let declared = ["pub mod ", "mod ", "pub(crate) mod ", "pub(super) mod "]
            .iter()
            .find_map(|start| line.strip_prefix(start)?.strip_suffix(';'));
        if let (Some(name), Some(layer)) = (declared, layers.last_mut()) {
            layer.modules.push(name.to_owned());
        }
    }
    layers.retain(|layer| !layer.modules.is_empty());
    layers
}

/// `src/agent/login.rs` is `agent::login`, `src/agent/mod.rs` is `agent`, `src/lib.rs` is the root.
fn module(path: &str) -> Vec<String> {
    let inner = path.strip_prefix("src/").unwrap_or(path).trim_end_matches(".rs");
    let inner = inner.strip_suffix("mod").map_or(inner, |folder| folder.trim_end_matches('/'));
    inner.split('/').filter(|part| !["", "lib", "main"].contains(part)).map(str::to_owned).collect()
}

/// Lists the paths that a text names by `crate::` or `super::`, from the root; groups are expanded.
fn references(text: &str, me: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (start, from) in [("crate::", &[][..]), ("super::", &me[..me.len().saturating_sub(1)])] {
        for (at, _) in text.match_indices(start) {
            if text[..at].ends_with(|before: char| before.is_alphanumeric() || "_$:".contains(before)) {
                continue;
            }
            spread(&text[at + start.len()..], from.to_vec(), &mut found);
        }
    }
    found
}

/// Reads one path, or a group of them, and returns the text after it.
fn spread<'a>(text: &'a str, mut path: Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start_matches(|skip: char| skip.is_whitespace() || skip == ',');
            let group_end = rest.strip_prefix('}');
            if group_end.is_some() || !rest.starts_with(|first: char| first.is_alphabetic() || "_*{".contains(first)) {
                return group_end.unwrap_or(rest);
            }
            rest = spread(rest, path.clone(), found);
            if let Some(renamed) = rest.trim_start().strip_prefix("as ") {
                rest = renamed.trim_start_matches(|skip: char| skip.is_alphanumeric() || skip == '_');
            }
        }
    }
    let end = text.find(|end: char| !(end.is_alphanumeric() || end == '_')).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() {
        found.push(path);
        return rest.strip_prefix('*').unwrap_or(rest);
    }
    path.push(name.to_owned());
    if let Some(rest) = rest.strip_prefix("::") {
        return spread(rest, path, found);
    }
    found.push(path);
    rest
}

fn without_comments(text: &str) -> String {
    let code = |line: &str| {
        let whole = line.trim_start().starts_with("//");
        let code = if whole { "" } else { line.split(" // ").next().unwrap_or_default() };
        format!("{code}\n")
    };
    text.lines().map(code).collect()
}

/// Complains about a source file that breaks a convention.
fn conventions(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let code = without_comments(text);
    let lines = text.lines().count();
    if lines > 400 {
        complaints.push(format!("{path}: {lines} lines; no file is longer than 400"));
    }
    let mut debugged = "";
    for (number, line) in code.lines().enumerate() {
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
        if line.contains("crate::{") {
            refuse("write one `use` for each module, so that its layer can be checked");
        }
        if path != "src/os.rs"
            && !path.starts_with("src/os/")
            && ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"].iter().any(|keyword| line.contains(keyword))
        {
            refuse("unsafe code stands in src/os alone");
        }
    }
    complaints
}

fn leading_name(text: &str) -> &str {
    text.split(|character: char| !character.is_alphanumeric()).next().unwrap_or_default()
}

/// Parts whose public types must have distinct names, so that a name alone leads to its type.
const NAMED_PARTS: [&str; 6] = ["agent", "acl", "gateway", "ui", "emulators", "http"];

/// Names that two public types of a part still have, as `part::Type`. No name is added here.
const REPEATED_TYPES: [&str; 1] = ["emulators::Platform"];

/// Complains about public types of one name within a part.
fn repeated_types(tree: &Tree) -> Vec<String> {
    let mut files: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (path, text) in tree {
        let Some(part) = NAMED_PARTS.iter().find(|part| path.starts_with(&format!("src/{part}/"))) else { continue };
        for line in text.lines() {
            let kinds = ["struct ", "enum ", "trait ", "type "];
            let line = line.trim_start();
            let declared = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) "));
            let Some(name) = declared.and_then(|rest| kinds.iter().find_map(|kind| rest.strip_prefix(kind))) else {
                continue;
            };
            let end = name.find(|end: char| !end.is_alphanumeric()).unwrap_or(name.len());
            files.entry(format!("{part}::{}", &name[..end])).or_default().push(path);
        }
    }
    files.retain(|name, files| files.len() > 1 && !REPEATED_TYPES.contains(&name.as_str()));
    files.into_iter().map(|(name, files)| format!("{name} is declared in {}", files.join(" and "))).collect()
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

/// Names that a field of a log event does not have, with the one that it has.
const OTHER_FIELDS: [(&str, &str); 16] = [
    ("cause", "error"),
    ("failure", "error"),
    ("message", "error"),
    ("why", "error"),
    ("again", "retry_in_seconds"),
    ("retry_after", "retry_in_seconds"),
    ("retry_in", "retry_in_seconds"),
    ("wait", "retry_in_seconds"),
    ("lasted", "lasted_seconds"),
    ("age", "age_seconds"),
    ("ahead", "ahead_seconds"),
    ("leased", "lease_seconds"),
    ("seconds", "ttl_seconds"),
    ("ttl", "ttl_seconds"),
    ("aside", "moved_to"),
    ("untold", "suppressed"),
];

/// Complains about fields of log events that differ from the others: texts are quoted (no `%`), nothing is printed as
/// Rust's Debug (no `?`), durations are numbers of seconds, and one thing has one name.
fn irregular_fields(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (line, arguments) in log_calls(text) {
        let mut refuse = |why: &str| complaints.push(format!("{path}:{line}: {why}"));
        if arguments.iter().any(|argument| argument.contains(":?}") || argument.contains(":#?}")) {
            refuse("a log event holds no Debug output; write a text");
        }
        for argument in arguments.iter().take_while(|argument| !argument.starts_with('"')) {
            let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
            let (name, value) = (name.trim(), value.trim());
            if name.starts_with('?') || value.starts_with('?') {
                refuse("a log event holds no Debug output; write a text");
            }
            if name.starts_with('%') || value.starts_with('%') {
                refuse("texts of a log event are quoted; give a string in place of `%`");
            }
            let name = name.trim_start_matches(['?', '%']);
            if let Some((_, instead)) = OTHER_FIELDS.iter().find(|(other, _)| *other == name) {
                refuse(&format!("the field `{name}` is called `{instead}` in log events"));
            }
            if ["_ms", "_millis", "_secs", "_minutes", "_hours"].iter().any(|unit| name.ends_with(unit)) {
                refuse("durations of log events are numbers of seconds, in a field that ends with `_seconds`");
            }
        }
    }
    complaints
}

/// Finds the calls of log macros, each with its line and its arguments.
fn log_calls(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut calls = Vec::new();
    for (at, start) in text.match_indices("tracing::") {
        let Some((level, rest)) = text[at + start.len()..].split_once("!(") else { continue };
        if ["error", "warn", "info", "debug", "trace", "event"].contains(&level) {
            calls.push((text[..at].lines().count(), arguments(rest)));
        }
    }
    calls
}

/// Splits a text at its commas, up to the parenthesis that closes it.
fn arguments(text: &str) -> Vec<String> {
    let (mut found, mut depth, mut quoted, mut escaped) = (vec![String::new()], 0, false, false);
    for character in text.chars() {
        match character {
            '"' if !escaped => quoted = !quoted,
            _ if quoted => {}
            ')' if depth == 0 => break,
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        escaped = quoted && character == '\\' && !escaped;
        found.last_mut().unwrap().push(character);
    }
    found.into_iter().map(|argument| argument.trim().to_owned()).collect()
}

/// Complains about words that belong in no file.
fn unwanted(path: &str, text: &str) -> Vec<String> {
    let never = [
        ("todo!", "unfinished work is not in the tree"),
        ("unimplemented!", "unfinished work is not in the tree"),
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

fn undeclared(tree: &Tree) -> Vec<String> {
    let declares = |path: &str, name: &str| {
        let line = |line: &str| line.trim_start_matches("pub(crate) ") == format!("mod {name};");
        tree.get(path).is_some_and(|text| text.lines().any(line))
    };
    let missing = tree.keys().filter(|path| {
        let Some((folder, file)) = path.rsplit_once('/') else { return false };
        // A folder's own file is declared where the folder stands.
        let (folder, name) = match file {
            "main.rs" => return false,
            "mod.rs" => folder.rsplit_once('/').unwrap_or_default(),
            _ => (folder, file.trim_end_matches(".rs")),
        };
        let parents = [format!("{folder}/main.rs"), format!("{folder}/mod.rs"), format!("{folder}.rs")];
        !parents.iter().any(|parent| declares(parent, name))
    });
    missing.map(|path| format!("{path} is declared nowhere")).collect()
}

fn unmentioned(examples: &Tree, texts: &Tree) -> Vec<String> {
    let all = |text: &String| text.contains("read_dir(") && text.contains("\"config\"");
    let mentioned = |path: &str| texts.values().any(|text| text.contains(path) || all(text));
    let missing = examples.keys().filter(|path| !mentioned(path));
    missing.map(|path| format!("{path} is neither shown in README.md nor parsed by a test")).collect()
}

#[test]
fn the_layer_rule_finds_each_violation() {
    let lib = "// Layer 0: shared\npub mod clock;\npub mod feed;\n// Layer 1\npub mod agent;\npub mod acl;\n";
    let agent =
        "// 0: x\npub mod token;\n// 1: y\npub mod token_lifecycle;\n// 2: strangers\npub mod sinks;\npub mod api;\n";
    let check = |path: &str, text: &str, expected: &[&str]| {
        let files = [("src/lib.rs", lib), ("src/agent/mod.rs", agent), (path, text)];
        let tree: Tree = files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect();
        let found = misplaced(&tree, path);
        assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
        assert!(found.iter().zip(expected).all(|(found, expected)| found.contains(expected)), "{text}: {found:?}");
    };
    check("src/feed.rs", "use crate::clock::Clock;", &[]);
    check("src/feed.rs", "use super::clock::Clock;", &[]);
    check("src/clock.rs", "use crate::feed::CredentialWatch;", &["feed stands below clock"]);
    check("src/clock.rs", "use super::feed::CredentialWatch;", &["feed stands below clock"]);
    check("src/clock.rs", "fn f() { crate::agent::token::new() }", &["agent stands below clock"]);
    check("src/clock.rs", "/// See [`crate::feed`].\nmod tests {\n    use super::*;\n}", &[]);
    check("src/acl/mod.rs", "use crate::agent::token::Token;", &["parts do not import each other"]);
    check("src/agent/token.rs", "use crate::acl::model;", &["parts do not import each other"]);
    check(
        "src/agent/token.rs",
        "use crate::agent::{\n    token_lifecycle::{Keeper, Step as Next},\n    sinks,\n};",
        &["token_lifecycle::Keeper: token_lifecycle stands below token", "token_lifecycle::Step: ", "agent::sinks: "],
    );
    check("src/agent/token_lifecycle/keeper.rs", "use crate::agent::token::Token;\nuse super::Options;", &[]);
    check("src/agent/api/mod.rs", "use super::sinks::Options;", &["outputs do not import each other"]);
    check("src/agent/api/mod.rs", "use crate::agent::token_lifecycle::Keeper;", &["do not import its publisher"]);
    check(
        "src/agent/api/mod.rs",
        "use crate::agent::api::routes;\nuse crate::feed::{CredentialWatch, RefreshSignal};",
        &[],
    );
}

#[test]
fn the_rules_of_names_and_docs_find_each_violation() {
    let tree = |files: &[(&str, &str)]| -> Tree {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    };
    let (a, b) =
        ("pub(crate) struct Entry<T>(T);\npub(super) enum State {}", "    pub enum Entry {}\npub struct State;");
    assert_eq!(
        repeated_types(&tree(&[("src/http/a.rs", a), ("src/http/b.rs", b)])),
        ["http::Entry is declared in src/http/a.rs and src/http/b.rs"]
    );
    assert!(repeated_types(&tree(&[("src/http/a.rs", a), ("src/agent/b.rs", b)])).is_empty());
    assert!(repeated_types(&tree(&[("src/app/a.rs", a), ("src/app/b.rs", b)])).is_empty());
    for text in ["/// What it is.", "    //! Whether it is.", "/// Its name.", "// Who calls.", "# Which it is."] {
        assert_eq!(indirect_comments("src/a.rs", text).len(), 1, "{text}");
    }
    for text in ["/// Whatever it is.", "//What", "/// Says what it is.", "let what = 1; /// What"] {
        assert!(indirect_comments("src/a.rs", text).is_empty(), "{text}");
    }
    assert!(indirect_comments("packaging/README.md", "# What it is").is_empty());
}

#[test]
fn the_rule_of_log_events_finds_each_violation() {
    let check = |arguments: &str, expected: &[&str]| {
        let found = irregular_fields("src/a.rs", &format!("fn f() {{\n    tracing::warn!({arguments});\n}}"));
        assert_eq!(found.len(), expected.len(), "{arguments}: {found:?}");
        assert!(found.iter().zip(expected).all(|(found, expected)| found.contains(expected)), "{arguments}: {found:?}");
        assert!(found.iter().all(|found| found.starts_with("src/a.rs:2: ")), "{found:?}");
    };
    check(r#"event = "a.b", error, retry_in_seconds = seconds(wait), code = code.as_str(), "why? {x}", x"#, &[]);
    check(r#"event = "a.b", name = f(|it| it?.cause, "a, ?b"), "why = ?x, %y""#, &[]);
    check(r#"event = "a.b", what = ?scope, "cleared""#, &["Debug"]);
    check(r#"event = "a.b", ?kind, "made""#, &["Debug"]);
    check(r#"event = "a.b", kind = format!("{kind:?}"), "made""#, &["Debug"]);
    check(r#"event = "a.b", "made \"{:?}\"", kind"#, &["Debug"]);
    check(r#"event = "a.b", %error, path = %path.display(), "failed""#, &["quoted", "quoted"]);
    check(r#"event = "a.b", cause = text, wait_ms = 3, "failed""#, &["called `error`", "numbers of seconds"]);
}

#[test]
fn the_rules_of_sources_find_each_violation() {
    let check = |text: &str, expected: &[&str]| {
        let found = conventions("src/feed.rs", text);
        assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
        assert!(found.iter().zip(expected).all(|(found, expected)| found.contains(expected)), "{text}: {found:?}");
    };
    check("unsafe_code\n// unsafe { }", &[]);
    check("use super::super::x;", &["by `super::super`"]);
    check("use crate::{clock, feed};", &["one `use` for each module"]);
    check("let x = unsafe { y() };", &["src/os alone"]);
    check("impl Debug for Wire<'_> {\nf.debug_struct(\"Wire\")", &[]);
    check("impl fmt::Debug for Wire {\nf.debug_struct(\"Line\")", &["own name"]);
    check(&"\n".repeat(400), &[]);
    check(&"\n".repeat(401), &["401 lines"]);
    assert!(["src/os.rs", "src/os/memory.rs"].iter().all(|path| conventions(path, "unsafe { y() }").is_empty()));
    for text in ["todo!()", "// TODO", "#[ignore]", "see issue #4", "/root/.cargo"] {
        assert!(unwanted("README.md", text).len() == 1, "{text}");
    }
    assert!(unwanted("README.md", "a network interface, a framework/part").is_empty());
}

#[test]
fn the_rules_about_tests_and_examples_find_each_violation() {
    let tree = |files: &[(&str, &str)]| -> Tree {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    };
    let tests = [
        ("tests/it/main.rs", "mod a;\nmod folder;"),
        ("tests/it/a.rs", "mod c;"),
        ("tests/it/a/c.rs", ""),
        ("tests/it/folder/mod.rs", "pub(crate) mod d;"),
        ("tests/it/folder/d.rs", ""),
    ];
    assert!(undeclared(&tree(&tests)).is_empty());
    let more =
        [("tests/it/b.rs", ""), ("tests/it/other/mod.rs", ""), ("tests/it/a/d.rs", ""), ("tests/it/folder/e.rs", "")];
    assert_eq!(undeclared(&tree(&[&tests[..], &more].concat())).len(), 4);
    let examples = tree(&[("config/a.toml", ""), ("config/b.toml", "")]);
    assert_eq!(unmentioned(&examples, &tree(&[("README.md", "see config/a.toml")])).len(), 1);
    assert!(unmentioned(&examples, &tree(&[("tests/it/configs.rs", "read_dir(root.join(\"config\"))")])).is_empty());
}
