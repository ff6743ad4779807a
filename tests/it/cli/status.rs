//! `keyward status` of an agent whose response the test writes: the text of what real agents rarely are in, exit codes, and
//! `--watch` on a pipe and on a terminal.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::binary::{Binary, eventually, run};

/// An agent that answers each request for its status with what the test has set.
struct FakeAgent {
    address: SocketAddr,
    answer: Arc<Mutex<Option<Value>>>,
}

impl FakeAgent {
    fn start(response: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let agent = Self { address: listener.local_addr().unwrap(), answer: Arc::new(Mutex::new(Some(response))) };
        let response = Arc::clone(&agent.answer);
        // It ends with the test program.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).unwrap_or_default() == 0 {
                        break;
                    }
                    request.push(byte[0]);
                }
                assert!(request.starts_with(b"GET /agent/v1/status HTTP/1.1\r\n"), "{request:?}");
                // Without a response the connection is closed, as by an agent that is killed.
                let Some(body) = response.lock().as_ref().map(Value::to_string) else { continue };
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
                     Connection: close\r\n\r\n"
                );
                let _ = stream.write_all((head + &body).as_bytes());
            }
        });
        agent
    }

    fn set(&self, response: Option<Value>) {
        *self.answer.lock() = response;
    }

    /// Arguments of `keyward status` for it.
    fn args(&self, more: &[&str]) -> Vec<String> {
        let address = format!("http://{}", self.address);
        let args = ["status", "--address", &address, "-c", "/nowhere/keyward.toml"];
        args.iter().chain(more).map(ToString::to_string).collect()
    }
}

/// Runs `keyward status` with an agent that answers so; returns its exit code and what it prints.
fn status_with(response: &Value, more: &[&str]) -> (i32, String) {
    let args = FakeAgent::start(response.clone()).args(more);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (code, output, error) = run(&args, &[]);
    assert_eq!(error, "");
    (code, output)
}

fn status(response: &Value) -> String {
    let (code, output) = status_with(response, &[]);
    assert_eq!(code, 0, "{output}");
    output
}

fn session(failures: u64) -> Value {
    json!({
        "serving": false, "policies": [], "identity": "metadata service", "server": "https://vault.example.com",
        "role": "web", "next_step": "login", "next_step_at": "2026-01-31T09:00:12Z", "failures": failures,
        "last_error": "connection refused", "last_error_code": "KW-3001",
    })
}

fn status_document(ready: bool, sessions: Value, components: Value) -> Value {
    let time = "2026-01-31T09:00:00Z";
    json!({ "version": "1.0.0", "time": time, "ready": ready, "sessions": sessions, "components": components })
}

fn sink(ready: bool, required: bool) -> Value {
    let reason = (!ready).then_some("the disk is full");
    let sink = json!({ "ready": ready, "required": required, "reason": reason, "since": "2026-01-31T08:59:00Z" });
    status_document(ready || !required, json!({}), json!({ "sink/token": sink }))
}

#[test]
fn status_counts_failures_from_the_second_on() {
    let response = |failures| status_document(false, json!({ "web": session(failures) }), json!({}));
    let expected = "keyward 1.0.0: DOWN, not ready\n\
                  DOWN     session/web  connection refused [KW-3001]\n                      \
                  retries in 12 s\n                      logs in to https://vault.example.com by metadata service, role web\n";
    assert_eq!(status(&response(1)), expected);
    assert!(status(&response(2)).contains("2 failures in a row, connection refused [KW-3001]\n"));
}

#[test]
fn status_names_a_listener_that_does_not_serve_with_the_reason() {
    let component = |ready, reason| json!({"ready": ready, "required": true, "started": ready, "reason": reason});
    let components = json!({
        "listener/local": component(true, Value::Null),
        "listener/proxy": component(false, json!("not serving yet")),
        "derived_token/proxy/web": component(false, json!("not created yet")),
    });
    let text = status(&json!({"version": "1.0.0", "ready": false, "sessions": {}, "components": components}));
    let expected = "keyward 1.0.0: DOWN, not ready\n\
                  DOWN     derived_token/proxy/web  not created yet\n\
                  OK       listener/local\n\
                  DOWN     listener/proxy           not serving yet\n";
    assert_eq!(text, expected);
}

#[test]
fn the_exit_status_tells_what_is_at_risk_and_what_is_down() {
    let check = |response: &Value, expected| {
        let (code, output) = status_with(response, &["--exit-status"]);
        assert_eq!(code, expected, "{output}");
        assert_eq!(status_with(response, &[]).0, 0, "without the flag the answer itself is a success");
    };
    check(&sink(true, true), 0);
    check(&sink(false, false), 11);
    check(&sink(false, true), 4);
}

#[test]
fn json_has_the_status_of_the_agent_with_its_evaluation() {
    let (_, output) = status_with(&sink(false, true), &["-o", "json"]);
    let document: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(document["state"], "down");
    assert_eq!(document["components"]["sink/token"]["reason"], "the disk is full");
    let item = json!({
        "component": "sink/token", "state": "down", "required": true, "reason": "the disk is full", "for_seconds": 60,
    });
    assert_eq!(document["report"], json!([item]));
}

#[test]
fn a_watch_on_a_pipe_prints_each_change_once_and_ends_at_an_interrupt() {
    let agent = FakeAgent::start(sink(true, true));
    let folder = tempfile::tempdir().unwrap();
    let args = agent.args(&["--watch", "--exit-status"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut watch = Binary::start(&args, &[], folder.path());
    let sees = |text: &str| {
        eventually(Duration::from_secs(20), || {
            let output = watch.output();
            output.contains(text).then_some(()).ok_or(output)
        });
    };
    sees("OK       sink/token");
    agent.set(Some(sink(false, true)));
    sees("DOWN     sink/token  the disk is full");
    agent.set(None);
    sees("no agent answers: ");
    agent.set(Some(sink(true, true)));
    sees("responding again after ");
    watch.signal(Signal::INT);
    assert_eq!(watch.wait(Duration::from_secs(10)).code(), Some(0), "{}", watch.output());
    let output = watch.output();
    let blocks = output.lines().filter(|line| line.starts_with("--- ")).count();
    assert_eq!(blocks, 4, "one for each change, however many requests there were: {output}");
    assert!(!output.contains('\x1b'), "{output:?}");
}

#[test]
fn the_exit_code_of_a_watch_is_that_of_the_last_status() {
    let agent = FakeAgent::start(sink(false, true));
    let folder = tempfile::tempdir().unwrap();
    let args = agent.args(&["--watch", "--exit-status", "-o", "json"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut watch = Binary::start(&args, &[], folder.path());
    eventually(Duration::from_secs(20), || {
        let lines = watch.output();
        let complete = lines.lines().filter(|line| line.starts_with('{') && line.ends_with('}')).count();
        (complete >= 2).then_some(()).ok_or(lines)
    });
    watch.signal(Signal::TERM);
    assert_eq!(watch.wait(Duration::from_secs(10)).code(), Some(4));
    let output = watch.output();
    let first = output.lines().find(|line| line.starts_with('{')).unwrap();
    assert_eq!(serde_json::from_str::<Value>(first).unwrap()["state"], "down");
}

/// `keyward` on a terminal of its own, by script(1).
struct Terminal {
    script: Child,
    folder: tempfile::TempDir,
}

impl Terminal {
    fn start(args: &[String], variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // `exec`: a shell that stays would be ended by Control-C too, and its code would hide keyward's.
        let command = format!("exec {} {}", env!("CARGO_BIN_EXE_keyward"), args.join(" "));
        let script = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command", &command])
            .arg(folder.path().join("typescript"))
            .env("SHELL", "/bin/sh")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { script, folder }
    }

    /// Everything that was written to the terminal.
    fn output(&self) -> String {
        let bytes = std::fs::read(self.folder.path().join("typescript")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[track_caller]
    fn sees(&self, text: &str) {
        eventually(Duration::from_secs(20), || {
            let output = self.output();
            output.contains(text).then_some(()).ok_or_else(|| format!("{output:?}"))
        });
    }

    /// Presses Control-C and waits for the end; returns the exit code.
    fn interrupt(&mut self) -> Option<i32> {
        self.script.stdin.as_mut().unwrap().write_all(&[3]).unwrap();
        let mut code = None;
        eventually(Duration::from_secs(10), || {
            let status =
                self.script.try_wait().unwrap().ok_or_else(|| format!("it still runs: {:?}", self.output()))?;
            code = status.code();
            Ok(())
        });
        code
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

#[test]
fn a_watch_on_a_terminal_redraws_in_place_and_leaves_the_terminal_as_it_was() {
    let agent = FakeAgent::start(sink(true, true));
    let mut terminal = Terminal::start(&agent.args(&["--watch"]), &[("TERM", "xterm"), ("NO_COLOR", "")]);
    terminal.sees("\x1b[32mOK       \x1b[0msink/token");
    terminal.sees(ENTER);
    agent.set(Some(sink(false, true)));
    terminal.sees("\x1b[1;31mDOWN     \x1b[0msink/token  the disk is full");
    agent.set(None);
    terminal.sees("no agent answers: ");
    agent.set(Some(sink(true, true)));
    terminal.sees("responding again after ");
    assert_eq!(terminal.interrupt(), Some(0));
    let output = terminal.output();
    let (before, after) = output.split_once(LEAVE).unwrap();
    assert!(before.matches("\x1b[H").count() > 3, "each status begins at the top: {output:?}");
    assert!(after.contains("sink/token"), "the last status stays on the screen: {after:?}");
    assert!(before.contains("\x1b[?25l") && before.ends_with("\x1b[?25h"), "the cursor is back: {output:?}");
}

#[test]
fn no_color_and_a_dumb_terminal_are_respected() {
    for variables in [[("TERM", "xterm"), ("NO_COLOR", "1")], [("TERM", "dumb"), ("NO_COLOR", "")]] {
        let agent = FakeAgent::start(sink(true, true));
        let mut terminal = Terminal::start(&agent.args(&["--watch"]), &variables);
        terminal.sees("OK       sink/token");
        assert_eq!(terminal.interrupt(), Some(0));
        assert!(!terminal.output().contains("\x1b[32m"), "{variables:?}: {:?}", terminal.output());
    }
}
