//! The real binary as a process: started with a given environment, its output in a file, stopped by signals.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A running `keyward`. It is killed when dropped.
pub(crate) struct Binary {
    child: Child,
    output: PathBuf,
}

impl Binary {
    /// Starts `keyward ARGS` with only `variables` as environment; its output goes to `folder/output.txt`.
    pub(crate) fn start(args: &[&str], variables: &[(&str, &str)], folder: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyward"));
        command.args(args);
        Self::spawn(command, variables, folder)
    }

    /// As [`Binary::start`], after a shell has run `setup`, such as `ulimit -n 64`.
    pub(crate) fn start_after(setup: &str, args: &[&str], variables: &[(&str, &str)], folder: &Path) -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("{setup}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_keyward")]).args(args);
        Self::spawn(command, variables, folder)
    }

    /// As [`Binary::start`], by this command.
    pub(crate) fn spawn(mut command: Command, variables: &[(&str, &str)], folder: &Path) -> Self {
        let output = folder.join("output.txt");
        let file = File::create(&output).unwrap();
        let child = command
            .env_clear()
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, output }
    }

    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap()
    }

    /// Waits for something in its output, which follows the event that it tells.
    #[track_caller]
    pub(crate) fn logs(&self, text: &str) {
        eventually(Duration::from_secs(30), || {
            let output = self.output();
            if output.contains(text) { Ok(()) } else { Err(format!("no {text:?} in {output}")) }
        });
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.id().cast_signed()).unwrap(), signal).unwrap();
    }

    /// Sends SIGTERM and waits for its end.
    pub(crate) fn stop(mut self) -> (ExitStatus, String) {
        self.signal(Signal::TERM);
        let status = self.wait(Duration::from_secs(20));
        (status, self.output())
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, limit: Duration) -> ExitStatus {
        let mut status = None;
        eventually(limit, || {
            status = self.child.try_wait().unwrap();
            status.ok_or_else(|| "it still runs".to_owned())
        });
        status.unwrap()
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `keyward ARGS` to its end: exit code, standard output, standard error.
#[track_caller]
pub(crate) fn run(args: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
    run_with_input(args, variables, "")
}

/// As [`run`], with this on standard input.
#[track_caller]
pub(crate) fn run_with_input(args: &[&str], variables: &[(&str, &str)], input: &str) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_keyward"))
        .args(args)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = Pid::from_raw(child.id().cast_signed()).unwrap();
    // A command that does not read its input may have ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let (tell, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(child.wait_with_output().unwrap()));
    let output = ended.recv_timeout(Duration::from_mins(1)).unwrap_or_else(|_| {
        kill_process(id, Signal::KILL).unwrap();
        panic!("keyward {args:?} has not ended after a minute: {:?}", ended.recv());
    });
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// Tries until it goes well; fails the test with the last reason after `limit`.
#[track_caller]
pub(crate) fn eventually<T>(limit: Duration, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    #[expect(clippy::disallowed_methods, reason = "a process is waited for, in real time")]
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(reason) if start.elapsed() > limit => panic!("not after {limit:?}: {reason}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Waits until a session's state file has its token, which is served before it is saved: no caller waits for a disk.
#[track_caller]
pub(crate) fn wait_until_token_saved(state: &Path) {
    eventually(Duration::from_secs(30), || match std::fs::read_to_string(state) {
        Ok(text) if text.contains("\"token\":\"") => Ok(()),
        other => Err(format!("{}: {other:?}", state.display())),
    });
}

/// One request on a unix socket: status and body.
pub(crate) fn ask(socket: &Path, method: &str, path: &str) -> Result<(u16, String), String> {
    let mut stream = UnixStream::connect(socket).map_err(|error| format!("{}: {error}", socket.display()))?;
    stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let head = "Host: localhost\r\nX-Vault-Request: true\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    write!(stream, "{method} {path} HTTP/1.1\r\n{head}").map_err(|error| error.to_string())?;
    let mut response = String::new();
    stream.read_to_string(&mut response).map_err(|error| error.to_string())?;
    let (head, body) = response.split_once("\r\n\r\n").ok_or_else(|| format!("no answer: {response:?}"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
    Ok((status, body.to_owned()))
}

/// Lines of `/proc/PID/task/TID/status` that start with `name`, one a thread.
pub(crate) fn of_threads(pid: u32, name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok())
        .filter_map(|status| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned()))
        .collect()
}

/// Asserts that each thread of a process has neither a capability nor a way to gain one.
pub(crate) fn assert_no_rights(pid: u32) {
    for (name, expected) in [("NoNewPrivs:", "1"), ("CapEff:", "0000000000000000"), ("CapPrm:", "0000000000000000")] {
        let threads = of_threads(pid, name);
        assert!(!threads.is_empty() && threads.iter().all(|value| value == expected), "{name} {threads:?}");
    }
}
