use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn a_value_is_built_again_once_a_file_has_changed_and_a_bad_file_leaves_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    std::fs::write(&path, "1").unwrap();
    let source = path.clone();
    let followed = FileBacked::new(vec![path.clone()], move || {
        std::fs::read_to_string(&source).and_then(|text| text.parse::<u32>().map_err(std::io::Error::other))
    })
    .unwrap();
    assert_eq!(followed.current(), 1);
    let put = |text: &str| {
        let new = folder.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &path).unwrap();
    };
    put("22");
    assert_eq!(followed.clone().current(), 22);
    put("none");
    assert_eq!(followed.current(), 22, "not a number");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(followed.current(), 22, "gone");
    put("3");
    assert_eq!(followed.current(), 3);
}

#[test]
fn files_that_could_not_be_read_are_read_again_although_they_have_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    std::fs::write(&path, "1").unwrap();
    let is_readable = Arc::new(AtomicBool::new(true));
    let source = path.clone();
    let readable = Arc::clone(&is_readable);
    let followed = FileBacked::new(vec![path.clone()], move || {
        // As where no descriptor is left.
        let read = if readable.load(Ordering::Relaxed) { Ok(()) } else { Err(rustix::io::Errno::MFILE.into()) };
        read.and_then(|()| std::fs::read_to_string(&source))
    })
    .unwrap();
    is_readable.store(false, Ordering::Relaxed);
    std::fs::write(&path, "22").unwrap();
    assert_eq!(followed.current(), "1");
    is_readable.store(true, Ordering::Relaxed);
    assert_eq!(followed.current(), "22");
}
