//! What stands in the file: its tables, and a record's bytes.

use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};

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
/// The revision of the last change of each kind of record; of all under [`ALL`].
pub(super) const KINDS: TableDefinition<'_, &str, u64> = TableDefinition::new("kinds");
pub(super) const ALL: &str = "";
const ABOUT: TableDefinition<'_, &str, &str> = TableDefinition::new("about");

/// A record's bytes: the two revisions, then the value.
pub(super) fn encode(created: Revision, modified: Revision, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + value.len());
    bytes.extend_from_slice(&created.0.to_be_bytes());
    bytes.extend_from_slice(&modified.0.to_be_bytes());
    bytes.extend_from_slice(value);
    bytes
}

pub(super) fn decode(key: &str, bytes: &[u8]) -> Result<Record, StoreError> {
    let (created, modified) = revisions(bytes).ok_or_else(|| StoreError::Unreadable { key: key.to_owned() })?;
    Ok(Record { value: Bytes::copy_from_slice(&bytes[16..]), created, modified })
}

/// When a record was created and modified; `None` for bytes that are no record.
pub(super) fn revisions(bytes: &[u8]) -> Option<(Revision, Revision)> {
    let (created, rest) = bytes.split_first_chunk()?;
    let (modified, _) = rest.split_first_chunk()?;
    Some((Revision(u64::from_be_bytes(*created)), Revision(u64::from_be_bytes(*modified))))
}

/// What a store says of itself.
pub(super) struct About {
    pub(super) format: String,
    pub(super) datacenter: String,
}

/// Reads what the store says of itself; a new one is told.
pub(super) fn introduce(database: &Database, datacenter: &str) -> Result<About, StoreError> {
    let transaction = database.begin_write()?;
    let found = {
        let mut about = transaction.open_table(ABOUT)?;
        transaction.open_table(RECORDS)?;
        transaction.open_table(KINDS)?;
        let mut tell = |name, default: &str| -> Result<String, StoreError> {
            if let Some(found) = about.get(name)? {
                return Ok(found.value().to_owned());
            }
            about.insert(name, default)?;
            Ok(default.to_owned())
        };
        About { format: tell("format", FORMAT)?, datacenter: tell("datacenter", datacenter)? }
    };
    transaction.commit()?;
    Ok(found)
}

/// The last change of each kind of record.
pub(super) fn kinds(database: &Database) -> Result<Vec<(String, Revision)>, StoreError> {
    let table = database.begin_read()?.open_table(KINDS)?;
    let read = |entry: Result<(redb::AccessGuard<'_, &str>, redb::AccessGuard<'_, u64>), redb::StorageError>| {
        let (kind, revision) = entry?;
        Ok((kind.value().to_owned(), Revision(revision.value())))
    };
    table.iter()?.map(read).collect()
}
