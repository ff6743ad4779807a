use keyward_machine::atomic_file::Attributes;

use super::*;

#[test]
fn a_rotation_that_fails_at_each_retry_keeps_the_older_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let numbered = |number: u32| folder.path().join(format!("audit.jsonl.{number}"));
    let contents = || [1, 2, 3, 4].map(|number| std::fs::read_to_string(numbered(number)).unwrap_or_default());
    for number in 1..=3 {
        std::fs::write(numbered(number), format!("file {number}")).unwrap();
    }
    let attributes = Attributes { mode: 0o640, owner: None, group: None };
    let options = AuditFileOptions { path: path.clone(), attributes, max_bytes: 4096, keep: 4, fsync: Fsync::Always };
    let mut file = AuditFile::new(options);
    file.open().unwrap();
    std::fs::remove_file(&path).unwrap();
    for _ in 0..5 {
        assert!(file.rotate().is_err(), "there is no file to move");
        assert_eq!(contents(), ["", "file 1", "file 2", "file 3"]);
    }
    std::fs::write(&path, "file 0").unwrap();
    file.rotate().unwrap();
    assert_eq!(contents(), ["file 0", "file 1", "file 2", "file 3"]);
}
