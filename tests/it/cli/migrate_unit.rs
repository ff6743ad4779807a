//! `keyward migrate --systemd-drop-in`: the files that the packaged unit needs for the new configuration.

use std::path::Path;

use crate::harness::binary::run;
use crate::harness::systemd::assert_drop_in_is_valid;

fn migrate(fixture: &str, folder: &Path) -> (i32, String, String) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/agents").join(fixture);
    run(&["migrate", file.to_str().unwrap(), "--systemd-drop-in", folder.to_str().unwrap()], &[])
}

#[test]
fn a_drop_in_and_a_polkit_rule_are_written_for_the_new_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("made");
    let (_, toml, told) = migrate("templates.hcl", &folder);
    assert!(toml.contains("destination = \"/run/app/app.conf\""), "{toml}");
    let drop_in = std::fs::read_to_string(folder.join("50-outputs.conf")).unwrap();
    assert_drop_in_is_valid(&drop_in);
    for line in ["ReadWritePaths=-/run/app", "ExecPaths=-/usr/bin/app"] {
        assert!(drop_in.lines().any(|its| its == line), "{line}: {drop_in}");
    }
    let rule = std::fs::read_to_string(folder.join("50-keyward.rules")).unwrap();
    assert!(rule.contains("[\"app.service\", \"reload\"]"), "{rule}");
    assert!(told.contains("/etc/polkit-1/rules.d/50-keyward.rules"), "{told}");

    // A second run keeps them, and writes no configuration either.
    std::fs::write(folder.join("50-outputs.conf"), "# mine\n").unwrap();
    let (code, toml, told) = migrate("templates.hcl", &folder);
    assert_eq!((code, toml.as_str()), (9, ""), "{told}");
    assert!(told.contains("50-outputs.conf exists already"), "{told}");
    assert_eq!(std::fs::read_to_string(folder.join("50-outputs.conf")).unwrap(), "# mine\n");
}

#[test]
fn a_configuration_that_needs_none_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let (_, _, told) = migrate("no-login.hcl", folder.path());
    assert!(
        told.contains("the packaged systemd unit needs no drop-in") || told.contains("no drop-in is written"),
        "{told}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
