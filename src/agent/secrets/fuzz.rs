//! Entry points of the fuzz targets `state` and `events`.

use std::time::Duration;

use keyward_machine::clock::ClockReading;

use super::event::SecretEvent;
use super::{SecretRequest, persisted_secrets};

/// Reads the decrypted secrets of a previous process and serializes them again; `None` if they are refused.
pub fn reserialize(plain: &[u8], now: ClockReading) -> Option<Vec<u8>> {
    let (fingerprint, secrets) = persisted_secrets::deserialize(plain, Duration::from_hours(24), now).ok()?;
    persisted_secrets::serialize(&secrets, fingerprint, now)
}

/// Parses a message as an event; returns its description and version, and whether it concerns a request. Errors as in the log.
pub fn parse_event(
    message: &[u8],
    request: &SecretRequest,
    namespace: Option<&str>,
) -> Result<Option<(String, Option<u64>, bool)>, String> {
    let event = SecretEvent::parse(message).map_err(|error| error.to_string())?;
    Ok(event.map(|event| (event.describe(), event.version, event.concerns(request, namespace))))
}
