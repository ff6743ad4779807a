//! Tests that the machine cannot run: they say so past the test runner, which shows no output of tests that pass.

use std::io::Write as _;

/// Says that the running test was not run, and why. `tests/run` repeats it at its end.
pub(crate) fn not_run(why: &str) {
    // The test runner names the thread of each test after it.
    let thread = std::thread::current();
    tell(&format!("not run: {}: {why}\n", thread.name().unwrap_or("a test")));
}

/// Returns true for root; says otherwise that the test was not run.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        not_run("it takes another user's place, which needs root");
    }
    is_root
}

/// Repeats what the output of a test in a process of its own says of that.
pub(crate) fn repeat(output: &str) {
    for said in output.lines().filter_map(|line| line.find("not run: ").and_then(|start| line.get(start..))) {
        tell(&format!("{said}\n"));
    }
}

/// A whole line at once: other tests write to the same place.
fn tell(line: &str) {
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}
