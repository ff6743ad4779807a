//! What stands in the file: its tables, and a record's bytes.

use redb::TableDefinition;

use super::{Record, Revision, StoreError};

pub(super) const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
/// The revision of the last change of each kind of record; of all under [`ALL`].
pub(super) const KINDS: TableDefinition<'_, &str, u64> = TableDefinition::new("kinds");
pub(super) const ALL: &str = "";

/// A record's bytes: the two revisions, then the value.
pub(super) fn encode(created: Revision, modified: Revision, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + value.len());
    bytes.extend_from_slice(&created.0.to_be_bytes());
    bytes.extend_from_slice(&modified.0.to_be_bytes());
    bytes.extend_from_slice(value);
    bytes
}

pub(super) fn decode(key: &str, bytes: &[u8]) -> Result<Record, StoreError> {
    let unreadable = || StoreError::Unreadable { key: key.to_owned() };
    let (created, rest) = bytes.split_first_chunk().ok_or_else(unreadable)?;
    let (modified, value) = rest.split_first_chunk().ok_or_else(unreadable)?;
    Ok(Record {
        value: value.to_vec(),
        created: Revision(u64::from_be_bytes(*created)),
        modified: Revision(u64::from_be_bytes(*modified)),
    })
}
