//! Programs that a test puts into a folder of its own and has executed.
//!
//! The kernel executes no file that a process has open for writing (`ETXTBSY`), and each process that another test starts
//! has all open files of this one until it executes its own program. Other processes write these files therefore.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Copies a program for everyone to execute.
pub(crate) fn copy_program(from: impl AsRef<Path>, to: &Path) {
    let status = Command::new("install").args(["-m", "0755"]).arg(from.as_ref()).arg(to).status().unwrap();
    assert!(status.success(), "{} was not copied", from.as_ref().display());
}

/// Writes a program of lines for a shell, for everyone to execute.
pub(crate) fn write_script(path: &Path, lines: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", "cat > \"$1\" && chmod 0755 \"$1\"", "sh"]).arg(path).stdin(Stdio::piped());
    let mut writer = command.spawn().unwrap();
    writer.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{lines}\n").as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success(), "{} was not written", path.display());
}
