//! `keyward migrate` on the configurations of `tests/it/fixtures/agents`: ours, and the report on each of their keys.

use std::path::Path;

use super::Transcript;
use super::redact::Redactions;

#[test]
fn migration_of_each_configuration() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/agents");
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 12, "{} configurations", paths.len());
    let place = format!("{}/", folder.display());
    let mut transcript = Transcript::new(Redactions::default().text(&place, ""));
    for path in &paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        let path = path.to_str().unwrap();
        let args: &[&str] =
            if name.starts_with("openbao") { &["migrate", "--openbao", path] } else { &["migrate", path] };
        transcript.add_command(name, args, &[]);
    }
    transcript.compare("migrate");
}
