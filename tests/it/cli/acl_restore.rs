//! The question of `keyward acl restore` on a terminal.

use super::init::on_a_terminal;
use crate::harness::binary::run;

#[test]
fn a_restore_asks_on_a_terminal_before_it_sends_anything() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.snapshot");
    std::fs::write(&file, "no snapshot").unwrap();
    let program = env!("CARGO_BIN_EXE_keyward");
    let command = format!("{program} acl restore {} --address http://127.0.0.1:9", file.display());
    let question = "this replaces all records of http://127.0.0.1:9/ by those of";
    for typed in ["no\n", "\n", "y\n"] {
        let (ok, output) = on_a_terminal(&command, typed);
        assert!(!ok && output.contains(question) && output.contains("nothing was restored"), "{typed:?}: {output}");
    }
    let (ok, output) = on_a_terminal(&command, "yes\n");
    assert!(!ok && output.contains(question) && !output.contains("nothing was restored"), "{output}");
    let (ok, output) = on_a_terminal(&format!("{command} --yes"), "");
    assert!(!ok && !output.contains(question), "{output}");
    let file = file.to_str().unwrap();
    let (code, _, error) = run(&["acl", "restore", file, "--address", "http://127.0.0.1:9"], &[]);
    assert!(code != 0 && !error.contains(question), "a script is not asked: {error}");
}
