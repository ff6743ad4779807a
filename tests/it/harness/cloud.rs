//! Keys of the emulated cloud that all tests share: RSA keys take long to generate without optimization.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use keyward_emulators::cloud::{Cloud, CloudOptions};
use keyward_machine::tasks::TaskGroup;

/// Options of a cloud in a folder that does not exist yet, with the shared keys and ids in it.
pub(crate) fn options_with_shared_keys(folder: PathBuf) -> CloudOptions {
    let shared = shared_keys();
    std::fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    for entry in std::fs::read_dir(shared).unwrap().map(Result::unwrap) {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    }
    CloudOptions::in_folder(folder)
}

/// Folder of the keys; the first test of a target folder generates them.
fn shared_keys() -> PathBuf {
    let keys = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated-cloud");
    if !keys.is_dir() {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let made = folder.path().join("cloud");
        drop(Cloud::start(CloudOptions::in_folder(made.clone()), &mut TaskGroup::default()).unwrap());
        // Another process may have been quicker.
        if let Err(error) = std::fs::rename(made, &keys) {
            assert!(keys.is_dir(), "{}: {error}", keys.display());
        }
    }
    keys
}
