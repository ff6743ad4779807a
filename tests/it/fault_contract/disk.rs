//! Sinks whose disk is full or read-only, and whose folder or file others replace.

use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::case::{Case, Setup, case};
use super::record::{is_full_run, not_run};
use crate::harness::binary::eventually;

/// A lease that needs no renewal within a case.
fn setup() -> Setup<'static> {
    let role = keyward_emulators::secrets::Role::default();
    let sections = "[sink.more]\npath = \"FOLDER/more\"\n";
    Setup { role, session: "check_interval = \"off\"", sink_folder: "FOLDER/disk", sections, ..Setup::default() }
}

fn run(command: &str, path: &Path) {
    let mut words = command.split(' ');
    let status = Command::new(words.next().unwrap()).args(words).arg(path).status().unwrap();
    assert!(status.success(), "{command} {}", path.display());
}

/// Starts an agent whose sink is on a separate file system.
fn with_disk(case: &mut Case, size: &str) {
    let disk = case.path("disk");
    std::fs::create_dir(&disk).unwrap();
    run(&format!("mount -t tmpfs -o mode=0700,{size} tmpfs"), &disk);
    case.ready(&setup());
}

/// Waits until the sink is reported as failing.
fn fails(case: &mut Case, reason: &str) {
    fails_within(case, reason, Duration::from_secs(2));
}

fn fails_within(case: &mut Case, reason: &str, limit: Duration) {
    case.shows("noticed_s", limit, |case| match case.ask("/readyz")? {
        (503, body) if body.contains("sink/token") && body.contains(reason) => Ok(()),
        other => Err(format!("{other:?}: {}", case.output())),
    });
    case.shows("metric_s", Duration::from_secs(2), |case| {
        let (_, metrics) = case.ask("/metrics")?;
        if metrics.contains("keyward_sink_state{sink=\"token\"} 2") { Ok(()) } else { Err(metrics) }
    });
}

/// The sink keeps the whole old token while another sink has the new one, and no other file remains.
fn old_stays(case: &Case, old: &str, new: &str) {
    assert_eq!(std::fs::read_to_string(&case.sink).unwrap(), old);
    eventually(Duration::from_secs(10), || match std::fs::read_to_string(case.path("more")) {
        Ok(text) if text == new => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let disk = std::fs::read_dir(case.path("disk")).unwrap();
    let temporary = disk.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let temporary: Vec<_> = temporary.filter(|name| name.starts_with(".token.") && name != ".token.lock").collect();
    assert!(temporary.is_empty(), "{temporary:?}");
}

/// A case about a disk: `damage` it, get a new token, `repair` it.
fn disk_case(case: &mut Case, size: &str, reason: &str, damage: impl FnOnce(&Path), repair: impl FnOnce(&Path)) {
    with_disk(case, size);
    let old = std::fs::read_to_string(&case.sink).unwrap();
    let disk = case.path("disk");
    case.inject(|_| damage(&disk));
    let new = case.replace_token();
    fails(case, reason);
    old_stays(case, &old, &new);
    std::thread::sleep(Duration::from_secs(3));
    case.clear(|_| repair(&disk));
    // The next try is at most twice as far away as the fault has lasted, and a second more.
    let limit = case.injected.as_ref().unwrap().at.elapsed() * 2 + Duration::from_secs(1);
    case.writes(limit);
    case.recovers(limit + Duration::from_secs(2));
}

#[test]
fn f26_a_full_disk_leaves_the_old_token_whole_and_other_sinks_alone() {
    case("F26", |case| {
        let fill = |disk: &Path| {
            let error = std::fs::write(disk.join("filler"), vec![0; 1 << 20]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        };
        disk_case(case, "size=64k", "space", fill, |disk| std::fs::remove_file(disk.join("filler")).unwrap());
    });
}

#[test]
fn f27_a_disk_without_inodes_leaves_the_old_token_whole_and_other_sinks_alone() {
    case("F27", |case| {
        let file = |disk: &Path, number: usize| disk.join(format!("filler-{number}"));
        let fill = |disk: &Path| {
            while (0..64).any(|number| !file(disk, number).exists() && std::fs::write(file(disk, number), "").is_ok()) {
            }
        };
        disk_case(case, "size=1m,nr_inodes=16", "space", fill, |disk| {
            for number in 0..64 {
                let _ = std::fs::remove_file(file(disk, number));
            }
        });
    });
}

/// Puts a read-only view of the folder over it: a file system with open files cannot become read-only on demand.
fn read_only(disk: &Path) {
    let path = disk.to_str().unwrap();
    run(&format!("mount --bind {path}"), disk);
    run("mount -o remount,bind,ro", disk);
}

fn writable(disk: &Path) {
    run("umount --lazy", disk);
}

#[test]
fn f28_a_disk_that_becomes_read_only_is_written_again_once_it_is_writable() {
    case("F28", |case| disk_case(case, "size=1m", "ead-only", read_only, writable));
}

#[test]
fn f29_a_folder_made_again_for_another_owner_gets_no_token_until_it_is_ours() {
    if !rustix::process::geteuid().is_root() {
        not_run("F29", "it gives a folder to another user, which needs root");
        return;
    }
    case("F29", |case| {
        let disk = case.path("disk");
        std::fs::create_dir(&disk).unwrap();
        case.ready(&setup());
        let moved = case.path("gone");
        case.inject(|_| {
            std::fs::rename(&disk, &moved).unwrap();
            std::fs::remove_dir_all(&moved).unwrap();
        });
        let new = case.replace_token();
        fails(case, "disk");
        std::fs::create_dir(&moved).unwrap();
        chown(&moved, Some(12345), Some(12345)).unwrap();
        std::fs::rename(&moved, &disk).unwrap();
        fails(case, "owner 12345");
        std::thread::sleep(Duration::from_secs(3));
        assert!(!case.sink.exists(), "a folder of another user has the token");
        case.clear(|_| chown(&disk, Some(0), Some(0)).unwrap());
        case.writes(Duration::from_secs(20));
        assert_eq!(case.recovers(Duration::from_secs(20)), new);
    });
}

/// An output that others change again and again is looked at with growing pauses.
const AGAIN: Duration = Duration::from_secs(10);

#[test]
fn f30_a_file_that_replaces_a_sink_is_neither_followed_nor_written() {
    case("F30", |case| {
        std::fs::create_dir(case.path("disk")).unwrap();
        case.ready(&setup());
        let (sink, victim) = (case.sink.clone(), case.path("victim"));
        std::fs::write(&victim, "of others").unwrap();
        case.inject(|_| ());
        let place = |made: &dyn Fn(&Path)| {
            let next_file = sink.with_file_name("beside");
            made(&next_file);
            std::fs::rename(&next_file, &sink).unwrap();
        };
        place(&|path| symlink(&victim, path).unwrap());
        fails(case, "symlink");
        std::fs::remove_file(&sink).unwrap();
        eventually(Duration::from_secs(30), || case.sink_is_newest());
        case.until_ready();
        place(&|path| run("mkfifo", path));
        fails_within(case, "not a regular file", AGAIN);
        std::fs::remove_file(&sink).unwrap();
        eventually(Duration::from_secs(30), || case.sink_is_newest());
        case.until_ready();
        let old = sink.with_file_name("old");
        std::fs::create_dir(sink.with_file_name("folder")).unwrap();
        std::fs::rename(&sink, &old).unwrap();
        // The agent may be quicker; then its file goes.
        while std::fs::rename(sink.with_file_name("folder"), &sink).is_err() {
            let _ = std::fs::remove_file(&sink);
        }
        fails_within(case, "not a regular file", AGAIN);
        std::fs::remove_file(&old).unwrap();
        case.clear(|_| std::fs::remove_dir(&sink).unwrap());
        case.writes(Duration::from_secs(10));
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "of others", "the link was followed");
        case.recovers(Duration::from_secs(20));
    });
}

/// Length of a failure that is long.
const LONG: Duration = Duration::from_mins(5);

#[test]
fn f31_a_sink_that_may_not_be_written_for_long_costs_neither_memory_nor_a_full_log() {
    case("F31", |case| {
        std::fs::create_dir(case.path("disk")).unwrap();
        case.ready(&setup());
        // Root may write everywhere, but not on a read-only file system.
        let disk = case.path("disk");
        case.inject(|_| read_only(&disk));
        // Each new token is tried at once.
        for _ in 0..3 {
            case.replace_token();
            std::thread::sleep(Duration::from_secs(2));
        }
        fails(case, "ead-only");
        if is_full_run() {
            std::thread::sleep(LONG);
        }
        let failures = case.output().matches("sink.write.failed").count();
        case.record.observe("lines_of_the_failure", failures);
        assert_eq!(failures, 1, "{}", case.output());
        // The next try is at most a minute away.
        let limit = Duration::from_secs(if is_full_run() { 65 } else { 15 });
        case.clear(|_| writable(&disk));
        case.writes(limit);
        case.recovers(limit + Duration::from_secs(5));
    });
}
