//! Cache entries in a file, for the next process.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::entry::{CacheEntry, EntryKind};
use super::key::CacheKey;
use crate::agent::secrets::{FileRejected, LeaseState, SavedLease, Snapshot, Step, TokenFingerprint, age_of};
use crate::clock::{ClockReading, millis};

/// An entry that is to be saved.
#[derive(Debug)]
pub(super) struct EntryToSave {
    pub(super) key: CacheKey,
    pub(super) entry: Arc<CacheEntry>,
    /// Time since the server's response.
    pub(super) age: Duration,
    /// `None` for plain values.
    pub(super) lease: Option<SavedLease>,
    /// The entry ends with the session's token.
    pub(super) with_session: bool,
}

/// An entry that was read from the file.
#[derive(Debug)]
pub(super) struct RestoredEntry {
    pub(super) key: CacheKey,
    pub(super) entry: CacheEntry,
    pub(super) age: Duration,
    pub(super) lease: Option<(LeaseState, Step)>,
    pub(super) with_session: bool,
}

/// One entry in the file.
#[derive(Serialize, Deserialize)]
struct EntryRecord<'a> {
    key: Cow<'a, CacheKey>,
    kind: EntryKind,
    /// Time of the server's response, in milliseconds since 1970.
    #[serde(rename = "at")]
    response_time: u64,
    #[serde(rename = "term")]
    lease: Option<SavedLease>,
    with_session: bool,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// Serializes entries as JSON; `None` if a value has no JSON form.
pub(super) fn serialize(
    entries: &[EntryToSave],
    token: Option<TokenFingerprint>,
    now: ClockReading,
) -> Option<Zeroizing<Vec<u8>>> {
    let wall = millis(now.wall);
    let records: Vec<EntryRecord<'_>> = entries
        .iter()
        .filter_map(|to_save| {
            let (kind, body) = to_save.entry.to_record()?;
            let response_time = wall.saturating_sub(u64::try_from(to_save.age.as_millis()).unwrap_or(u64::MAX));
            let (lease, with_session) = (to_save.lease, to_save.with_session);
            Some(EntryRecord { key: Cow::Borrowed(&to_save.key), kind, response_time, lease, with_session, body })
        })
        .collect();
    // Allocates for all at once: a buffer that grows leaves copies of secrets behind.
    let capacity: usize = records.iter().map(|record| record.body.get().len() + RECORD_OVERHEAD).sum();
    let mut json = Zeroizing::new(Vec::with_capacity(capacity + RECORD_OVERHEAD));
    serde_json::to_writer(&mut *json, &Snapshot::new(now, token, records)).ok()?;
    Some(json)
}

/// Parses saved entries. Leaves out leases that have ended and plain values older than `max_age`.
///
/// # Errors
/// The file has another format, or is newer than the clock.
pub(super) fn deserialize(
    json: &[u8],
    max_age: Duration,
    now: ClockReading,
) -> Result<(Option<TokenFingerprint>, Vec<RestoredEntry>), FileRejected> {
    let snapshot: Snapshot<EntryRecord<'_>> = serde_json::from_slice(json).map_err(|_| FileRejected::Format)?;
    let snapshot = snapshot.check_clock(now)?;
    let restored = snapshot.entries.into_iter().filter_map(|record| {
        let entry = CacheEntry::parse(record.kind, record.body.get().as_bytes())?;
        let (age, key) = (age_of(record.response_time, now), record.key.into_owned());
        let lease = match (record.kind, record.lease) {
            (EntryKind::Plain, None) if age <= max_age => None,
            (EntryKind::Leased, Some(lease)) => Some(lease.restore(now)?),
            _ => return None,
        };
        Some(RestoredEntry { key, entry, age, lease, with_session: record.with_session })
    });
    Ok((snapshot.token, restored.collect()))
}

/// JSON around a body, as a rule at most, in bytes.
const RECORD_OVERHEAD: usize = 1024;
