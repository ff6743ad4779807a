//! Entry point of the fuzz target `state`.

use std::time::Duration;

use keyward_machine::clock::ClockReading;

use super::persisted_secrets;

/// Reads the decrypted secrets of a previous process and serializes them again; `None` if they are refused.
pub fn reserialize(plain: &[u8], now: ClockReading) -> Option<Vec<u8>> {
    let (fingerprint, secrets) = persisted_secrets::deserialize(plain, Duration::from_hours(24), now).ok()?;
    persisted_secrets::serialize(&secrets, fingerprint, now)
}
