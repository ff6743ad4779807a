//! `keyward check` on the configurations of `tests/it/fixtures/check`: their descriptions or their errors.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::Transcript;
use super::redact::Redactions;
use crate::harness::binary::run;

/// Copies the configurations, each with this folder's name in the place of `FOLDER`. The modes are set, as others than the owner
/// may write in some checkouts, which `check` would report.
fn copy(from: &Path, to: &Path, folder: &str) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to, folder);
        } else {
            put(&to, &fs::read_to_string(entry.path()).unwrap().replace("FOLDER", folder), 0o600);
        }
    }
}

fn put(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The configurations by name: a file, a folder of files, or the file `keyward.toml` of a folder with drop-ins.
fn configurations(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let main = |path: PathBuf| Some(path.join("keyward.toml")).filter(|main| main.exists()).unwrap_or(path);
    paths.into_iter().map(main).collect()
}

#[test]
fn check_of_each_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/check");
    let configurations = {
        copy(&fixtures, folder.path(), &place);
        configurations(folder.path())
    };
    assert!(configurations.len() >= 60, "{} configurations", configurations.len());
    // Files that the configurations name.
    fs::create_dir(folder.path().join("state")).unwrap();
    put(&folder.path().join("namespace"), "team-a\n", 0o600);
    put(&folder.path().join("seal.key"), "0123456789abcdef0123456789abcdef\n", 0o600);
    put(&folder.path().join("open.key"), "0123456789abcdef0123456789abcdef\n", 0o644);
    put(&folder.path().join("short.key"), "short\n", 0o600);

    let mut transcript = Transcript::new(Redactions::default().text(&place, "FOLDER"));
    let variables = [("ROLE", "web"), ("PATH", "/usr/bin:/bin")];
    for path in &configurations {
        let config = path.display().to_string();
        let name = path.strip_prefix(folder.path()).unwrap().display().to_string();
        let code = transcript.add_command(&name, &["check", "--config", &config], &variables);
        assert!([0, 3].contains(&code), "{name}: {code}");
    }
    let config = folder.path().join("several-at-once.toml").display().to_string();
    let (code, output, error) = run(&["check", "--format", "json", "--config", &config], &variables);
    transcript.add_output("several-at-once.toml, --format json", code, &pretty(&output), &error);
    let config = folder.path().join("good-sink.toml").display().to_string();
    let (code, output, error) = run(&["check", "--format", "json", "--config", &config], &variables);
    transcript.add_output("good-sink.toml, --format json", code, &pretty(&output), &error);
    transcript.compare("check");
}

fn pretty(json: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    format!("{value:#}\n")
}
