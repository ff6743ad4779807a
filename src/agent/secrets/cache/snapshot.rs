//! Answers as they are kept over a restart.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::entry::{CacheEntry, EntryKind};
use super::key::CacheKey;
use crate::agent::secrets::encrypted_file::FileRejected;
use crate::agent::secrets::lease::{LeaseState, Step};
use crate::agent::secrets::snapshot_format::{Content, SavedLease, TokenFingerprint, age};
use crate::clock::{ClockReading, millis};

/// An answer that is to be written.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) key: CacheKey,
    pub(super) kept: Arc<CacheEntry>,
    /// Time since the server gave it.
    pub(super) age: Duration,
    /// Its lease, if it has one.
    pub(super) lease_state: Option<SavedLease>,
    /// Whether it ends with the session's token.
    pub(super) with_session: bool,
}

/// An answer that was read.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) key: CacheKey,
    pub(super) kept: CacheEntry,
    pub(super) age: Duration,
    pub(super) held: Option<(LeaseState, Step)>,
    pub(super) with_session: bool,
}

/// One in the file.
#[derive(Serialize, Deserialize)]
struct Saved<'a> {
    key: Cow<'a, CacheKey>,
    kind: EntryKind,
    /// When the server gave it.
    at: u64,
    #[serde(rename = "term")]
    lease_state: Option<SavedLease>,
    with_session: bool,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// What is written of them.
pub(super) fn plain(lines: &[Line], token: Option<TokenFingerprint>, now: ClockReading) -> Option<Zeroizing<Vec<u8>>> {
    let wall = millis(now.wall);
    let kept: Vec<Saved<'_>> = lines
        .iter()
        .filter_map(|line| {
            let (kind, body) = line.kept.saved()?;
            let at = wall.saturating_sub(u64::try_from(line.age.as_millis()).unwrap_or(u64::MAX));
            let (lease_state, with_session) = (line.lease_state, line.with_session);
            Some(Saved { key: Cow::Borrowed(&line.key), kind, at, lease_state, with_session, body })
        })
        .collect();
    // Room for all from the start: a buffer that grows leaves copies behind.
    let room: usize = kept.iter().map(|saved| saved.body.get().len() + A_LINE).sum();
    let mut plain = Zeroizing::new(Vec::with_capacity(room + A_LINE));
    serde_json::to_writer(&mut *plain, &Content::new(now, token, kept)).ok()?;
    Some(plain)
}

/// What was written, but for what has ended, or is older than `most` and plain.
pub(super) fn taken(
    plain: &[u8],
    most: Duration,
    now: ClockReading,
) -> Result<(Option<TokenFingerprint>, Vec<Taken>), FileRejected> {
    let content: Content<Saved<'_>> = serde_json::from_slice(plain).map_err(|_| FileRejected::Shape)?;
    let content = content.in_time(now)?;
    let taken = content.kept.into_iter().filter_map(|saved| {
        let kept = CacheEntry::take(saved.kind, saved.body.get().as_bytes())?;
        let (age, key) = (age(saved.at, now), saved.key.into_owned());
        let held = match (saved.kind, saved.lease_state) {
            (EntryKind::Plain, None) if age <= most => None,
            (EntryKind::Leased, Some(lease_state)) => Some(lease_state.taken_up(now)?),
            _ => return None,
        };
        Some(Taken { key, kept, age, held, with_session: saved.with_session })
    });
    Ok((content.token, taken.collect()))
}

/// What stands around a body, at most as a rule, in bytes.
const A_LINE: usize = 1024;
