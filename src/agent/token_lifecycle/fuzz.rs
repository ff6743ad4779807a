//! Entry points of the fuzz target `state`.

use std::time::Duration;

use keyward_machine::clock::ClockReading;

use super::state_file;
use super::token_record::{deserialize_token, serialize_token};
use crate::retry_budget::RetryBudget;

/// Reads a session's state file, and returns the waits before its next login, its next renewal and a waiting caller's login;
/// `None` if the file is refused.
pub fn waits(file: &[u8], now: ClockReading) -> Option<[Duration; 3]> {
    let on_disk = state_file::parse(file).ok()?;
    let mut budget = RetryBudget::restore(&on_disk.retry_budget, now);
    let login = budget.earliest_login(now);
    let renewal = budget.renewal_not_before();
    let caller = budget.next_for_caller(now, 1.0).unwrap_or(now);
    Some([login, renewal, caller].map(|at| now.until(at)))
}

/// Reads a decrypted token and serializes it again; `None` if it is refused or has ended.
pub fn reserialize_token(plain: &[u8], now: ClockReading) -> Option<Vec<u8>> {
    let token = deserialize_token(plain, now).ok()??;
    serialize_token(&token)
}
