//! The child process: the program ends with it, and no process of it remains.

use std::time::Duration;

use keyward_emulators::secrets::Role;
use rustix::process::Signal;

use super::case::{Case, Setup, case, now};
use super::record::Invariant;
use crate::harness::binary::eventually;

const PROCESS: &str = "[env_template.WORD]\ncontents = \"word\"\n[process]\ncommand = [\"/bin/sh\", \"FOLDER/child.sh\"]\n\
                       stop_timeout = \"500ms\"\n";

/// Waits for the end of the program, which has this code.
fn ends(case: &mut Case, code: i32) {
    let status = case.agent.as_mut().unwrap().wait(Duration::from_mins(1));
    assert_eq!(status.code(), Some(code), "{}", case.output());
    case.agent = None;
}

/// Waits until the process whose id is in a file has ended, or is a zombie.
fn is_gone(case: &Case, file: &str) {
    let id = std::fs::read_to_string(case.path(file)).unwrap();
    eventually(Duration::from_secs(20), || match std::fs::read_to_string(format!("/proc/{}/stat", id.trim())) {
        Ok(text) if !text.contains(") Z ") => Err(format!("{file} still runs: {text}")),
        _ => Ok(()),
    });
}

#[test]
fn f43_a_childs_exit_code_is_passed_on_and_one_that_ignores_sigterm_is_killed_with_its_children() {
    case("F43", |case| {
        case.prepare(&Setup { role: Role::default(), sections: PROCESS, ..Setup::default() });
        case.inject(|_| ());
        // A shell's codes: 128 and the signal of a crash. Processes that the child leaves behind are killed.
        for (script, code) in [
            ("sleep 1; exit 42\n", 42),
            ("exit 0\n", 0),
            ("kill -SEGV $$\n", 139),
            ("sleep 1000 & echo $! > FOLDER/grandchild; exit 7\n", 7),
        ] {
            case.put("child.sh", script);
            case.start();
            ends(case, code);
            // The next process has a token once it has looked at the saved one.
            case.expect(|expected| expected.serves = false);
        }
        is_gone(case, "grandchild");
        let script = "trap '' TERM\n(trap '' TERM; while :; do sleep 0.1; done) &\necho $! > FOLDER/second\n\
                      while :; do sleep 0.1; done\n";
        case.put("child.sh", script);
        case.start();
        case.logs("process.started");
        case.until_ready();
        eventually(Duration::from_secs(20), || match std::fs::read_to_string(case.path("second")) {
            Ok(text) if text.ends_with('\n') => Ok(()),
            other => Err(format!("{other:?}")),
        });
        case.expect(|expected| expected.up = false);
        case.figures();
        case.agent().signal(Signal::TERM);
        let begun = now();
        let status = case.agent.as_mut().unwrap().wait(Duration::from_secs(40));
        let took = begun.elapsed();
        case.took(Invariant::Recovery, "stopped_s", took, Duration::from_secs(3));
        assert_eq!(status.code(), Some(137), "{}", case.output());
        assert!(case.output().contains("process.killed"), "{}", case.output());
        is_gone(case, "second");
        case.agent = None;
    });
}
