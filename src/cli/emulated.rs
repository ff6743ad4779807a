//! Configurations for commands that log in themselves: that of a running `keyward dev` meets the emulated Azure.

use std::path::PathBuf;

use keyward_config::{self as config, Environment, LoadOutcome, Purpose};

/// Reads configuration files. If `KEYWARD_DEV_DIR` names the folder of a running `keyward dev` and they are its own, the
/// sessions meet its emulated Azure; every other configuration meets the real one.
pub(super) fn load(files: &[PathBuf], purpose: Purpose) -> anyhow::Result<LoadOutcome> {
    load_in(files, &Environment::current(), purpose)
}

/// Reads configuration files like [`load`], with these variables and this user.
#[cfg_attr(not(feature = "dev"), expect(clippy::unnecessary_wraps, reason = "a build with dev has errors here"))]
pub(super) fn load_in(files: &[PathBuf], environment: &Environment, purpose: Purpose) -> anyhow::Result<LoadOutcome> {
    #[cfg(feature = "dev")]
    if let Some(endpoints) = keyward_app::dev::find_running(files, environment)? {
        let mut outcome = config::load(files, &endpoints.environment(), purpose);
        if let Some(config) = &mut outcome.config {
            endpoints.move_endpoints(config)?;
        }
        return Ok(outcome);
    }
    Ok(config::load(files, environment, purpose))
}
