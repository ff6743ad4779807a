//! `keyward migrate` of several files: blocks are joined as the other agent joins them.

use crate::harness::binary::run;

/// Converts a folder of two files; returns keyward's configuration and the report.
fn migrate(first: &str, second: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    // In the order of their names.
    std::fs::write(folder.path().join("20-second.hcl"), second).unwrap();
    std::fs::write(folder.path().join("10-first.hcl"), first).unwrap();
    let (_, toml, report) = run(&["migrate", folder.path().to_str().unwrap()], &[]);
    (toml, report)
}

const FIRST: &str = "vault {\n  address = \"https://s.example\"\n  namespace = \"old\"\n  ssl { ca_cert = \"/ca.pem\" }\n}\n\
                     template { contents = \"x\" destination = \"/run/app/a\" }\n";

const SECOND: &str = "vault {\n  namespace = \"new\"\n  ssl { server_name = \"s\" }\n}\n\
                      template { contents = \"x\" destination = \"/run/app/b\" }\n";

#[test]
fn the_files_of_consul_template_complete_each_others_blocks() {
    let (toml, report) = migrate(FIRST, SECOND);
    let server = "address = \"https://s.example\"\nca_file = \"/ca.pem\"\nserver_name = \"s\"\n";
    assert!(toml.contains(server) && toml.contains("namespace = \"new\"\n"), "{toml}{report}");
    assert!(toml.contains("\"/run/app/a\"") && toml.contains("\"/run/app/b\""), "{toml}");
    for line in [
        "10-first.hcl:2:3: vault.address: address",
        "10-first.hcl:3:3: vault.namespace: set again below; the last one counts",
        "10-first.hcl:4:9: vault.ssl.ca_cert: ca_file",
        "20-second.hcl:2:3: vault.namespace: session.main.namespace",
    ] {
        assert!(report.lines().any(|reported| reported.ends_with(line)), "{line}: {report}");
    }
}

#[test]
fn a_later_file_of_vault_agent_replaces_a_block() {
    let login = "auto_auth { method \"jwt\" { config = { role = \"r\" path = \"/j\" } } }\n";
    let (toml, report) = migrate(FIRST, &format!("{SECOND}{login}"));
    assert!(toml.contains("address = \"https://127.0.0.1:8200\"\n") && !toml.contains("s.example"), "{toml}");
    let line = "10-first.hcl:1:1: vault: set again below; the last one counts";
    assert!(report.lines().any(|reported| reported.ends_with(line)), "{report}");
}

#[test]
fn files_of_any_name_and_in_sub_folders_are_read_as_consul_template_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("templates")).unwrap();
    std::fs::write(path("main"), FIRST).unwrap();
    std::fs::write(path("templates/b.conf"), SECOND).unwrap();
    std::fs::write(path(".c"), "log_level = \"debug\"\n").unwrap();
    std::os::unix::fs::symlink(path("templates"), path("link")).unwrap();
    let (_, toml, report) = run(&["migrate", folder.path().to_str().unwrap()], &[]);
    for written in ["\"/run/app/a\"", "\"/run/app/b\"", "namespace = \"new\"", "level = \"debug\""] {
        assert!(toml.contains(written), "{written}: {toml}{report}");
    }
    assert!(report.contains("/templates/b.conf:2:3: vault.namespace: session.main.namespace"), "{report}");
    let skipped: Vec<_> = report.lines().filter(|line| line.starts_with("skipped ")).collect();
    assert!(
        matches!(skipped.as_slice(), [link] if link.contains("/link: consul-template reads only files")),
        "{report}"
    );
}

#[test]
fn a_file_that_consul_template_would_not_start_with_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("main.hcl"), FIRST).unwrap();
    std::fs::write(folder.path().join("notes.txt"), "a note {").unwrap();
    let (code, _, error) = run(&["migrate", folder.path().to_str().unwrap()], &[]);
    assert!(code == 3 && error.contains("/notes.txt: line 1, column"), "{error}");
}
