//! Socket files on their way to their path.

use super::*;

/// Returns the inode of the only file in a folder.
fn only_inode(folder: &Path) -> u64 {
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(files[0].file_name(), "api.sock");
    std::os::unix::fs::DirEntryExt::ino(&files[0])
}

#[test]
fn a_file_that_is_dropped_before_it_is_final_leaves_the_running_socket_at_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let socket = UnixSocket { path: folder.path().join("api.sock"), mode: 0o600, owner: None, group: None };
    let (_running, running_file) = bind(&socket).unwrap();
    assert!(!socket.path.exists());
    running_file.place().unwrap();
    let running_inode = only_inode(folder.path());
    for is_placed in [false, true] {
        let (_listener, file) = bind(&socket).unwrap();
        assert_eq!(file.folder.stat(Path::new("api.sock")).unwrap().unwrap().st_ino, running_inode);
        if is_placed {
            file.place().unwrap();
            assert_eq!(file.folder.stat(Path::new("api.sock")).unwrap().unwrap().st_ino, file.identity.1);
        }
        drop(file);
        assert_eq!(only_inode(folder.path()), running_inode, "placed: {is_placed}");
        std::os::unix::net::UnixStream::connect(&socket.path).unwrap();
    }

    let (_listener, file) = bind(&socket).unwrap();
    for _ in 0..2 {
        file.place().unwrap();
        file.discard_replaced();
        assert_eq!(only_inode(folder.path()), file.identity.1);
    }
    drop(running_file);
    assert_eq!(only_inode(folder.path()), file.identity.1);
    drop(file);
    assert!(!socket.path.exists());
}

#[test]
fn a_file_is_not_placed_over_one_that_appeared_after_it_was_bound() {
    let folder = tempfile::tempdir().unwrap();
    let socket = UnixSocket { path: folder.path().join("api.sock"), mode: 0o600, owner: None, group: None };
    let (_listener, file) = bind(&socket).unwrap();
    std::fs::write(&socket.path, "precious").unwrap();
    assert_eq!(file.place().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    drop(file);
    only_inode(folder.path());
    assert_eq!(std::fs::read_to_string(&socket.path).unwrap(), "precious");
}

#[test]
fn a_refused_group_of_a_socket_is_named_with_the_setting_that_adds_it() {
    let own = rustix::process::getegid().as_raw();
    let foreign = 4_242_424;
    let user = rustix::process::geteuid().as_raw();
    let check = |owner, group, errno, expected: &str| {
        let socket = UnixSocket { path: "/run/keyward/api.sock".into(), mode: 0o660, owner, group };
        let error = owner_error(&socket, errno);
        assert_eq!(error.kind(), io::Error::from(errno).kind());
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(
        None,
        Some(foreign),
        Errno::PERM,
        "is not in the group 4242424 that the socket is for; set SupplementaryGroups=4242424",
    );
    check(Some(user), Some(foreign), Errno::PERM, "SupplementaryGroups=");
    check(
        Some(user + 1),
        Some(foreign),
        Errno::PERM,
        "may not give the socket to another owner; set `group` without `owner`",
    );
    check(None, Some(own), Errno::PERM, "Operation not permitted");
    check(None, Some(foreign), Errno::ROFS, "Read-only file system");
}
