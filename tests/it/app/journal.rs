//! Log lines of the real binary with the journal on standard error, and without it.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::binary::{Binary, eventually};

/// Runs the ACL server through a reload that fails, and returns its log. `stream` makes `JOURNAL_STREAM` of the device and the
/// inode of standard error.
fn log_of(args: &[&str], stream: fn(u64, u64) -> String) -> String {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("keyward.toml");
    let path = folder.path().display();
    let text = format!("[acl]\nlisten = \"unix://{path}/acl.sock\"\ndata_dir = \"{path}/access\"\n");
    std::fs::write(&config, text).unwrap();
    // Emptied by the start, and then still the same file.
    let output = File::create(folder.path().join("output.txt")).unwrap().metadata().unwrap();
    let stream = stream(output.dev(), output.ino());
    let args: Vec<_> = ["run", "--config", config.to_str().unwrap()].into_iter().chain(args.iter().copied()).collect();
    let binary = Binary::start(&args, &[("JOURNAL_STREAM", &stream)], folder.path());
    let logs = |event: &str| {
        eventually(Duration::from_mins(1), || {
            let output = binary.output();
            if output.contains(event) { Ok(()) } else { Err(output) }
        });
    };
    logs("agent.ready");
    std::fs::write(&config, "[acl]\ncolour = true\n").unwrap();
    binary.signal(Signal::HUP);
    logs("config.reload.failed");
    let (status, output) = binary.stop();
    assert!(status.success(), "{output}");
    output
}

#[test]
fn lines_have_a_priority_if_standard_error_is_the_journal() {
    let output = log_of(&[], |device, inode| format!("{device}:{inode}"));
    let priority = |event: &str| output.lines().find(|line| line.contains(event)).map(|line| &line[..3]);
    assert_eq!(priority("agent.ready"), Some("<6>"), "{output}");
    assert_eq!(priority("config.reload.failed"), Some("<3>"), "{output}");
    assert!(output.lines().all(|line| ["<3>", "<4>", "<6>"].contains(&&line[..3])), "{output}");
}

#[test]
fn lines_have_no_priority_if_standard_error_is_not_the_journal() {
    let output = log_of(&[], |device, inode| format!("{device}:{}", inode + 1));
    assert!(!output.contains('<'), "{output}");
}

#[test]
fn json_lines_have_no_priority() {
    let output = log_of(&["--log-format", "json"], |device, inode| format!("{device}:{inode}"));
    assert!(output.lines().all(|line| line.starts_with('{')), "{output}");
}
