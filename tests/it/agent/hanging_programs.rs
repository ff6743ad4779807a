//! Programs on a file system that does not answer: `execve(2)` waits for it without end.
//!
//! A lease on the program's file plays it: the kernel has everybody who opens the file wait for the lease's holder (`fcntl(2)`,
//! "Leases"; 45 s by default).

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually};
use crate::harness::program::write_script;
use crate::harness::python_script::PythonScript;
use crate::harness::world::{World, run_in_network_namespace};

/// Less than the kernel's limit of a lease.
const LIMIT: Duration = Duration::from_secs(30);

/// Keeps everybody from opening a file until it is dropped.
fn hang_file(path: &Path) -> PythonScript {
    let hold = "import fcntl, os, signal, sys\n\
                signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
                file = os.open(sys.argv[1], os.O_RDWR)\n\
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
                print('held', flush=True)\n\
                sys.stdin.read()\n";
    let mut script = PythonScript::start(hold, path);
    assert_eq!(script.line(), "held");
    script
}

/// Checks that other programs, requests and the stop do not wait for a template's command that does not start.
fn check_while_a_command_hangs(sandbox: &str) {
    let world = World::start();
    let outside = tempfile::tempdir().unwrap();
    let folder = outside.path().display();
    for name in ["hanging", "other"] {
        write_script(&outside.path().join(name), &format!("echo run >> {folder}/{name}.runs"));
    }
    let runs = |name: &str, expected: usize| {
        let path = outside.path().join(format!("{name}.runs"));
        let count = std::fs::read_to_string(path).unwrap_or_default().lines().count();
        if count >= expected { Ok(()) } else { Err(format!("{name}: {count} runs")) }
    };
    let templates = |contents: &str| {
        let template = |name: &str| {
            format!(
                "[template.{name}]\ncontents = \"{contents}\"\ndestination = \"FOLDER/{name}\"\n\
                 command = [\"{folder}/{name}\"]\ncommand_timeout = \"1s\"\n"
            )
        };
        template("hanging") + &template("other")
    };
    let process = "[process]\ncommand = [\"/bin/sh\", \"-c\", \"exec sleep 600\"]\n";
    let mut whole = String::new();
    let mut agent = Agent::ready(&world, &[("PATH", "/usr/bin:/bin")], |text| {
        whole = text.replacen("[agent]\n", &format!("[agent]\nsandbox = \"{sandbox}\"\n"), 1) + process;
        format!("{whole}{}", templates("one"))
    });
    let hanging = hang_file(&outside.path().join("hanging"));
    agent.edit(|_| format!("{whole}{}", templates("two")));
    agent.reload("ok");
    agent.logs("it did not start within 1 s; its file system may be unresponsive");
    eventually(LIMIT, || runs("other", 2));
    assert_eq!(ask(&agent.socket(), "GET", "/agent/v1/token").unwrap().0, 200);
    drop(hanging);
    eventually(LIMIT, || runs("hanging", 2));

    let _hanging = hang_file(&outside.path().join("hanging"));
    agent.edit(|_| format!("{whole}{}", templates("three")));
    agent.reload("ok");
    eventually(LIMIT, || runs("other", 3));
    // The child process gets its signal, and ends.
    agent.binary.signal(Signal::TERM);
    let status = agent.binary.wait(LIMIT);
    assert!(status.success(), "{status}: {}", agent.binary.output());
}

#[test]
fn a_program_that_does_not_start_holds_up_nothing_else_of_an_agent_without_a_sandbox() {
    run_in_network_namespace(|| check_while_a_command_hangs("off"));
}

#[test]
fn a_program_that_does_not_start_holds_up_nothing_else_of_the_spawner() {
    run_in_network_namespace(|| check_while_a_command_hangs("best_effort"));
}

#[test]
fn a_child_process_that_does_not_start_is_reported_and_starts_once_its_file_system_answers() {
    run_in_network_namespace(|| {
        let world = World::start();
        let outside = tempfile::tempdir().unwrap();
        let program = outside.path().join("program");
        write_script(&program, "exec sleep 600");
        let hanging = hang_file(&program);
        let agent = Agent::start(&world, &[("PATH", "/usr/bin:/bin")], |text| {
            format!("{text}[process]\ncommand = [\"{}\"]\n", program.display())
        });
        agent.logs("event=\"process.start_delayed\"");
        let process = agent.components()["process"].take();
        assert_eq!(process["ready"], false, "{process}");
        drop(hanging);
        agent.logs("event=\"process.started\"");
        eventually(LIMIT, || match agent.components()["process"].take() {
            process if process["ready"] == true => Ok(()),
            process => Err(process.to_string()),
        });
    });
}
