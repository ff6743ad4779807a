//! Commands that have not succeeded when their template's task ends.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::harness::agent::Agent;
use crate::harness::binary::eventually;
use crate::harness::world::run_in_network_namespace;

/// The marker of the file `conf`.
const MARKER: &str = ".conf.command-pending";

impl Bench<'_> {
    /// Starts the template `conf` as the next agent does, and waits until it is rendered and its command has succeeded.
    async fn restart_until_ready(&mut self, command: Option<&str>) {
        self.end().await;
        let renders = self.renders("conf");
        self.start_with("conf", "x", command);
        until(|| self.renders("conf") > renders && self.reason("conf").is_empty()).await;
    }

    /// A command that adds a line to the file `runs`.
    fn line(&self) -> String {
        format!("echo ran >> {}", self.path("runs").display())
    }
}

#[tokio::test]
async fn a_failed_command_is_repeated_after_a_restart_and_once() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.start_with("conf", "x", Some("false"));
    until(|| bench.reason("conf").contains("it ended with code 1")).await;
    let marker = std::fs::metadata(bench.path(MARKER)).unwrap();
    assert_eq!((marker.permissions().mode() & 0o777, marker.len()), (0o600, 0));

    let line = bench.line();
    bench.restart_until_ready(Some(&line)).await;
    assert_eq!(bench.read("runs").as_deref(), Some("ran\n"));
    assert_eq!(bench.read(MARKER), None);
    bench.restart_until_ready(Some(&line)).await;
    assert_eq!(bench.read("runs").as_deref(), Some("ran\n"), "nothing has changed since");
    assert_eq!(bench.read(MARKER), None);
}

#[tokio::test]
async fn a_command_that_a_stop_interrupts_is_repeated_by_the_next_agent() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let line = format!("PATH=/usr/bin:/bin; echo begun > {}; exec sleep 600", bench.path("begun").display());
    bench.start_with("conf", "x", Some(&line));
    until(|| bench.read("begun").is_some()).await;
    let line = bench.line();
    bench.restart_until_ready(Some(&line)).await;
    assert_eq!(bench.read("runs").as_deref(), Some("ran\n"));
}

#[tokio::test]
async fn a_command_during_which_the_agent_ends_again_and_again_is_abandoned() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let command = format!("PATH=/usr/bin:/bin; echo begun >> {}; exec sleep 600", bench.path("runs").display());
    for runs in 1..=3 {
        bench.start_with("conf", "x", Some(&command));
        until(|| bench.read("runs").is_some_and(|text| text.lines().count() == runs)).await;
        bench.end().await;
    }
    bench.restart_until_ready(Some(&command)).await;
    assert_eq!(bench.read("runs").unwrap().lines().count(), 3);
    assert_eq!(bench.read(MARKER), None);
}

#[tokio::test]
async fn a_template_that_no_longer_has_a_command_forgets_it() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.start_with("conf", "x", Some("false"));
    until(|| bench.reason("conf").contains("it ended with code 1")).await;
    bench.restart_until_ready(None).await;
    assert_eq!(bench.read(MARKER), None);
    let line = bench.line();
    bench.restart_until_ready(Some(&line)).await;
    assert_eq!(bench.read("runs"), None);
}

/// The file beside it has changed, and another could not be written. When that one is as it was again, nothing is left to write.
#[tokio::test]
async fn a_command_stays_pending_after_a_write_that_failed_halfway() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    std::fs::write(bench.path("input"), "one").unwrap();
    let place = |name: &str| bench.path(name).display().to_string();
    let text = format!(
        "{{{{ file \"{}\" | writeToFile \"{}\" \"\" \"\" \"0600\" }}}}{{{{ \"b\" | writeToFile \"{}\" \"\" \"\" \"0600\" }}}}x",
        place("input"),
        place("a"),
        place("b")
    );
    let line = bench.line();
    bench.start_every("conf", &text, Some(&line), Duration::from_millis(50));
    until(|| bench.read("runs").as_deref() == Some("ran\n") && bench.reason("conf").is_empty()).await;

    std::fs::rename(bench.path("b"), bench.path("kept")).unwrap();
    std::fs::create_dir(bench.path("b")).unwrap();
    std::fs::write(bench.path("input"), "two").unwrap();
    until(|| bench.reason("conf").contains("is a folder")).await;
    assert_eq!((bench.read("a").as_deref(), bench.read("runs").as_deref()), (Some("two"), Some("ran\n")));
    std::fs::remove_dir(bench.path("b")).unwrap();
    std::fs::rename(bench.path("kept"), bench.path("b")).unwrap();
    until(|| bench.reason("conf").is_empty()).await;
    assert_eq!(bench.read("runs").as_deref(), Some("ran\nran\n"));
    assert_eq!(bench.read(MARKER), None);
}

#[tokio::test]
async fn templates_that_change_together_run_their_command_once() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    std::fs::write(bench.path("input"), "one").unwrap();
    let names = ["a", "b", "c"];
    let all = names.map(|name| bench.path(name).display().to_string()).join(" ");
    let line = format!("PATH=/usr/bin:/bin; cat {all} >> {}", bench.path("runs").display());
    let text = format!("{{{{ file \"{}\" }}}};", bench.path("input").display());
    for name in names {
        bench.start_every(name, &text, Some(&line), Duration::from_millis(50));
    }
    let runs = |outcome: &str| {
        names.map(|name| bench.metric("template_commands_total", &format!("template=\"{name}\",outcome=\"{outcome}\"")))
    };
    until(|| runs("ok") == [1; 3]).await;
    assert_eq!(bench.read("runs").as_deref(), Some("one;one;one;"), "after the last of them was written");
    std::fs::write(bench.path("input"), "two").unwrap();
    until(|| runs("ok") == [2; 3]).await;
    assert_eq!(bench.read("runs").as_deref(), Some("one;one;one;two;two;two;"));
    assert_eq!(runs("failed"), [0; 3]);
    until(|| names.iter().all(|name| bench.reason(name).is_empty())).await;
    for name in names {
        assert_eq!(bench.read(&format!(".{name}.command-pending")), None);
    }
}

/// Each has its marker, so that the next agent repeats it for all of them, and once.
#[tokio::test]
async fn a_command_of_several_templates_that_failed_is_repeated_after_a_restart_and_once() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let names = ["a", "b"];
    for name in names {
        bench.start_with(name, "x", Some("false"));
    }
    until(|| names.iter().all(|name| bench.reason(name).contains("it ended with code 1"))).await;
    for name in names {
        assert_eq!(std::fs::metadata(bench.path(&format!(".{name}.command-pending"))).unwrap().len(), 0, "{name}");
    }
    bench.end().await;
    let line = bench.line();
    for name in names {
        bench.start_with(name, "x", Some(&line));
    }
    until(|| bench.read("runs").is_some()).await;
    until(|| names.iter().all(|name| bench.read(&format!(".{name}.command-pending")).is_none())).await;
    assert_eq!(bench.read("runs").as_deref(), Some("ran\n"));
}

#[test]
fn a_reload_that_corrects_a_failed_command_runs_it() {
    run_in_network_namespace(|| {
        let world = crate::harness::world::World::start();
        let more = "[template.conf]\ncontents = \"x\"\ndestination = \"FOLDER/conf\"\nrequired = false\n\
                    command = [\"exit 3\"]\nshell = true\n";
        let agent = Agent::ready(&world, &[("PATH", "/usr/bin:/bin")], |text| text + more);
        agent.logs("ended with code 3");
        agent.edit(|text| text.replace("exit 3", "echo ran >> FOLDER/runs"));
        agent.reload("ok");
        eventually(Duration::from_secs(30), || match std::fs::read_to_string(agent.path("runs")) {
            Ok(text) if text == "ran\n" => Ok(()),
            other => Err(format!("{other:?}: {}", agent.binary.output())),
        });
    });
}
