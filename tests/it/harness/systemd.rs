//! The packaged unit with a drop-in, as systemd reads them.

use std::path::Path;
use std::process::Command;

/// Asserts that systemd finds nothing to complain about in the packaged unit with this drop-in.
#[track_caller]
pub(crate) fn assert_drop_in_is_valid(drop_in: &str) {
    let folder = tempfile::tempdir().unwrap();
    let unit = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd/keyward.service"));
    // `verify` wants the program and the manual pages to be there.
    let unit = unit.unwrap().replace("=/usr/bin/keyward ", "=/bin/true ").replace("man:", "file:///");
    let file = folder.path().join("keyward.service");
    std::fs::write(&file, unit).unwrap();
    std::fs::create_dir(folder.path().join("keyward.service.d")).unwrap();
    std::fs::write(folder.path().join("keyward.service.d/50-rights.conf"), drop_in).unwrap();
    let output = Command::new("systemd-analyze").arg("verify").arg(&file).output();
    let output = output.unwrap_or_else(|error| panic!("systemd-analyze: {error}; install Debian's systemd"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}\n{drop_in}");
}
