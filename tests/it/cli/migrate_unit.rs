//! `keyward migrate --systemd-drop-in`: the files that the packaged unit needs for the new configuration.

use std::os::unix::fs::PermissionsExt;
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
    let file = folder.path().join("agent.hcl");
    let theirs = "vault { address = \"https://s.example\" }\n\
                  auto_auth {\n  method \"kubernetes\" { config = { role = \"web\" } }\n  \
                  sink \"file\" { config = { path = \"/run/app/token\" group = \"ci\" mode = 0640 } }\n}\n\
                  template {\n  contents = \"x\"\n  destination = \"/run/app/app.conf\"\n  command = \"systemctl reload app\"\n}\n";
    std::fs::write(&file, theirs).unwrap();
    let folder = folder.path().join("made");
    let migrate = || run(&["migrate", file.to_str().unwrap(), "--systemd-drop-in", folder.to_str().unwrap()], &[]);
    let (_, toml, stderr) = migrate();
    assert!(toml.contains("destination = \"/run/app/app.conf\""), "{toml}");
    let drop_in = std::fs::read_to_string(folder.join("50-rights.conf")).unwrap();
    assert_drop_in_is_valid(&drop_in);
    assert!(drop_in.lines().any(|line| line == "SupplementaryGroups=ci"), "{drop_in}");
    let rule = std::fs::read_to_string(folder.join("50-keyward.rules")).unwrap();
    assert!(rule.contains("[\"app.service\", \"reload\"]"), "{rule}");
    assert!(stderr.contains("/etc/polkit-1/rules.d/50-keyward.rules"), "{stderr}");
    // The other agent may have run as root, and the folder may be root's.
    let command = "  if test -d /run/app; then sudo setfacl -m u:keyward:rwx /run/app; \
                   else sudo install -d -m 755 -o keyward -g keyward /run/app; fi   # ";
    assert!(stderr.lines().any(|line| line.starts_with(command)), "{command}: {stderr}");

    // A second run keeps them, and writes no configuration either.
    std::fs::write(folder.join("50-rights.conf"), "# mine\n").unwrap();
    let (code, toml, stderr) = migrate();
    assert_eq!((code, toml.as_str()), (9, ""), "{stderr}");
    assert!(stderr.contains("50-rights.conf exists already"), "{stderr}");
    assert_eq!(std::fs::read_to_string(folder.join("50-rights.conf")).unwrap(), "# mine\n");
}

#[test]
fn a_configuration_that_needs_none_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let (_, _, stderr) = migrate("no-login.hcl", folder.path());
    assert!(
        stderr.contains("the packaged systemd unit needs no drop-in") || stderr.contains("no drop-in is written"),
        "{stderr}"
    );
    assert!(!stderr.contains("setfacl"), "{stderr}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_configuration_is_no_more_readable_than_the_narrowest_of_those_that_it_was_made_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mode = |file: &str, mode| std::fs::set_permissions(file, PermissionsExt::from_mode(mode)).unwrap();
    for (sources, expected) in [
        (&[0o644][..], 0o640),
        (&[0o600], 0o600),
        (&[0o644, 0o600], 0o600),
        (&[0o644, 0o440], 0o640),
        (&[0o400], 0o600),
    ] {
        let out = path("keyward.toml");
        let _ = std::fs::remove_file(&out);
        let mut args = vec!["migrate".to_owned(), "--out".to_owned(), out.clone()];
        for (number, source) in sources.iter().enumerate() {
            let file = path(&format!("{number}.hcl"));
            let _ = std::fs::remove_file(&file);
            std::fs::write(&file, "vault { address = \"https://s.example\" }\n").unwrap();
            mode(&file, *source);
            args.push(file);
        }
        run(&args.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        let found = std::fs::metadata(&out).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, expected, "{sources:?}: {found:o}");
    }
}

#[test]
fn a_migration_that_fails_writes_nothing_so_that_it_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let (out, made) = (folder.path().join("keyward.toml"), folder.path().join("made"));
    let theirs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/agents/templates.hcl");
    let migrate = |out: &Path| {
        let [theirs, out, made] = [&theirs, out, made.as_path()].map(|path| path.to_str().unwrap());
        run(&["migrate", theirs, "--out", out, "--systemd-drop-in", made], &[])
    };
    // The folder of the configuration is missing.
    let (code, _, error) = migrate(&folder.path().join("none/keyward.toml"));
    assert!(code == 1 && !made.exists(), "{error}");
    // A file of the unit exists.
    std::fs::create_dir(&made).unwrap();
    std::fs::write(made.join("50-keyward.rules"), "mine").unwrap();
    let (code, _, error) = migrate(&out);
    assert!(code == 9 && error.contains("50-keyward.rules exists already"), "{error}");
    assert!(!out.exists());
    std::fs::remove_file(made.join("50-keyward.rules")).unwrap();
    let (code, _, error) = migrate(&out);
    assert!(code != 9 && out.exists() && made.join("50-keyward.rules").exists(), "{error}");
}
