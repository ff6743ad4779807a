//! Verification of records and pages.

use redb::{Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, StorageBackend as _};

use super::backend::{BackendHandle, LeasedBackend};
use super::checksums::{KindTotals, TotalsByKind};
use super::tables::{KINDS, RECORDS, StoredRecord, TOTALS, checksums, count_records};
use super::{StoreError, Verification};

/// Verifies the checksum of each record, and the count and sum of each kind, in one read transaction.
pub(super) fn records(transaction: &ReadTransaction) -> Result<Verification, StoreError> {
    let mut verification = Verification::default();
    let Some(checksums) = checksums(transaction)? else { return Ok(verification) };
    let records = transaction.open_table(RECORDS)?;
    let kinds = transaction.open_table(KINDS)?;
    let computed_totals = count_records(&records, &kinds, &checksums, |key, bytes| {
        let is_intact = StoredRecord::read(bytes).is_some_and(|record| record.is_intact(key, &checksums));
        verification.count(key, is_intact);
    })?;
    let mut stored_totals = TotalsByKind::new();
    for entry in transaction.open_table(TOTALS)?.iter()? {
        let (kind, bytes) = entry?;
        match KindTotals::decode(kind.value(), &checksums, bytes.value()) {
            Some(totals) => drop(stored_totals.insert(kind.value().to_owned(), totals)),
            None => verification.damaged_kinds.push(kind.value().to_owned()),
        }
    }
    for kind in computed_totals.keys().chain(stored_totals.keys()) {
        if computed_totals.get(kind) != stored_totals.get(kind) && !verification.damaged_kinds.contains(kind) {
            verification.damaged_kinds.push(kind.clone());
        }
    }
    Ok(verification)
}

/// Verifies the page checksums of a cleanly closed file without changing it. `None` for a file that was not closed:
/// opening it checks all pages.
pub(super) fn pages(disk: &mut BackendHandle) -> Result<Option<bool>, StoreError> {
    let lease = disk.lease_read_only().map_err(redb::Error::Io)?;
    // redb would initialize an empty file.
    if lease.len().map_err(redb::Error::Io)? == 0 {
        return Ok(None);
    }
    let mut builder = Database::builder();
    builder.set_cache_size(super::recovery::PAGE_CACHE_BYTES);
    builder.set_repair_callback(redb::RepairSession::abort);
    let mut database = match builder.create_with_backend(lease) {
        Ok(database) => database,
        Err(redb::DatabaseError::RepairAborted) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match database.check_integrity() {
        Ok(is_intact) => Ok(Some(is_intact)),
        // Neither of the last two commits is intact.
        Err(redb::DatabaseError::Storage(redb::StorageError::Corrupted(_))) => Ok(Some(false)),
        Err(error) => Err(error.into()),
    }
}

/// Verifies everything in a file that no server has open, without changing it.
pub(super) fn file(disk: &mut BackendHandle) -> Result<Verification, StoreError> {
    let pages = pages(disk)?;
    // redb panics when it reads from a damaged page.
    if pages == Some(false) {
        return Ok(Verification { pages, ..Verification::default() });
    }
    let lease: LeasedBackend = disk.lease_read_only().map_err(redb::Error::Io)?;
    let database = super::recovery::open(lease)?;
    Ok(Verification { pages, ..records(&database.begin_read()?)? })
}
