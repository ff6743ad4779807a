//! Tables of the database file, and the encoding of records.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, ReadableDatabase as _, ReadableTable, TableDefinition, TableError};

use super::checksums::{Checksum, Checksums, KindTotals, LENGTH, TotalsByKind};
use super::{FORMAT, Record, Revision, StoreError};

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> Self {
        let error: redb::Error = error.into();
        if let redb::Error::Io(cause) = &error {
            use std::io::ErrorKind::{QuotaExceeded, StorageFull};
            if matches!(cause.kind(), StorageFull | QuotaExceeded) {
                return Self::Full(Arc::new(error));
            }
        }
        Self::Failed(Arc::new(error))
    }
}

pub(super) const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
/// Revision of the last change of each kind, and of all kinds under [`ALL_KINDS`].
pub(super) const KINDS: TableDefinition<'_, &str, u64> = TableDefinition::new("kinds");
/// [`KindTotals`] of each kind.
pub(super) const TOTALS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("totals");
pub(super) const ALL_KINDS: &str = "";
const ABOUT: TableDefinition<'_, &str, &str> = TableDefinition::new("about");
const CHECKSUM_KEY: &str = "checksum_key";

/// Encodes a record: two revisions, checksum, value.
pub(super) fn encode(created: Revision, modified: Revision, checksum: &Checksum, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + LENGTH + value.len());
    bytes.extend_from_slice(&created.0.to_be_bytes());
    bytes.extend_from_slice(&modified.0.to_be_bytes());
    bytes.extend_from_slice(checksum);
    bytes.extend_from_slice(value);
    bytes
}

/// A record as encoded in the file.
pub(super) struct StoredRecord<'a> {
    pub(super) created: Revision,
    pub(super) modified: Revision,
    checksum: Checksum,
    pub(super) value: &'a [u8],
}

impl<'a> StoredRecord<'a> {
    /// Decodes a record; `None` if malformed.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (created, rest) = bytes.split_first_chunk()?;
        let (modified, rest) = rest.split_first_chunk()?;
        let (checksum, value) = rest.split_first_chunk()?;
        let revision = |bytes: &[u8; 8]| Revision(u64::from_be_bytes(*bytes));
        Some(Self { created: revision(created), modified: revision(modified), checksum: *checksum, value })
    }

    /// Returns true if the checksum matches.
    pub(super) fn is_intact(&self, key: &str, checksums: &Checksums) -> bool {
        self.checksum == checksums.record(key, self.created, self.modified, self.value)
    }
}

/// Returns a record's contribution to the sum of its kind. A damaged record contributes its stored checksum, so that
/// the sum is right again once it is replaced or deleted.
pub(super) fn sum_contribution(key: &str, checksums: &Checksums, bytes: &[u8]) -> Checksum {
    match StoredRecord::read(bytes) {
        Some(stored) => stored.checksum,
        None => checksums.record(key, Revision(0), Revision(0), bytes),
    }
}

/// Decodes and verifies a record.
pub(super) fn decode(key: &str, checksums: &Checksums, bytes: &[u8]) -> Result<Record, StoreError> {
    let stored = StoredRecord::read(bytes).filter(|stored| stored.is_intact(key, checksums));
    let stored = stored.ok_or_else(|| StoreError::Unreadable { key: key.to_owned() })?;
    Ok(Record { value: Bytes::copy_from_slice(stored.value), created: stored.created, modified: stored.modified })
}

/// Returns the creation and modification revision; `None` if malformed.
pub(super) fn revisions(bytes: &[u8]) -> Option<(Revision, Revision)> {
    StoredRecord::read(bytes).map(|stored| (stored.created, stored.modified))
}

/// Metadata of a store.
pub(super) struct StoreMetadata {
    pub(super) format: String,
    pub(super) datacenter: String,
    pub(super) checksums: Checksums,
}

/// Reads the store's metadata and initializes a new store.
pub(super) fn read_or_init_metadata(database: &Database, datacenter: &str) -> Result<StoreMetadata, StoreError> {
    let transaction = database.begin_write()?;
    let metadata = {
        let mut about = transaction.open_table(ABOUT)?;
        // Created for readers, which cannot.
        transaction.open_table(RECORDS)?;
        transaction.open_table(KINDS)?;
        transaction.open_table(TOTALS)?;
        let new_key = Checksums::new_key()?;
        let mut get_or_insert = |name, default: &str| -> Result<String, StoreError> {
            if let Some(existing) = about.get(name)? {
                return Ok(existing.value().to_owned());
            }
            about.insert(name, default)?;
            Ok(default.to_owned())
        };
        let format = get_or_insert("format", FORMAT)?;
        let datacenter = get_or_insert("datacenter", datacenter)?;
        let checksums = Checksums::new(&get_or_insert(CHECKSUM_KEY, &new_key)?);
        StoreMetadata { format, datacenter, checksums }
    };
    transaction.commit()?;
    Ok(metadata)
}

/// Returns the checksums of a store opened for reading; `None` for one that was not initialized.
pub(super) fn checksums(transaction: &redb::ReadTransaction) -> Result<Option<Checksums>, StoreError> {
    let about = match transaction.open_table(ABOUT) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        about => about?,
    };
    Ok(about.get(CHECKSUM_KEY)?.map(|key| Checksums::new(key.value())))
}

/// Returns the kind of a key or prefix.
pub(super) fn kind_of(prefix: &str) -> &str {
    prefix.split('/').next().unwrap_or_default()
}

/// Computes the totals of all records; calls `look` for each.
pub(super) fn count_records(
    records: &impl ReadableTable<&'static str, &'static [u8]>,
    kinds: &impl ReadableTable<&'static str, u64>,
    checksums: &Checksums,
    mut look: impl FnMut(&str, &[u8]),
) -> Result<TotalsByKind, StoreError> {
    let mut all: TotalsByKind = BTreeMap::new();
    // Kinds whose records are all deleted have a revision too, which must not be lost.
    for entry in kinds.iter()? {
        let (kind, revision) = entry?;
        if kind.value() != ALL_KINDS {
            let revision = Revision(revision.value());
            all.insert(kind.value().to_owned(), KindTotals { revision, ..KindTotals::default() });
        }
    }
    for entry in records.iter()? {
        let (key, bytes) = entry?;
        let key = key.value();
        let bytes = bytes.value();
        look(key, bytes);
        let part = sum_contribution(key, checksums, bytes);
        match all.get_mut(kind_of(key)) {
            Some(totals) => totals.add(&part),
            None => all.entry(kind_of(key).to_owned()).or_default().add(&part),
        }
    }
    Ok(all)
}

/// Reads the revision of the last change of each kind.
pub(super) fn kind_revisions(database: &Database) -> Result<Vec<(String, Revision)>, StoreError> {
    let table = database.begin_read()?.open_table(KINDS)?;
    let read = |entry: Result<(redb::AccessGuard<'_, &str>, redb::AccessGuard<'_, u64>), redb::StorageError>| {
        let (kind, revision) = entry?;
        Ok((kind.value().to_owned(), Revision(revision.value())))
    };
    table.iter()?.map(read).collect()
}
