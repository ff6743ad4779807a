//! A script in Python that runs until it is dropped, for calls of the kernel that play a broken file system.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

pub(crate) struct PythonScript {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl PythonScript {
    /// Starts a script with a path as its argument. It reads its standard input to live until it is dropped.
    pub(crate) fn start(script: &str, path: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// Waits for the next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for PythonScript {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
