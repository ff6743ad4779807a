//! What stands in the file: its tables, and a record's bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, ReadableDatabase as _, ReadableTable, TableDefinition};

use super::checksums::{AllTotals, Checksum, Checksums, LENGTH, Totals};
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
/// [`Totals`] of each kind. Stores of older versions have none until they are opened.
pub(super) const TOTALS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("totals");
pub(super) const ALL: &str = "";
const ABOUT: TableDefinition<'_, &str, &str> = TableDefinition::new("about");
const CHECKSUM_KEY: &str = "checksum_key";

/// Set in the first revision of a record that has a checksum. No store comes to revisions as high.
const CHECKED: u64 = 1 << 63;

/// A record's bytes: the two revisions, its checksum, the value. Older versions wrote no checksum.
pub(super) fn encode(created: Revision, modified: Revision, checksum: &Checksum, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + LENGTH + value.len());
    bytes.extend_from_slice(&(created.0 | CHECKED).to_be_bytes());
    bytes.extend_from_slice(&modified.0.to_be_bytes());
    bytes.extend_from_slice(checksum);
    bytes.extend_from_slice(value);
    bytes
}

/// A record as it stands in the file.
pub(super) struct Kept<'a> {
    pub(super) created: Revision,
    pub(super) modified: Revision,
    /// `None` for what an older version wrote.
    pub(super) checksum: Option<Checksum>,
    pub(super) value: &'a [u8],
}

impl<'a> Kept<'a> {
    /// Splits a record's bytes; `None` for bytes that are no record.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (created, rest) = bytes.split_first_chunk()?;
        let (modified, rest) = rest.split_first_chunk()?;
        let (created, modified) = (u64::from_be_bytes(*created), Revision(u64::from_be_bytes(*modified)));
        let (checksum, value) = if created & CHECKED == 0 {
            (None, rest)
        } else {
            let (checksum, value) = rest.split_first_chunk()?;
            (Some(*checksum), value)
        };
        Some(Self { created: Revision(created & !CHECKED), modified, checksum, value })
    }

    /// The checksum that it should have.
    fn computed(&self, key: &str, checksums: &Checksums) -> Checksum {
        checksums.record(key, self.created, self.modified, self.value)
    }

    /// Tells if its checksum fits, as far as it has one.
    pub(super) fn is_whole(&self, key: &str, checksums: &Checksums) -> bool {
        self.checksum.is_none_or(|checksum| checksum == self.computed(key, checksums))
    }
}

/// The part that a record's bytes have in the sum of their kind. A damaged record keeps the part that it was added with, so
/// that the sum is right again once it is replaced or removed.
pub(super) fn part_in_sum(key: &str, checksums: &Checksums, bytes: &[u8]) -> Checksum {
    match Kept::read(bytes) {
        Some(kept) => kept.checksum.unwrap_or_else(|| kept.computed(key, checksums)),
        None => checksums.record(key, Revision(0), Revision(0), bytes),
    }
}

/// Reads a record.
///
/// # Errors
/// Its checksum does not fit, or it is no record.
pub(super) fn decode(key: &str, checksums: &Checksums, bytes: &[u8]) -> Result<Record, StoreError> {
    let kept = Kept::read(bytes).filter(|kept| kept.is_whole(key, checksums));
    let kept = kept.ok_or_else(|| StoreError::Unreadable { key: key.to_owned() })?;
    Ok(Record { value: Bytes::copy_from_slice(kept.value), created: kept.created, modified: kept.modified })
}

/// When a record was created and modified; `None` for bytes that are no record.
pub(super) fn revisions(bytes: &[u8]) -> Option<(Revision, Revision)> {
    Kept::read(bytes).map(|kept| (kept.created, kept.modified))
}

/// What a store says of itself.
pub(super) struct About {
    pub(super) format: String,
    pub(super) datacenter: String,
    pub(super) checksums: Checksums,
}

/// Reads what the store says of itself; a new one is told. The records of an older version are counted and summed up once.
pub(super) fn introduce(database: &Database, datacenter: &str) -> Result<About, StoreError> {
    let transaction = database.begin_write()?;
    let found = {
        let mut about = transaction.open_table(ABOUT)?;
        let records = transaction.open_table(RECORDS)?;
        let kinds = transaction.open_table(KINDS)?;
        let mut totals = transaction.open_table(TOTALS)?;
        let new_key = Checksums::new_key()?;
        let is_new = about.get(CHECKSUM_KEY)?.is_none();
        let mut tell = |name, default: &str| -> Result<String, StoreError> {
            if let Some(found) = about.get(name)? {
                return Ok(found.value().to_owned());
            }
            about.insert(name, default)?;
            Ok(default.to_owned())
        };
        let (format, datacenter) = (tell("format", FORMAT)?, tell("datacenter", datacenter)?);
        let checksums = Checksums::new(&tell(CHECKSUM_KEY, &new_key)?);
        if is_new {
            for (kind, found) in count(&records, &kinds, &checksums, |_, _| ())? {
                totals.insert(kind.as_str(), found.encode(&kind, &checksums).as_slice())?;
            }
        }
        About { format, datacenter, checksums }
    };
    transaction.commit()?;
    Ok(found)
}

/// The checksums of a store that is only read; `None` for one of an older version.
pub(super) fn checksums(transaction: &redb::ReadTransaction) -> Result<Option<Checksums>, StoreError> {
    let about = transaction.open_table(ABOUT)?;
    Ok(about.get(CHECKSUM_KEY)?.map(|key| Checksums::new(key.value())))
}

/// The kind of a record, by its key or the start of it.
pub(super) fn kind_of(prefix: &str) -> &str {
    prefix.split('/').next().unwrap_or_default()
}

/// Counts and sums up all records, each of which `look` is shown.
pub(super) fn count(
    records: &impl ReadableTable<&'static str, &'static [u8]>,
    kinds: &impl ReadableTable<&'static str, u64>,
    checksums: &Checksums,
    mut look: impl FnMut(&str, &[u8]),
) -> Result<AllTotals, StoreError> {
    let mut all: AllTotals = BTreeMap::new();
    for entry in kinds.iter()? {
        let (kind, revision) = entry?;
        if kind.value() != ALL {
            let revision = Revision(revision.value());
            all.insert(kind.value().to_owned(), Totals { revision, ..Totals::default() });
        }
    }
    for entry in records.iter()? {
        let (key, bytes) = entry?;
        let (key, bytes) = (key.value(), bytes.value());
        look(key, bytes);
        let part = part_in_sum(key, checksums, bytes);
        match all.get_mut(kind_of(key)) {
            Some(totals) => totals.add(&part),
            None => all.entry(kind_of(key).to_owned()).or_default().add(&part),
        }
    }
    Ok(all)
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
