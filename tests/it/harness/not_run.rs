//! Tests that the machine cannot run: they say so past the test runner, which shows no output of tests that pass.

use std::io::Write as _;

/// Says that the running test was not run, and why. `tests/run` repeats it at its end.
pub(crate) fn not_run(why: &str) {
    // The test runner names the thread of each test after it.
    let thread = std::thread::current();
    write_line(&format!("not run: {}: {why}\n", thread.name().unwrap_or("a test")));
}

/// Returns true for root; says otherwise that the test was not run.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        not_run("it takes another user's place, which needs root");
    }
    is_root
}

/// Repeats the lines by which a test in a process of its own says so; `output` is its output.
pub(crate) fn repeat(output: &str) {
    for line in output.lines().filter_map(|line| line.find("not run: ").and_then(|start| line.get(start..))) {
        write_line(&format!("{line}\n"));
    }
}

/// Writes a whole line at once: other tests write to the same place.
fn write_line(line: &str) {
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}
