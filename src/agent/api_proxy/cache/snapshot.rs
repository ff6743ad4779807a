//! Cache entries in a file, for the next process.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use keyward_machine::clock::ClockReading;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::entry::{CacheEntry, EntryKind};
use super::key::CacheKey;
use crate::encrypted_file::FileRejected;
use crate::leases::{ActiveLease, SavedLease, Snapshot, TokenFingerprint, age_of, time_of_age};

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
    pub(super) lease: Option<ActiveLease>,
    pub(super) with_session: bool,
}

/// One entry in the file.
#[derive(Serialize, Deserialize)]
struct EntryRecord<'a> {
    key: Cow<'a, CacheKey>,
    kind: EntryKind,
    /// Time of the server's response, in milliseconds since 1970.
    response_time: u64,
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
) -> Option<Vec<u8>> {
    let records = entries.iter().filter_map(|to_save| {
        let (kind, body) = to_save.entry.to_record()?;
        let response_time = time_of_age(to_save.age, now);
        let key = Cow::Borrowed(&to_save.key);
        let lease = to_save.lease;
        let with_session = to_save.with_session;
        Some(EntryRecord { key, kind, response_time, lease, with_session, body })
    });
    // The entries were chosen by their size.
    Snapshot::new(now, token, records.collect()).to_json(usize::MAX)
}

/// Parses saved entries. Leaves out leases that have ended and plain values older than `max_age`.
pub(super) fn deserialize(
    json: &[u8],
    max_age: Duration,
    now: ClockReading,
) -> Result<(Option<TokenFingerprint>, Vec<RestoredEntry>), FileRejected> {
    let snapshot = Snapshot::<EntryRecord<'_>>::parse(json, now)?;
    let restored = snapshot.entries.into_iter().filter_map(|record| {
        let entry = CacheEntry::parse(record.kind, record.body.get().as_bytes())?;
        let age = age_of(record.response_time, now);
        let key = record.key.into_owned();
        let lease = match (record.kind, record.lease) {
            (EntryKind::Plain, None) if age <= max_age => None,
            (EntryKind::Leased, Some(lease)) => Some(lease.restore(now)?),
            _ => return None,
        };
        Some(RestoredEntry { key, entry, age, lease, with_session: record.with_session })
    });
    Ok((snapshot.token, restored.collect()))
}
