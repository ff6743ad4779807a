//! Reads from the database file, each in one snapshot.

use bytes::Bytes;
use redb::{Database, ReadTransaction, ReadableDatabase as _};

use super::checksums::Checksums;
use super::tables::{KINDS, RECORDS, decode, kind_of, revisions};
use super::{Key, Listing, Page, Record, Revision, StoreError};

pub(super) fn begin(database: &Database) -> Result<ReadTransaction, StoreError> {
    Ok(database.begin_read()?)
}

pub(super) fn get(
    transaction: &ReadTransaction,
    checksums: &Checksums,
    key: &Key,
) -> Result<Option<Record>, StoreError> {
    let records = transaction.open_table(RECORDS)?;
    records.get(key.as_str())?.map(|bytes| decode(key.as_str(), checksums, bytes.value())).transpose()
}

/// Reads a page of a list. The prefix "" selects all kinds. A damaged record is returned with an empty value, so that
/// others of the page stay readable.
pub(super) fn list(
    transaction: &ReadTransaction,
    checksums: &Checksums,
    prefix: &str,
    page: &Page,
) -> Result<Listing, StoreError> {
    let revision = transaction.open_table(KINDS)?.get(kind_of(prefix))?.map_or(0, |last| last.value());
    let records = transaction.open_table(RECORDS)?;
    let start = page.after.as_ref().map_or(prefix, Key::as_str);
    let mut listing = Listing { entries: Vec::new(), more: false, revision: Revision(revision) };
    for entry in records.range(start..)? {
        let (key, bytes) = entry?;
        let key = key.value();
        if !key.starts_with(prefix) {
            break;
        }
        if page.after.as_ref().is_some_and(|after| after.as_str() == key) {
            continue;
        }
        if listing.entries.len() == page.limit {
            listing.more = true;
            break;
        }
        let record = decode(key, checksums, bytes.value()).unwrap_or_else(|_| {
            let (created, modified) = revisions(bytes.value()).unwrap_or_default();
            Record { value: Bytes::new(), created, modified }
        });
        listing.entries.push((Key::from(key.to_owned()), record));
    }
    Ok(listing)
}

/// All records at the time of its start. Until it is dropped, the file keeps their pages and grows.
#[derive(Debug)]
pub(crate) struct Export {
    moment: ReadTransaction,
    checksums: Checksums,
    revision: Revision,
    after: Option<Key>,
}

impl Export {
    pub(super) fn begin(database: &Database, checksums: &Checksums) -> Result<Self, StoreError> {
        let moment = begin(database)?;
        let revision = list(&moment, checksums, "", &Page { after: None, limit: 0 })?.revision;
        Ok(Self { moment, checksums: checksums.clone(), revision, after: None })
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the next records, at most `limit`; empty at the end.
    pub(crate) fn next(&mut self, limit: usize) -> Result<Vec<(Key, Record)>, StoreError> {
        let page = Page { after: self.after.take(), limit };
        let entries = list(&self.moment, &self.checksums, "", &page)?.entries;
        self.after = entries.last().map(|(key, _)| key.clone()).or(page.after);
        Ok(entries)
    }
}
