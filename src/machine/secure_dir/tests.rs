use std::os::unix::fs::{lchown, symlink};

use super::*;

#[test]
fn a_symlink_of_the_user_is_resolved_only_in_a_folder_that_no_other_user_may_write() {
    let root = tempfile::tempdir().unwrap();
    let base = root.path().canonicalize().unwrap();
    let state = base.join("state");
    let target = base.join("config/keyward");
    let link = state.join("keyward");
    std::fs::create_dir_all(&target).unwrap();
    std::fs::create_dir(&state).unwrap();
    symlink("../config/./keyward", &link).unwrap();
    let me = rustix::process::geteuid();
    // Links of root are followed for every user.
    let user = if me.is_root() { 4711 } else { me.as_raw() };
    if me.is_root() {
        lchown(&state, Some(user), None).unwrap();
        lchown(&link, Some(user), None).unwrap();
    }
    let check = |mode: u32, user: u32, expected: Option<&Path>| {
        std::fs::set_permissions(&state, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(resolve(&link, user).ok().as_deref(), expected, "{mode:o} {user}");
        assert!(matches!(Dir::open(&link), Err(DirError::Symlink { .. })), "{mode:o}");
    };
    check(0o755, user, Some(target.as_path()));
    check(0o755, user + 1, None);
    for mode in [0o775, 0o757, 0o1777] {
        check(mode, user, None);
    }
    check(0o700, user, Some(target.as_path()));
    assert_eq!(resolve(&target.join("."), user).unwrap(), target);
}
