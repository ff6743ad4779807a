//! Commands whose output cannot be written.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

fn keyward(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keyward"));
    command.args(args).env_clear().stdin(Stdio::null());
    command
}

const COMMANDS: [&[&str]; 4] = [
    &["completions", "bash"],
    &["--help"],
    &["--version"],
    &["migrate", "--accept", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/agents/approle-wrapped.hcl")],
];

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    for args in COMMANDS {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = keyward(args).stdout(full).output().unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {error}");
        assert!(error.contains("error: cannot write to standard output: No space left on device"), "{args:?}: {error}");
    }
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_failure() {
    for args in COMMANDS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = keyward(args).stdout(writer).output().unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(0), "{args:?}: {error}");
        assert!(!error.contains("error:") && !error.contains("panicked"), "{args:?}: {error}");
    }
}
