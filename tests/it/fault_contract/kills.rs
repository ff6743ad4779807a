//! SIGKILL, and errors of fsync, at the system calls that write a sink and a state file.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use keyward_emulators::secrets::{Operation, Role};
use rustix::process::{Pid, Signal, kill_process};

use super::backups;
use super::case::{Case, Setup, case};
use super::record::{Invariant, is_full_run, not_run};
use crate::harness::binary::{ask, eventually};

/// A strace that is attached to the agent.
pub(super) struct Tracer(Child);

impl Tracer {
    /// Attaches to all threads of a process; `injection` comes at the `nth` call of this name in each of them.
    pub(super) fn attach(process: u32, call: &str, injection: &str, nth: u32) -> Self {
        eventually(Duration::from_mins(2), || {
            let tracer = Self::spawn(process, call, injection, nth);
            // It misses a thread that another one begins meanwhile, before it is traced itself.
            let attached = (0..200).any(|_| {
                std::thread::sleep(Duration::from_millis(20));
                is_traced(process)
            });
            if attached { Ok(tracer) } else { Err("strace is not attached".to_owned()) }
        })
    }

    fn spawn(process: u32, call: &str, injection: &str, nth: u32) -> Self {
        let child = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-p", &process.to_string()])
            .args(["-e", &format!("trace={call}"), "-e", &format!("inject={call}:{injection}:when={nth}")])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

/// Returns true if all threads of a process are traced.
fn is_traced(process: u32) -> bool {
    let mut threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.all(|thread| {
        let text = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap_or_default();
        !text.contains("TracerPid:\t0\n")
    })
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // Strace detaches in order; a tracer that is killed may leave a thread stopped.
        if let Some(id) = Pid::from_raw(self.0.id().cast_signed()) {
            let _ = kill_process(id, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// Returns why no process can be traced here, if so.
fn untraceable() -> Option<String> {
    if !Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return Some("strace is not installed; tests/run --tools brings it".to_owned());
    }
    // Neither is a child of the other, as in the case itself.
    let attach = "sleep 3 & strace -qq -o /dev/null -e trace=none -p $!; exit $?";
    let mut command = Command::new(if rustix::process::geteuid().is_root() { "sh" } else { "unshare" });
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user", "sh"]);
    }
    let output = command.args(["-c", attach]).stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    (!output.status.success()).then(|| format!("strace cannot attach to a process: {}", error.trim()))
}

/// The calls after which the files differ, as `atomic_file` makes them: create, write, mode, sync, rename, sync of the folder. SIGKILL
/// at the entry of one leaves the effects of the calls before it. One thread makes all calls of a write.
const CALLS: [(&str, u32); 5] = [("flock", 1), ("fchmod", 1), ("fsync", 1), ("renameat", 1), ("fsync", 2)];

pub(super) const SIGKILL: &str = "signal=SIGKILL";

/// Temporary files of a file in the folder `disk`.
pub(super) fn temporary(case: &Case, of: &str) -> Vec<String> {
    let (prefix, lock) = (format!(".{of}."), format!(".{of}.lock"));
    let names = std::fs::read_dir(case.path("disk")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&prefix) && *name != lock).collect()
}

/// Fails unless the temporary files of a file have been removed.
pub(super) fn is_swept(case: &Case, of: &str) -> Result<(), String> {
    match temporary(case, of) {
        names if names.is_empty() => Ok(()),
        names => Err(format!("{names:?}: {}", case.output())),
    }
}

/// Makes the agent detect that its token is revoked; the response is lost if the agent is killed meanwhile.
fn revoke(case: &Case) {
    case.secrets().faults().revoke_all();
    let _ = ask(&case.path("api.sock"), "POST", "/agent/v1/check");
}

pub(super) fn edit_config(case: &Case, edit: impl FnOnce(&str) -> String) {
    let text = std::fs::read_to_string(case.path("keyward.toml")).unwrap();
    case.put("keyward.toml", &edit(&text));
}

/// Kills the agent at a call of the next write.
fn kill_at(case: &mut Case, call: &str, nth: u32) {
    case.expect(|expected| (expected.up, expected.serves) = (false, false));
    let tracer = Tracer::attach(case.agent().id(), call, SIGKILL, nth);
    revoke(case);
    let status = case.agent.as_mut().unwrap().wait(Duration::from_mins(1));
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{call}: {status}");
    drop(tracer);
    case.agent = None;
}

/// Kills at each call of a sink's write. Returns the number of temporary files that were left.
fn kill_writes_of_the_sink(case: &mut Case) -> usize {
    let mut left = 0;
    for (call, nth) in CALLS {
        case.start();
        case.until_ready();
        eventually(Duration::from_secs(10), || case.sink_is_newest());
        let old = std::fs::read_to_string(&case.sink).unwrap();
        kill_at(case, call, nth);
        let found = std::fs::read_to_string(&case.sink).unwrap();
        let whole = found == old || case.secrets().remaining(&found).is_some();
        let text = format!("a kill at {call} {nth} leaves {} bytes that are neither token", found.len());
        case.record.check(Invariant::AtomicSinks, (!whole).then_some(text));
        left += temporary(case, "token").len();
    }
    left
}

/// Kills at each call of a state file's write. The next process takes the file, and needs the login that the dead token asks for.
fn kill_writes_of_the_state(case: &mut Case) -> usize {
    let mut left = 0;
    for (call, nth) in CALLS {
        // The logins of each round count for themselves.
        let _ = std::fs::remove_file(case.path("disk/web.state"));
        case.start();
        case.until_ready();
        eventually(Duration::from_secs(10), || {
            std::fs::metadata(case.path("disk/web.state")).map_err(|error| error.to_string())
        });
        kill_at(case, call, nth);
        left += temporary(case, "web.state").len();
        let logins = case.count(Operation::Login);
        case.start();
        case.until_ready();
        eventually(Duration::from_secs(10), || is_swept(case, "web.state"));
        let output = case.output();
        let refused = output.contains("state.refused");
        let text = format!("a kill at {call} {nth} leaves a state file that is not taken: {output}");
        case.record.check(Invariant::AtomicSinks, refused.then_some(text));
        assert!(case.count(Operation::Login) - logins <= 1, "{output}");
        case.expect(|expected| (expected.up, expected.serves) = (false, false));
        case.agent = None;
    }
    left
}

/// Has each fsync of a write fail: first that of the file, then that of the folder.
fn fail_syncs(case: &mut Case, event: &str, of: &str) {
    for nth in [1, 2] {
        // Replaces the old process; the watcher continues.
        case.expect(|expected| (expected.up, expected.serves) = (false, false));
        case.agent = None;
        let _ = std::fs::remove_file(case.path("disk/web.state"));
        case.start();
        case.until_ready();
        case.expect(|expected| expected.serves = true);
        let tracer = Tracer::attach(case.agent().id(), "fsync", "error=EIO", nth);
        revoke(case);
        case.logs(event);
        drop(tracer);
        case.clear(|_| ());
        case.recovers(Duration::from_secs(15));
        eventually(Duration::from_secs(10), || is_swept(case, of));
    }
}

#[test]
fn f32_a_kill_at_any_call_of_a_write_leaves_one_whole_token_and_the_next_start_cleans_up() {
    if let Some(why) = untraceable() {
        not_run("F32", &why);
        return;
    }
    case("F32", |case| {
        std::fs::create_dir(case.path("disk")).unwrap();
        let setup = Setup { role: Role::default(), sink_folder: "FOLDER/disk", ..Setup::default() };
        case.prepare(&setup);
        let whole = std::fs::read_to_string(case.path("keyward.toml")).unwrap();
        // Without saved state the sink is the only file that is written.
        let without_state = |text: &str| {
            let lines = text.lines().filter(|line| !line.starts_with("state_dir") && !line.starts_with("seal_"));
            lines.collect::<Vec<_>>().join("\n")
        };
        edit_config(case, without_state);
        case.inject(|_| ());
        let mut left = kill_writes_of_the_sink(case);
        let mut kills = CALLS.len();
        case.clear(Case::start);
        case.recovers(Duration::from_secs(10));
        case.until_ready();
        eventually(Duration::from_secs(10), || is_swept(case, "token"));
        if is_full_run() {
            fail_syncs(case, "sink.write.failed", "token");
            case.expect(|expected| (expected.up, expected.serves) = (false, false));
            case.agent = None;
            // Without a sink the state file is the only one.
            let state = case.path("disk").display().to_string();
            edit_config(case, |_| {
                let sink = whole.find("[sink.token]").unwrap()..whole.find("[listener.local]").unwrap();
                let text = format!("{}{}", &whole[..sink.start], &whole[sink.end..]);
                let folder = whole.lines().find(|line| line.starts_with("state_dir")).unwrap();
                text.replace(folder, &format!("state_dir = \"{state}\""))
            });
            left += kill_writes_of_the_state(case);
            kills += CALLS.len();
            fail_syncs_of_the_state(case);
            case.record.observe("failed_syncs", 4);
            case.expect(|expected| (expected.up, expected.serves) = (false, false));
            case.agent = None;
            let (more_kills, more_left) = backups::kill_writes(case, &whole);
            (kills, left) = (kills + more_kills, left + more_left);
        }
        case.record.observe("kills", kills);
        case.record.observe("temporary_files_left", left);
    });
}

/// As [`fail_syncs`]; the served token does not depend on the file.
fn fail_syncs_of_the_state(case: &mut Case) {
    for nth in [1, 2] {
        case.expect(|expected| (expected.up, expected.serves) = (false, false));
        case.agent = None;
        let _ = std::fs::remove_file(case.path("disk/web.state"));
        case.start();
        case.until_ready();
        let tracer = Tracer::attach(case.agent().id(), "fsync", "error=EIO", nth);
        let token = case.replace_token();
        case.logs("state.write.failed");
        drop(tracer);
        eventually(Duration::from_secs(10), || is_swept(case, "web.state"));
        let text = case.ask("/agent/v1/token").map(|(_, body)| body).unwrap_or_default();
        assert!(text.contains(&token), "the token is served without its file");
    }
}
