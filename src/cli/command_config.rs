//! Configurations for commands: a command that logs in itself beside a running `keyward dev` meets the emulated Azure, and one that
//! uses values fails if this machine lacks them.

use std::path::PathBuf;

use keyward_config::{self as config, Environment, LoadOutcome, Purpose};

use super::{Exit, print_error};

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

/// Returns true for the configuration of a running `keyward dev` that `KEYWARD_DEV_DIR` names.
#[cfg(feature = "dev")]
pub(super) fn is_demo(files: &[PathBuf], environment: &Environment) -> bool {
    keyward_app::dev::find_running(files, environment).is_ok_and(|endpoints| endpoints.is_some())
}

/// Returns false: this build has no `keyward dev`.
#[cfg(not(feature = "dev"))]
pub(super) const fn is_demo(_: &[PathBuf], _: &Environment) -> bool {
    false
}

/// Checks a configuration that was read for [`Purpose::Check`](keyward_config::Purpose) before a command uses these keys, with
/// all below them: what this machine lacks is a note there, and its value a placeholder or nothing.
///
/// # Errors
/// This machine lacks a value; the note is printed as an error.
pub(super) fn require_values(outcome: &LoadOutcome, keys: &[String]) -> Result<(), Exit> {
    let is_used = |key: &str| keys.iter().any(|used| key.strip_prefix(used.as_str()).is_some_and(is_below));
    let mut missing = outcome.notes.iter().filter(|note| is_used(&note.key)).peekable();
    if missing.peek().is_none() {
        return Ok(());
    }
    missing.for_each(|note| print_error(&note.to_string()));
    Err(Exit::ConfigInvalid)
}

/// True for the rest of a key behind the key itself or one above it.
fn is_below(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('.')
}
