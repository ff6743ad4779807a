//! Values that a command uses and this machine lacks.

use keyward_config::LoadOutcome;

use super::{Exit, print_error};

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
