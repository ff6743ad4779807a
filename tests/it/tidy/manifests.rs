//! Manifests of the workspace: directions of dependencies between its crates, and settings that each crate takes from it.

use toml::{Table, Value};

use super::{Tree, assert_complaints, read, report_violations};

/// Crates that never depend on each other: the parts of the product, and the emulators.
const PARTS: [&str; 5] = ["keyward-agent", "keyward-acl", "keyward-gateway", "keyward-ui", "keyward-emulators"];

#[test]
fn crates_depend_only_on_crates_above_them_and_parts_not_on_parts() {
    report_violations(forbidden_dependencies(&manifests()));
}

#[test]
fn each_crate_is_a_member_with_the_settings_of_the_workspace() {
    report_violations(own_settings(&manifests()));
}

#[test]
fn a_dependency_on_a_part_or_on_a_crate_below_is_refused() {
    let tree = manifests();
    let crates = Crates::parse(&tree);
    let check = |path: &str, header: &str, line: &str, expected: &str| {
        let mut tree = tree.clone();
        let text = tree.get_mut(path).unwrap();
        let is_new = !text.contains(&format!("\n{header}\n"));
        *text = if is_new {
            format!("{text}\n{header}\n{line}\n")
        } else {
            text.replace(header, &format!("{header}\n{line}"))
        };
        assert_complaints(&forbidden_dependencies(&tree), &[expected]);
    };
    let path = |name: &str| crates.members.iter().find(|member| member.name == name).expect(name).path.clone();
    for (part, other) in PARTS.iter().flat_map(|part| PARTS.iter().map(move |other| (part, other))) {
        for header in ["[dependencies]", "[dev-dependencies]", "[build-dependencies]"] {
            let line = format!("{other} = {{ workspace = true, optional = true }}");
            check(&path(part), header, &line, "parts do not depend on each other");
        }
    }
    for pair in crates.members.windows(2).filter(|pair| !PARTS.contains(&pair[1].name.as_str())) {
        let expected = format!("{}: {} stands below", pair[0].path, pair[1].name);
        check(&pair[0].path, "[dev-dependencies]", &format!("{}.workspace = true", pair[1].name), &expected);
    }
    let renamed = "other = { package = \"keyward-app\", path = \"../app\" }";
    check("src/machine/Cargo.toml", "[target.'cfg(unix)'.dependencies]", renamed, "keyward-app stands below");
}

#[test]
fn a_crate_with_settings_of_its_own_is_refused() {
    let tree = manifests();
    let crates = Crates::parse(&tree);
    let check = |path: &str, from: &str, to: &str, expected: &[&str]| {
        let mut tree = tree.clone();
        let text = tree.get_mut(path).unwrap();
        assert!(text.contains(from), "{path} does not contain {from}");
        *text = text.replacen(from, to, 1);
        assert_complaints(&own_settings(&tree), expected);
    };
    for member in &crates.members {
        check(&member.path, "[lints]\nworkspace = true\n", "", &["lints"]);
        check(&member.path, "version.workspace = true", "version = \"0.1.0\"", &["package.version"]);
        check(&member.path, "edition.workspace = true", "edition = \"2021\"", &["package.edition"]);
        let optimized = format!("\n{} = {{ opt-level", member.name);
        check("Cargo.toml", &optimized, "\nother = { opt-level", &["profile.dist.package"]);
    }
    let normal = "keyward-http.workspace = true";
    let with_helpers = "keyward-http = { workspace = true, features = [\"test-support\"] }";
    check("src/ui/Cargo.toml", normal, with_helpers, &["only dev-dependencies enable test-support of keyward-http"]);
    let unlisted = "src/ui/Cargo.toml is not in the member list of Cargo.toml";
    check("Cargo.toml", "\"src/ui\", ", "", &[unlisted]);
    check("Cargo.toml", "\"src/ui\", ", "\"src/other\", ", &["src/other/Cargo.toml: not found", unlisted]);
}

fn manifests() -> Tree {
    let mut tree = read("", &["toml"]);
    tree.retain(|path, _| path == "Cargo.toml" || (path.starts_with("src/") && path.ends_with("/Cargo.toml")));
    tree
}

/// The crates of the workspace, in the order of its member list; the program stands below all others.
struct Crates {
    workspace: Table,
    members: Vec<Member>,
    /// Manifests in the list that do not exist.
    missing: Vec<String>,
}

struct Member {
    path: String,
    name: String,
    manifest: Table,
}

impl Crates {
    fn parse(tree: &Tree) -> Self {
        let workspace: Table = tree["Cargo.toml"].parse().unwrap();
        let listed = workspace["workspace"]["members"].as_array().unwrap();
        let paths = listed.iter().map(|folder| format!("{}/Cargo.toml", folder.as_str().unwrap()));
        let paths = paths.chain(["Cargo.toml".to_owned()]);
        let (found, missing): (Vec<_>, Vec<_>) = paths.partition(|path| tree.contains_key(path));
        let member = |path: String| {
            let manifest: Table = tree[&path].parse().unwrap();
            Member { name: manifest["package"]["name"].as_str().unwrap().to_owned(), path, manifest }
        };
        Self { workspace, members: found.into_iter().map(member).collect(), missing }
    }
}

/// Complains about dependencies of any kind on a crate below, and of one part on another.
fn forbidden_dependencies(tree: &Tree) -> Vec<String> {
    let crates = Crates::parse(tree);
    let mut complaints = Vec::new();
    for (place, member) in crates.members.iter().enumerate() {
        for dependency in dependencies(&member.manifest, &crates.workspace) {
            let Some(other) = crates.members.iter().position(|member| member.name == dependency) else { continue };
            let mut refuse = |why: &str| complaints.push(format!("{}: {dependency} {why}", member.path));
            if [&member.name, &dependency].iter().all(|name| PARTS.contains(&name.as_str())) {
                refuse("is a part: parts do not depend on each other");
            } else if other >= place {
                refuse(&format!("stands below {} in the member list", member.name));
            }
        }
    }
    complaints
}

/// Lists the packages that a manifest depends on, by their own names.
fn dependencies(manifest: &Table, workspace: &Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table).chain([manifest]);
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let dependencies = tables.flat_map(|table| kinds.iter().filter_map(|kind| table.get(*kind)?.as_table())).flatten();
    let package = |(key, value): (&String, &Value)| {
        let shared = value.get("workspace").and_then(|_| workspace["workspace"]["dependencies"].get(key));
        let named = [Some(value), shared].into_iter().flatten().find_map(|value| value.get("package")?.as_str());
        named.unwrap_or(key).to_owned()
    };
    dependencies.map(package).collect()
}

/// Complains about crates that do not take their settings from the workspace, or that it does not know.
fn own_settings(tree: &Tree) -> Vec<String> {
    let crates = Crates::parse(tree);
    let mut complaints: Vec<_> = crates.missing.iter().map(|path| format!("{path}: not found")).collect();
    for member in &crates.members {
        let inherits =
            |value: Option<&Value>| value.and_then(|value| value.get("workspace")) == Some(&Value::Boolean(true));
        if !inherits(member.manifest.get("lints")) {
            complaints.push(format!("{}: take lints from the workspace", member.path));
        }
        for key in ["version", "edition", "rust-version", "license"] {
            if !inherits(member.manifest["package"].get(key)) {
                complaints.push(format!("{}: take package.{key} from the workspace", member.path));
            }
        }
        let normal = member.manifest.get("dependencies").and_then(Value::as_table).into_iter().flatten();
        for (name, _) in normal.filter(|(_, value)| value.to_string().contains("\"test-support\"")) {
            complaints.push(format!("{}: only dev-dependencies enable test-support of {name}", member.path));
        }
        // Without a line the profile's own level holds: the crate is optimized for size.
        if crates.workspace["profile"]["dist"]["package"].get(&member.name).is_none() {
            complaints.push(format!("Cargo.toml: {} has no line in profile.dist.package", member.name));
        }
    }
    let unlisted = tree.keys().filter(|path| !crates.members.iter().any(|member| member.path == **path));
    complaints.extend(unlisted.map(|path| format!("{path} is not in the member list of Cargo.toml")));
    complaints
}
