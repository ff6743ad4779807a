//! Files that are replaced as a whole.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyward_machine::atomic_file::{Attributes, Outcome, remove, replace, replace_with_backup_in, sweep, truncate};
use keyward_machine::secure_dir::Dir;
use tempfile::TempDir;

use crate::harness::world::run_in_network_namespace;

const PRIVATE: Attributes = Attributes { mode: 0o600, owner: None, group: None };

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    (folder, file)
}

fn names(folder: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// An error and its causes in one line, as they are logged.
fn format_error(error: impl std::error::Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::from(error))
}

/// Ends the other thread's loop when this thread's part ends, with a panic too.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_file_gets_its_content_and_exactly_its_mode() {
    let (folder, file) = folder();
    for mode in [0o600, 0o640, 0o644, 0o666, 0o400] {
        replace(&file, b"one", &Attributes { mode, ..PRIVATE }).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, mode);
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"one");
    assert_eq!(names(folder.path()), ["token"]);
}

#[test]
fn the_umask_neither_widens_nor_narrows_a_mode() {
    let tests = std::env::current_exe().unwrap();
    for umask in ["000", "077"] {
        let run = std::process::Command::new("sh")
            .arg("-c")
            .arg(format!("umask {umask} && exec \"$0\" --exact \"$1\" \"$2\""))
            .arg(&tests)
            .arg("atomic_file::a_file_gets_its_content_and_exactly_its_mode")
            .arg("atomic_file::t19_no_name_in_the_folder_ever_has_a_wider_mode_than_the_file")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && text.contains("2 passed"), "umask {umask}: {text}");
    }
}

#[test]
fn a_file_that_is_so_already_is_not_touched() {
    let (_folder, file) = folder();
    assert_eq!(replace(&file, b"one", &PRIVATE).unwrap(), Outcome::Written);
    let inode = || std::fs::metadata(&file).unwrap().ino();
    let first = inode();
    assert_eq!(replace(&file, b"one", &PRIVATE).unwrap(), Outcome::Unchanged);
    assert_eq!(inode(), first);
    assert_eq!(replace(&file, b"two", &PRIVATE).unwrap(), Outcome::Written);
    assert_eq!(replace(&file, b"two", &Attributes { mode: 0o640, ..PRIVATE }).unwrap(), Outcome::Written);
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o7777, 0o640);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(replace(&file, b"two", &Attributes { mode: 0o640, ..PRIVATE }).unwrap(), Outcome::Written);
}

#[test]
fn a_hard_link_keeps_the_old_content() {
    let (folder, file) = folder();
    let second = folder.path().join("second");
    replace(&file, b"one", &PRIVATE).unwrap();
    std::fs::hard_link(&file, &second).unwrap();
    assert_eq!(replace(&file, b"one", &PRIVATE).unwrap(), Outcome::Written);
    assert_eq!(std::fs::metadata(&file).unwrap().nlink(), 1);
}

#[test]
fn t18_a_file_that_is_not_regular_is_refused_at_once_and_not_changed() {
    let (folder, file) = folder();
    let victim = folder.path().join("victim");
    std::fs::write(&victim, "theirs").unwrap();
    let check = |make: &dyn Fn(), expected: &str| {
        make();
        let start = tokio::time::Instant::now();
        for error in [
            replace(&file, b"one", &PRIVATE).unwrap_err(),
            truncate(&file, &PRIVATE).unwrap_err(),
            remove(&file).unwrap_err(),
        ] {
            let text = format_error(error);
            assert!(text.contains(expected) && text.contains("token is "), "{text}");
        }
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(std::fs::read(&victim).unwrap(), b"theirs");
        assert_eq!(names(folder.path()), ["token", "victim"]);
    };
    check(&|| symlink(&victim, &file).unwrap(), "a symlink, not a regular file; remove it or choose another path");
    std::fs::remove_file(&file).unwrap();
    let fifo = || {
        let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
        assert!(made.success());
    };
    check(&fifo, "a FIFO, not");
    std::fs::remove_file(&file).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(&file).unwrap();
    check(&|| (), "a socket, not");
    std::fs::remove_file(&file).unwrap();
    check(&|| std::fs::create_dir(&file).unwrap(), "a folder, not");
    let device = replace(Path::new("/dev/null"), b"one", &PRIVATE).unwrap_err();
    assert!(format_error(device).contains("/dev/null is a device"));
}

#[test]
fn a_folder_that_cannot_be_used_is_reported_with_advice() {
    let (folder, _) = folder();
    let check = |path: PathBuf, expected: &str| {
        let text = format_error(replace(&path, b"one", &PRIVATE).unwrap_err());
        assert!(text.contains(expected), "{text}");
    };
    check(folder.path().join("gone/token"), "/gone; it must be there");
    std::fs::write(folder.path().join("file"), "").unwrap();
    check(folder.path().join("file/token"), "Not a directory");
    check(folder.path().join(".."), "does not name a file");
    check(PathBuf::from("/"), "does not name a file");
    check(folder.path().join("a".repeat(250)), "cannot create a file beside");
    assert_eq!(remove(&folder.path().join("gone/token")).unwrap(), Outcome::Unchanged);
    assert_eq!(truncate(&folder.path().join("gone/token"), &PRIVATE).unwrap(), Outcome::Unchanged);
}

#[test]
fn a_symlink_on_the_way_is_followed_only_where_root_alone_could_have_placed_it() {
    let (folder, _) = folder();
    std::fs::create_dir(folder.path().join("real")).unwrap();
    symlink(folder.path().join("real"), folder.path().join("link")).unwrap();
    let through = folder.path().join("link/token");
    if rustix::process::geteuid().is_root() {
        replace(&through, b"one", &PRIVATE).unwrap();
        assert_eq!(names(&folder.path().join("real")), ["token"]);
    }
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let text = format_error(replace(&through, b"two", &PRIVATE).unwrap_err());
    assert!(text.contains("the symlink link, which users other than root could have created"), "{text}");
    symlink("loop", folder.path().join("loop")).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    replace(&folder.path().join("loop/token"), b"one", &PRIVATE).unwrap_err();
}

#[test]
fn an_owner_is_set_or_the_missing_permission_is_reported() {
    let (folder, file) = folder();
    let attributes = Attributes { mode: 0o440, owner: Some(12345), group: Some(23456) };
    match replace(&file, b"one", &attributes) {
        Ok(outcome) => {
            assert_eq!(outcome, Outcome::Written);
            let found = std::fs::metadata(&file).unwrap();
            assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (12345, 23456, 0o440));
            assert_eq!(replace(&file, b"one", &attributes).unwrap(), Outcome::Unchanged);
            assert_eq!(replace(&file, b"one", &Attributes { group: Some(1), ..attributes }).unwrap(), Outcome::Written);
        }
        Err(error) => {
            assert!(!rustix::process::geteuid().is_root());
            let text = format_error(error);
            assert!(text.contains("CAP_CHOWN") && text.contains("Operation not permitted"), "{text}");
            assert!(names(folder.path()).is_empty(), "a temporary file was left");
        }
    }
}

#[test]
fn emptied_and_removed_files_are_so_and_absent_ones_stay_away() {
    let (folder, file) = folder();
    assert_eq!(truncate(&file, &PRIVATE).unwrap(), Outcome::Unchanged);
    assert_eq!(remove(&file).unwrap(), Outcome::Unchanged);
    assert!(names(folder.path()).is_empty());
    replace(&file, b"one", &PRIVATE).unwrap();
    assert_eq!(truncate(&file, &PRIVATE).unwrap(), Outcome::Written);
    assert_eq!(std::fs::read(&file).unwrap(), b"");
    assert_eq!(truncate(&file, &PRIVATE).unwrap(), Outcome::Unchanged);
    assert_eq!(remove(&file).unwrap(), Outcome::Written);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn abandoned_temporary_files_are_deleted_at_once() {
    let (folder, file) = folder();
    let make = |name: &str| {
        let path = folder.path().join(name);
        std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path).unwrap()
    };
    drop(make(".token.0123456789abcdef"));
    let written = make(".token.1123456789abcdef");
    rustix::fs::flock(&written, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    drop((make(".other.0123456789abcdef"), make("token")));
    assert_eq!(sweep(&file).unwrap(), 1);
    assert_eq!(names(folder.path()), [".other.0123456789abcdef", ".token.1123456789abcdef", "token"]);
    drop(written);
    assert_eq!(sweep(&file).unwrap(), 1, "its writer has gone");
}

#[test]
fn t19_no_name_in_the_folder_ever_has_a_wider_mode_than_the_file() {
    let (folder, file) = folder();
    let looked = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = SetOnDrop(&looked);
        scope.spawn(|| {
            let mut turn = 0_u32;
            while !looked.load(Ordering::Acquire) {
                replace(&file, &turn.to_be_bytes(), &PRIVATE).unwrap();
                turn += 1;
            }
        });
        let mut reads = 0;
        while reads < 2000 {
            for entry in std::fs::read_dir(folder.path()).unwrap().flatten() {
                // It may have its last name by now.
                let Ok(found) = std::fs::symlink_metadata(entry.path()) else { continue };
                assert_eq!(found.mode() & 0o077, 0, "{} has the mode {:o}", entry.path().display(), found.mode());
                reads += 1;
            }
        }
    });
}

#[test]
fn a_sweep_takes_nothing_from_a_writer() {
    let (_folder, file) = folder();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _end = SetOnDrop(&done);
            for turn in 0..300_u32 {
                replace(&file, &turn.to_be_bytes(), &PRIVATE).unwrap();
            }
        });
        while !done.load(Ordering::Acquire) {
            sweep(&file).unwrap();
        }
    });
    assert_eq!(std::fs::read(&file).unwrap(), 299_u32.to_be_bytes());
}

#[test]
fn t20_a_reader_sees_the_old_content_or_the_new_and_never_a_part() {
    let (_folder, file) = folder();
    let contents = [vec![b'a'; 8192], vec![b'b'; 2048]];
    replace(&file, &contents[0], &PRIVATE).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _end = SetOnDrop(&done);
            for turn in 0..500 {
                replace(&file, &contents[turn % 2], &PRIVATE).unwrap();
            }
        });
        let mut reads = 0_u32;
        while !done.load(Ordering::Acquire) || reads < 100 {
            let found = std::fs::read(&file).unwrap();
            assert!(contents.contains(&found), "a reader saw {} bytes", found.len());
            reads += 1;
        }
    });
}

#[test]
fn t17_swapping_the_folder_or_the_file_for_a_symlink_redirects_no_write() {
    let (base, _) = folder();
    let base = base.path();
    std::fs::set_permissions(base, std::fs::Permissions::from_mode(0o777)).unwrap();
    let [real, aside, outside] = ["real", "aside", "outside"].map(|name| base.join(name));
    std::fs::create_dir(&real).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("victim"), "theirs").unwrap();
    std::fs::write(outside.join("token"), "theirs too").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                std::fs::rename(&real, &aside).unwrap();
                symlink(&outside, &real).unwrap();
                std::fs::remove_file(&real).unwrap();
                std::fs::rename(&aside, &real).unwrap();
                let token = real.join("token");
                let _ = std::fs::remove_file(&token);
                let _ = symlink(outside.join("victim"), &token);
                let _ = std::fs::remove_file(&token);
                let _ = std::fs::create_dir(&token);
                let _ = std::fs::remove_dir(&token);
            }
        });
        let end = SetOnDrop(&done);
        let mut written = 0;
        for turn in 0..5_000_u32 {
            written += u32::from(replace(&real.join("token"), turn.to_string().as_bytes(), &PRIVATE).is_ok());
        }
        drop(end);
        assert!(written > 0, "nothing was ever written");
    });
    assert_eq!(std::fs::read(outside.join("victim")).unwrap(), b"theirs");
    assert_eq!(std::fs::read(outside.join("token")).unwrap(), b"theirs too");
    assert_eq!(names(&outside), ["token", "victim"]);
    assert!(names(&real).iter().all(|name| name == "token"), "temporary files were left: {:?}", names(&real));
}

#[test]
fn a_backup_is_the_file_before_with_its_mode_and_stays_where_nothing_changes() {
    let (folder, file) = folder();
    let backup = folder.path().join("token.bak");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let with_backup = |bytes: &[u8], attributes: &Attributes| {
        replace_with_backup_in(&Dir::open(folder.path()).unwrap(), &file, bytes, attributes)
    };
    assert_eq!(with_backup(b"one", &PRIVATE).unwrap(), Outcome::Written);
    assert_eq!(names(folder.path()), ["token"], "there was nothing before");
    let wide = Attributes { mode: 0o640, ..PRIVATE };
    for (bytes, before) in [("two", "one"), ("three", "two")] {
        assert_eq!(with_backup(bytes.as_bytes(), &wide).unwrap(), Outcome::Written);
        assert_eq!((read(&file), read(&backup)), (bytes.to_owned(), before.to_owned()));
        assert_eq!(with_backup(bytes.as_bytes(), &wide).unwrap(), Outcome::Unchanged);
        assert_eq!(read(&backup), before, "what did not change has no new copy");
    }
    assert_eq!(std::fs::metadata(&backup).unwrap().permissions().mode() & 0o7777, 0o640);
    assert_eq!(std::fs::metadata(&file).unwrap().nlink(), 1);
    assert_eq!(names(folder.path()), ["token", "token.bak"], "nothing else is left");
    // A try that broke off between the two steps.
    std::fs::remove_file(&backup).unwrap();
    std::fs::hard_link(&file, &backup).unwrap();
    assert_eq!(with_backup(b"four", &wide).unwrap(), Outcome::Written);
    assert_eq!((read(&file), read(&backup)), ("four".to_owned(), "three".to_owned()));
    assert_eq!(names(folder.path()), ["token", "token.bak"]);
}

#[test]
fn a_file_that_is_mounted_by_itself_is_not_replaced_and_the_error_says_so() {
    run_in_network_namespace(|| {
        let (_folder, file) = folder();
        std::fs::write(&file, "old").unwrap();
        let mounted = std::process::Command::new("mount").arg("--bind").args([&file, &file]).status().unwrap();
        assert!(mounted.success());
        let error = format_error(replace(&file, b"new", &PRIVATE).unwrap_err());
        assert!(error.contains("it is a mount point") && error.contains("mount its folder instead"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
    });
}
