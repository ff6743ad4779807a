//! A short run of `tests/histories`: random operations of several clients while the server is killed and stopped, and checks of what
//! the server responded.

use std::path::Path;
use std::process::{Command, Stdio};

use super::third_party_clients::clients;

#[test]
fn clients_of_a_server_that_is_killed_see_one_order_of_changes() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories"))
        // With this seed the server is killed first, and stopped if there is time left. A blocking query may take long on a busy machine.
        .args(["--minutes", "0.2", "--clients", "8", "--seed", "9", "--bound", "60"])
        .args(["--binary", env!("CARGO_BIN_EXE_keyward")])
        .args(["--program".as_ref(), clients().join("bin/go-histories").as_os_str()])
        .args(["--out".as_ref(), folder.path().as_os_str()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for expected in ["kill server 0", "anomalies: 0;"] {
        assert!(text.contains(expected), "no {expected:?} in:\n{text}");
    }
}

#[test]
fn the_checks_of_histories_find_the_errors_of_made_up_ones() {
    let output = Command::new(clients().join("bin/go-histories")).arg("-self-test").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
