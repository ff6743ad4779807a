//! `keyward man`: the manual pages that packages carry.

use std::process::Command;

use crate::harness::binary::run;

#[test]
fn man_writes_a_page_for_every_command_and_each_page_parses() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("share/man1");
    let (code, output, error) = run(&["man", "--dir", &dir.display().to_string()], &[]);
    assert_eq!((code, output.as_str(), error.as_str()), (0, "", ""));
    let pages: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() > 12, "{pages:?}");
    let lexgrog = Command::new("lexgrog").arg("--version").output().is_ok();
    for page in &pages {
        let text = std::fs::read_to_string(page).unwrap();
        let name = page.file_stem().unwrap().to_str().unwrap();
        assert!(text.contains(&format!(".TH {name} 1")), "{name}: {text}");
        assert!(text.contains("\n.SH NAME\n") && text.contains("\n.SH SYNOPSIS\n"), "{name}: {text}");
        if lexgrog {
            let parsed = Command::new("lexgrog").arg(page).env_clear().output().unwrap();
            assert!(parsed.status.success(), "{name}: {parsed:?}");
        }
    }
    let page = |name: &str| std::fs::read_to_string(dir.join(format!("{name}.1"))).unwrap();
    assert!(page("keyward").contains("Exit codes:"));
    assert!(page("keyward-check").contains("\\-\\-online"));
    #[cfg(feature = "acl")]
    assert!(page("keyward-acl-token-create").contains("\\-\\-policy\\-name"));
}

#[test]
fn man_reports_why_it_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (code, _, error) = run(&["man", "--dir", &file.display().to_string()], &[]);
    assert_eq!(code, 1);
    assert!(error.contains("cannot write manual pages to") && error.contains("file"), "{error}");
}
