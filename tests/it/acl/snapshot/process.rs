//! `keyward acl backup` and `restore` with a service as a process, which is killed in the middle.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::{read, written};
use crate::acl::server_process::serve;
use crate::harness::binary::{eventually, run};

fn ok(arguments: &[&str]) -> String {
    let (code, out, error) = run(arguments, &[]);
    assert_eq!((code, error.as_str()), (0, ""), "{arguments:?}: {out}");
    out
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_backup_can_be_restored() {
    let folder = tempfile::tempdir().unwrap();
    let (service, address) = serve(folder.path(), "127.0.0.1:0", &[]);
    let (root, file) = (folder.path().join("root.token"), folder.path().join("all.snapshot"));
    ok(&["acl", "bootstrap", "--address", &address, "--out", text(&root)]);
    let by = ["--address", address.as_str(), "--token-file", text(&root)];
    let as_root = |words: &[&str]| ok(&[words, &by].concat());
    let refused = |words: &[&str], by: &[&str]| {
        let (code, out, error) = run(&[words, by].concat(), &[]);
        assert_eq!(out, "", "{words:?}");
        (code, error)
    };

    let stdout = as_root(&["acl", "backup", "--out", text(&file)]);
    assert!(stdout.contains(" records are in "), "{stdout}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    let snapshot = std::fs::read(&file).unwrap();
    let records = read(&snapshot).1.len();
    let mut to_stdout = std::process::Command::new(env!("CARGO_BIN_EXE_keyward"));
    let to_stdout = to_stdout.args(["acl", "backup", "--out", "-"]).args(by).output().unwrap();
    assert_eq!(String::from_utf8(to_stdout.stderr).unwrap(), format!("note: {records} records\n"));
    assert!(to_stdout.status.success() && read(&to_stdout.stdout).1 == read(&snapshot).1);

    as_root(&["acl", "role", "create", "late"]);
    let stdout = as_root(&["acl", "restore", text(&file), "--format", "json"]);
    assert!(stdout.contains(&format!("\"Records\": {records}")), "{stdout}");
    let (code, error) = refused(&["acl", "role", "read", "late"], &by);
    assert_eq!(code, 8, "{error}");

    // A failed backup leaves an existing file intact.
    let none = ["--address", address.as_str()];
    let (code, error) = refused(&["acl", "backup", "--out", text(&file)], &none);
    assert!(code == 6 && error.contains("operator:write"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), snapshot);
    // A later backup replaces an earlier one; a file of another kind is replaced only by force.
    as_root(&["acl", "backup", "--out", text(&file)]);
    let secret = std::fs::read(&root).unwrap();
    let (code, error) = refused(&["acl", "backup", "--out", text(&root)], &by);
    assert!(code == 1 && error.contains("is not a snapshot") && error.contains("--force"), "{error}");
    assert_eq!(std::fs::read(&root).unwrap(), secret);
    let other = folder.path().join("other");
    std::fs::write(&other, "").unwrap();
    as_root(&["acl", "backup", "--force", "--out", text(&other)]);
    assert_eq!(read(&std::fs::read(&other).unwrap()).1.len(), records);
    let damaged = folder.path().join("damaged");
    std::fs::write(&damaged, &snapshot[..snapshot.len() / 2]).unwrap();
    let (code, error) = refused(&["acl", "restore", text(&damaged)], &by);
    assert!(code == 2 && error.contains("truncated"), "{error}");
    let (code, error) = refused(&["acl", "restore", "/no/such/file"], &by);
    assert!(code == 1 && error.contains("/no/such/file"), "{error}");
    let (status, output) = service.stop();
    assert_eq!(status.code(), Some(0));
    let secret = std::fs::read_to_string(&root).unwrap();
    assert!(output.contains("acl.snapshot.taken") && output.contains("snapshot.restore"), "{output}");
    assert!(!output.contains(secret.trim()));
    let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with(".all")), "nothing half-written is left");
}

/// Adds many records to a snapshot.
fn enlarge(snapshot: &[u8], records: usize, length: usize) -> Vec<u8> {
    let (header, mut there) = read(snapshot);
    there.extend((0..records).map(|number| (format!("zone/{number:09}"), vec![b'x'; length])));
    written(&header, &there)
}

#[test]
fn a_service_killed_during_a_restore_stays_locked_until_the_next_restore() {
    let folder = tempfile::tempdir().unwrap();
    let (service, address) = serve(folder.path(), "127.0.0.1:0", &[]);
    let (root, file) = (folder.path().join("root.token"), folder.path().join("all.snapshot"));
    ok(&["acl", "bootstrap", "--address", &address, "--out", text(&root)]);
    ok(&["acl", "backup", "--out", text(&file), "--address", &address, "--token-file", text(&root)]);
    std::fs::write(&file, enlarge(&std::fs::read(&file).unwrap(), 20_000, 200)).unwrap();
    drop(service);

    let mut shut = 0;
    // Kill times from before the first change to after the last.
    for millis in [0, 900, 1100, 1500] {
        let (mut service, address) = serve(folder.path(), "127.0.0.1:0", &[]);
        let by = ["--address", address.as_str(), "--token-file", text(&root)];
        std::thread::scope(|threads| {
            let restore = threads.spawn(|| run(&[&["acl", "restore", text(&file)][..], &by].concat(), &[]));
            eventually(Duration::from_secs(30), || {
                let output = service.output();
                if output.contains("acl.restore.started") { Ok(()) } else { Err(output) }
            });
            std::thread::sleep(Duration::from_millis(millis));
            service.signal(Signal::KILL);
            service.wait(Duration::from_secs(10));
            let (code, _, error) = restore.join().unwrap();
            assert!(code == 0 || error.contains("restore again with the same token"), "{error}");
        });
        drop(service);
        let (service, address) = serve(folder.path(), "127.0.0.1:0", &[]);
        let by = ["--address", address.as_str(), "--token-file", text(&root)];
        let (code, _, error) = run(&[&["acl", "whoami"][..], &by].concat(), &[]);
        if code != 0 {
            assert!(code == 75 && error.contains("restore is in progress"), "{error}");
            service.logs("acl.restore.unfinished");
            shut += 1;
        }
        if millis != 900 {
            // Once a new restore follows an interrupted one, otherwise this one completes it.
            ok(&[&["acl", "restore", text(&file)][..], &by].concat());
            ok(&[&["acl", "whoami"][..], &by].concat());
            let (taken, expected) = (folder.path().join("again"), std::fs::read(&file).unwrap());
            ok(&[&["acl", "backup", "--out", text(&taken)][..], &by].concat());
            assert!(read(&std::fs::read(&taken).unwrap()).1 == read(&expected).1);
        }
    }
    // The first one is killed before any change; the progress of the others is random.
    assert!(shut >= 1, "{shut} restores broke off");
}

#[test]
fn a_large_snapshot_is_exported_and_restored_in_bounded_memory() {
    const RECORDS: usize = 4000;
    const LENGTH: usize = 30_000;
    let folder = tempfile::tempdir().unwrap();
    let (service, address) = serve(folder.path(), "127.0.0.1:0", &[]);
    let (root, file) = (folder.path().join("root.token"), folder.path().join("all.snapshot"));
    ok(&["acl", "bootstrap", "--address", &address, "--out", text(&root)]);
    let by = ["--address", address.as_str(), "--token-file", text(&root)];
    ok(&[&["acl", "backup", "--out", text(&file)][..], &by].concat());
    std::fs::write(&file, enlarge(&std::fs::read(&file).unwrap(), RECORDS, LENGTH)).unwrap();
    let peak = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", service.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    };
    let before = peak();
    ok(&[&["acl", "restore", text(&file)][..], &by].concat());
    let restored = peak();
    let taken = folder.path().join("again");
    ok(&[&["acl", "backup", "--out", text(&taken)][..], &by].concat());
    let length = |path: &Path| std::fs::metadata(path).unwrap().len();
    assert!(length(&taken).abs_diff(length(&file)) < 100, "the same, but for digits of its header");
    let (grew, grew_more) = (restored - before, peak() - restored);
    assert!(grew < RECORDS * LENGTH / 2, "{grew} bytes for {} bytes", RECORDS * LENGTH);
    assert!(grew_more < 32 * 1024 * 1024, "{grew_more} bytes");
}
