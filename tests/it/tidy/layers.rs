//! Layers of modules within a crate: `lib.rs` and the files of folders list modules lowest first.

use std::collections::BTreeMap;

use super::{
    Tree, assert_complaints, declared_module, read, report_violations, seeded, without_comments, without_visibility,
};

/// Module that publishes the tokens. Outputs get them through a credential watch.
const PUBLISHER: &str = "token_lifecycle";

/// Words in the comment of a layer whose modules are independent.
const INDEPENDENT: &str = "each other";

#[test]
fn modules_import_only_modules_above_them_in_their_list() {
    let tree = read("src", &["rs"]);
    let lists = find_lists(&tree);
    report_violations(tree.iter().flat_map(|(path, text)| misplaced(&lists, path, text)));
}

#[test]
fn an_upward_import_within_each_list_is_refused() {
    let tree = read("src", &["rs"]);
    let lists = find_lists(&tree);
    let ordered: Vec<_> = lists.iter().filter(|(_, list)| list.is_ordered).collect();
    assert!(ordered.len() > 30, "the layers were not found");
    for (holder, list) in ordered {
        let highest = list.modules.iter().rfind(|module| module.name != "tests").unwrap();
        for lower in list.modules.iter().take_while(|module| module.name != highest.name) {
            let folder = holder.join("/");
            let paths = [format!("{folder}/{}.rs", lower.name), format!("{folder}/{}/mod.rs", lower.name)];
            let path = paths.iter().find(|path| tree.contains_key(*path)).expect("a module without a file");
            let target: Vec<_> = holder[1..].iter().chain([&highest.name]).map(String::as_str).collect();
            let import = format!("use crate::{}::Seeded;", target.join("::"));
            let complaints = misplaced(&lists, path, &seeded(&tree, path, &import));
            let expected = format!("{} stands below {} in {}", highest.name, lower.name, list.file);
            assert_complaints(&complaints, &[&expected]);
        }
    }
}

#[test]
fn a_forbidden_import_in_any_form_is_refused() {
    let tree = read("src", &["rs"]);
    let lists = find_lists(&tree);
    let check = |path: &str, lines: &str, expected: &[&str]| {
        assert_complaints(&misplaced(&lists, path, &seeded(&tree, path, lines)), expected);
    };
    let (process, sink, token) = ("src/agent/process/mod.rs", "src/agent/sinks/file.rs", "src/agent/token.rs");
    check(process, "use crate::sinks::SinkOptions;", &["modules of its layer do not import each other"]);
    check(process, "use super::templates::x;", &["modules of its layer do not import each other"]);
    check(sink, "use crate::api_proxy::{self, Rules};", &["each other", "each other"]);
    check("src/acl/client/mod.rs", "use crate::api::x;", &["modules of its layer do not import each other"]);
    check(sink, "use crate::token_lifecycle::x;", &["outputs take a credential watch"]);
    check(sink, "use crate::session_status::x;\nuse super::format;\nuse super::SinkOptions;", &[]);
    check(token, "fn f() { crate::sinks::FileSink::new() }", &["sinks stands below token"]);
    check(token, "use crate::{\n    login::{Login, Step as Next},\n    sinks,\n};", &["login", "login", "sinks"]);
    check(token, "/// See [`crate::login`].\nmod tests {\n    use super::login::*;\n}", &[]);
    check(token, "mod tests {\n    use crate::login::*;\n}", &["login stands below token"]);
    // A name that the list takes from a module is that module's.
    check("src/agent/sinks/format.rs", "use super::FileSink;", &["file stands below format"]);
    check("src/acl/store/mod.rs", "use crate::AclOptions;", &["options stands below store"]);
}

/// Modules that a file declares, lowest first.
struct List {
    file: String,
    modules: Vec<Module>,
    /// Modules by the names that the file imports from them.
    imported: BTreeMap<String, String>,
    /// True for a crate's list, and for a list with layers: comments above modules.
    is_ordered: bool,
}

struct Module {
    name: String,
    layer: usize,
    is_independent: bool,
}

impl List {
    fn parse(file: &str, text: &str) -> Self {
        let mut modules: Vec<Module> = Vec::new();
        let mut comment = String::new();
        let mut layer = 0;
        let mut is_independent = false;
        for line in text.lines() {
            if line.starts_with("// ") {
                comment.push_str(line);
            } else if let Some(name) = declared_module(line) {
                if !comment.is_empty() {
                    layer += 1;
                    is_independent = comment.contains(INDEPENDENT);
                }
                comment.clear();
                modules.push(Module { name: name.to_owned(), layer, is_independent });
            } else if !line.starts_with("#[") {
                comment.clear();
            }
        }
        let is_ordered = modules.len() > 1 && (layer > 0 || file.ends_with("/lib.rs"));
        Self { file: file.to_owned(), modules, imported: imported_names(text), is_ordered }
    }

    /// Finds the module of this name, or the one that the list imports the name from.
    fn place(&self, name: &str) -> Option<usize> {
        let find = |name: &str| self.modules.iter().position(|module| module.name == name);
        find(name).or_else(|| find(self.imported.get(name)?))
    }
}

/// Names that a file imports, each with the first name of its path.
fn imported_names(text: &str) -> BTreeMap<String, String> {
    let mut paths = Vec::new();
    for (at, start) in text.match_indices("use ") {
        let line_start = text[..at].rsplit('\n').next().unwrap_or_default();
        if without_visibility(line_start).is_empty() {
            let path = &text[at + start.len()..];
            spread(path.strip_prefix("self::").unwrap_or(path), Vec::new(), &mut paths);
        }
    }
    let paths = paths.into_iter().filter_map(|path| Some((path.last()?.clone(), path.into_iter().next()?)));
    paths.collect()
}

/// Lists of modules, by the path of the module that declares them.
fn find_lists(tree: &Tree) -> BTreeMap<Vec<String>, List> {
    let list = |(path, text): (&String, &String)| (module_path(path), List::parse(path, text));
    let lists: BTreeMap<_, _> = tree.iter().filter(|(path, _)| *path != "src/main.rs").map(list).collect();
    lists.into_iter().filter(|(_, list)| !list.modules.is_empty()).collect()
}

/// Complains about imports of a file that the lists forbid.
fn misplaced(lists: &BTreeMap<Vec<String>, List>, path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (me, target) in references(&without_comments(text), &module_path(path)) {
        let shared = me.iter().zip(&target).take_while(|(mine, theirs)| mine == theirs).count();
        let (Some(mine), Some(theirs)) = (me.get(shared), target.get(shared)) else { continue };
        let Some(list) = lists.get(&me[..shared]).filter(|list| list.is_ordered) else { continue };
        let (Some(my_place), Some(their_place)) = (list.place(mine), list.place(theirs)) else { continue };
        let (mine, theirs) = (&list.modules[my_place], &list.modules[their_place]);
        let mut refuse = |why: &str| complaints.push(format!("{path}: names {}: {why}", target[1..].join("::")));
        if their_place > my_place {
            refuse(&format!("{} stands below {} in {}", theirs.name, mine.name, list.file));
        } else if their_place < my_place && mine.layer == theirs.layer && mine.is_independent {
            refuse(&format!("{}: modules of its layer do not import each other", list.file));
        } else if mine.is_independent && theirs.name == PUBLISHER {
            refuse("outputs take a credential watch and do not import its publisher");
        }
    }
    complaints
}

/// `src/agent/sinks/file.rs` is `sinks::file` of the crate `src/agent`, which is the first name: a folder of `src` is a crate, except for `cli`.
fn module_path(path: &str) -> Vec<String> {
    let inner = path.strip_prefix("src/").unwrap().trim_end_matches(".rs");
    let (root, inner) = match inner.split_once('/') {
        Some((name, rest)) if name != "cli" => (format!("src/{name}"), rest),
        _ => ("src".to_owned(), inner),
    };
    let names = inner.split('/').filter(|name| !["lib", "main", "mod"].contains(name));
    std::iter::once(root).chain(names.map(str::to_owned)).collect()
}

/// Lists the paths that a text names by `crate::` or `super::`, each behind the path of the module that names it.
fn references(text: &str, file: &[String]) -> Vec<(Vec<String>, Vec<String>)> {
    let mut found = Vec::new();
    for (at, word) in ["crate::", "super::"].iter().flat_map(|word| text.match_indices(word)) {
        if text[..at].ends_with(|before: char| before.is_alphanumeric() || "_$:".contains(before)) {
            continue;
        }
        let mut me = file.to_vec();
        me.extend(inline_module(&text[..at]).map(str::to_owned));
        let from = if word == "crate::" { &me[..1] } else { &me[..me.len() - 1] };
        let mut targets = Vec::new();
        spread(&text[at + word.len()..], from.to_vec(), &mut targets);
        found.extend(targets.into_iter().map(|target| (me.clone(), target)));
    }
    found
}

/// Returns the name of the inline module at whose end a text is cut off.
fn inline_module(text: &str) -> Option<&str> {
    let opened = text.rfind("\nmod ")? + "\nmod ".len();
    let (name, rest) = text[opened..].split_once(" {\n")?;
    (!name.contains('\n') && !rest.contains("\n}\n")).then_some(name)
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
