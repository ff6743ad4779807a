//! Embedded store: rejected openings. Its behaviour on failures is tested in `acl/disk`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use keyward_acl::store::{Embedded, OpenError, Store as _};
use keyward_machine::secure_dir::DirError;

use super::{put, value};

#[tokio::test]
async fn a_second_opener_another_datacenter_and_an_open_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Embedded::open(&path, "dc1").unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(store.path())), (0o700, 0o600));
    let error = Embedded::open(&path, "dc1").unwrap_err();
    assert!(error.to_string().contains("is in use by another process"), "{error}");
    store.commit(put("a", "1")).await.unwrap();
    drop(store);

    let error = Embedded::open(&path, "dc2").unwrap_err();
    assert!(error.to_string().ends_with("belongs to datacenter \"dc1\", but this server is of \"dc2\""), "{error}");
    for open in [0o702, 0o770] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(open)).unwrap();
        assert!(matches!(Embedded::open(&path, "dc1"), Err(OpenError::Folder(DirError::Exposed { .. }))));
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(value(&Embedded::open(&path, "dc1").unwrap(), "a").await.as_deref(), Some("1"));

    let file = path.join("acl.redb");
    std::fs::write(&file, "something else").unwrap();
    assert!(matches!(Embedded::open(&path, "dc1"), Err(OpenError::Damaged { .. })));
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(folder.path().join("elsewhere"), &file).unwrap();
    assert!(matches!(Embedded::open(&path, "dc1"), Err(OpenError::File { .. })));
}
