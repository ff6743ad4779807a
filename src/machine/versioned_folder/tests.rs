use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::*;

const PRIVATE: Attributes = Attributes { mode: 0o640, owner: None, group: None };

fn replace_with(path: &Path, texts: [&str; 2]) -> Result<Outcome, ReplaceError> {
    replace(path, &[("key", texts[0].as_bytes()), ("leaf", texts[1].as_bytes())], &PRIVATE)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_are_replaced_together_and_the_previous_ones_stay_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web");
    assert_eq!(replace_with(&path, ["k1", "l1"]).unwrap(), Outcome::Written);
    let first = current(&path).unwrap();
    assert_eq!(std::fs::read_to_string(path.join("key")).unwrap(), "k1");
    assert_eq!(std::fs::metadata(path.join("key")).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(std::fs::metadata(&first).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(replace_with(&path, ["k1", "l1"]).unwrap(), Outcome::Unchanged);
    assert_eq!(current(&path).unwrap(), first);

    replace_with(&path, ["k2", "l2"]).unwrap();
    assert_eq!(read(&path, &["key", "leaf"], 2), Some(vec![b"k2".to_vec(), b"l2".to_vec()]));
    assert_eq!(std::fs::read_to_string(first.join("key")).unwrap(), "k1", "for readers that are still there");
    replace_with(&path, ["k3", "l3"]).unwrap();
    assert!(!first.exists());
    assert_eq!(names(folder.path()).len(), 3, "the symlink and two folders");
    assert_eq!(read(&path, &["key", "other"], 2), None);
    assert_eq!(read(&path, &["key"], 1), None, "it is longer");
}

#[test]
fn a_changed_file_mode_or_name_is_another_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web");
    let changes: [fn(&Path); 4] = [
        |path| std::fs::write(path.join("key"), "x").unwrap(),
        |path| std::fs::set_permissions(path.join("key"), std::fs::Permissions::from_mode(0o644)).unwrap(),
        |path| std::fs::write(path.join("more"), "x").unwrap(),
        |path| std::fs::remove_file(path.join("leaf")).unwrap(),
    ];
    for change in changes {
        replace_with(&path, ["k", "l"]).unwrap();
        change(&path);
        assert_eq!(replace_with(&path, ["k", "l"]).unwrap(), Outcome::Written);
        assert_eq!(replace_with(&path, ["k", "l"]).unwrap(), Outcome::Unchanged);
        assert_eq!(names(&path), ["key", "leaf"]);
    }
}

#[test]
fn what_others_have_put_there_is_refused_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let check = |name: &str, expected: &str| {
        let path = folder.path().join(name);
        let error = replace_with(&path, ["k", "l"]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!((current(&path), read(&path, &["key"], 9)), (None, None));
        assert_eq!(sweep(&path), 0);
    };
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    check("folder", "is a folder, not a symlink that keyward has made");
    std::fs::write(folder.path().join("file"), "x").unwrap();
    check("file", "is a file, not");
    for (name, target) in
        [("link", other.clone()), ("relative", "other".into()), ("up", "../.up.0123456789abcdef".into())]
    {
        symlink(target, folder.path().join(name)).unwrap();
        check(name, "is a symlink to something else, not");
    }
    assert_eq!(names(&other), Vec::<String>::new());
    let gone = folder.path().join("gone/web");
    assert!(matches!(replace_with(&gone, ["k", "l"]), Err(ReplaceError::Folder(_))));
}

#[test]
fn leftovers_are_swept_and_the_current_and_the_previous_folder_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web");
    for texts in [["k1", "l1"], ["k2", "l2"]] {
        replace_with(&path, texts).unwrap();
    }
    let kept = names(folder.path());
    assert_eq!(sweep(&path), 0);
    // Of a process that was killed, and of another name.
    let leftover = folder.path().join(".web.0000000000000000");
    std::fs::create_dir(&leftover).unwrap();
    std::fs::write(leftover.join("key"), "k").unwrap();
    symlink(".web.0000000000000000", folder.path().join(".web.1111111111111111")).unwrap();
    std::fs::create_dir(folder.path().join(".website.0000000000000000")).unwrap();
    assert_eq!(sweep(&path), 2);
    let mut left = names(folder.path());
    left.retain(|name| name != ".website.0000000000000000");
    assert_eq!(left, kept);
}

#[test]
fn no_file_keeps_the_rights_of_an_earlier_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web");
    let open = Attributes { mode: 0o644, ..PRIVATE };
    for attributes in [&open, &PRIVATE] {
        replace(&path, &[("key", b"k")], attributes).unwrap();
    }
    assert_eq!(names(folder.path()).len(), 2, "the symlink and its folder");
}

#[test]
fn a_failed_replacement_leaves_the_previous_files_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web");
    replace_with(&path, ["k1", "l1"]).unwrap();
    let before = names(folder.path());
    // A name that is longer than a file's may be.
    let long = "x".repeat(300);
    assert!(replace(&path, &[("key", b"k2"), (long.as_str(), b"l2")], &PRIVATE).is_err());
    assert_eq!(names(folder.path()), before);
    assert_eq!(std::fs::read_to_string(path.join("key")).unwrap(), "k1");
}
