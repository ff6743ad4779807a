//! Log lines of the real binary with the journal on standard error, and without it.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::binary::{Binary, eventually};

/// Starts `keyward ARGS` in a folder. `stream` makes `JOURNAL_STREAM` of the device and the inode of standard error.
fn start(args: &[&str], folder: &Path, stream: fn(u64, u64) -> String) -> Binary {
    // Emptied by the start, and then still the same file.
    let output = File::create(folder.join("output.txt")).unwrap().metadata().unwrap();
    Binary::start(args, &[("JOURNAL_STREAM", &stream(output.dev(), output.ino()))], folder)
}

/// Runs the ACL server through a reload that fails, and returns its log.
fn log_of(args: &[&str], stream: fn(u64, u64) -> String) -> String {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("keyward.toml");
    let path = folder.path().display();
    let text = format!("[acl]\nlisten = \"unix://{path}/acl.sock\"\ndata_dir = \"{path}/acl\"\n");
    std::fs::write(&config, text).unwrap();
    let args: Vec<_> = ["run", "--config", config.to_str().unwrap()].into_iter().chain(args.iter().copied()).collect();
    let binary = start(&args, folder.path(), stream);
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
fn errors_before_the_log_starts_have_a_priority_too() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("keyward.toml");
    std::fs::write(&config, "[acl]\ncolour = true\nshape = 1\n").unwrap();
    let run = ["run", "--config", config.to_str().unwrap()];
    let ended = |args: &[&str], stream: fn(u64, u64) -> String| {
        let mut binary = start(args, folder.path(), stream);
        let status = binary.wait(Duration::from_mins(1));
        (status.code().unwrap(), binary.output())
    };
    let (code, output) = ended(&run, |device, inode| format!("{device}:{inode}"));
    assert!(code == 78 && output.lines().count() >= 2, "{output}");
    assert!(output.lines().all(|line| line.starts_with("<3>error: ")), "{output}");
    // The parser of the command line prints several lines.
    let (code, output) = ended(&["run", "--colour"], |device, inode| format!("{device}:{inode}"));
    assert!(code == 1 && output.starts_with("<3>error: unexpected argument"), "{output}");
    assert!(output.lines().all(|line| line.starts_with("<3>")), "{output}");
    for args in [&run[..], &["run", "--colour"]] {
        let (_, output) = ended(args, |device, inode| format!("{device}:{}", inode + 1));
        assert!(output.starts_with("error: ") && !output.contains("<3>"), "{output}");
    }
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
