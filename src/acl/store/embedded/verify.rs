//! Looks whether all records are there and whole.

use redb::{Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, StorageBackend as _, TableError};

use super::backend::{Disk, Loan};
use super::checksums::{AllTotals, Totals};
use super::tables::{KINDS, Kept, RECORDS, TOTALS, checksums, count};
use super::{StoreError, Verification};

/// Checks each record's checksum, and the number and the sum of the records of each kind, as they are at one moment.
pub(super) fn records(transaction: &ReadTransaction) -> Result<Verification, StoreError> {
    let mut found = Verification::default();
    let (records, kinds) = (transaction.open_table(RECORDS)?, transaction.open_table(KINDS)?);
    let Some(checksums) = checksums(transaction)? else {
        for entry in records.iter()? {
            found.count(entry?.0.value(), None);
        }
        return Ok(found);
    };
    let there = count(&records, &kinds, &checksums, |key, bytes| {
        let whole = Kept::read(bytes).map(|kept| kept.checksum.map(|_| kept.is_whole(key, &checksums)));
        found.count(key, whole.unwrap_or(Some(false)));
    })?;
    let mut kept = AllTotals::new();
    for entry in transaction.open_table(TOTALS)?.iter()? {
        let (kind, bytes) = entry?;
        match Totals::decode(kind.value(), &checksums, bytes.value()) {
            Some(totals) => drop(kept.insert(kind.value().to_owned(), totals)),
            None => found.damaged_kinds.push(kind.value().to_owned()),
        }
    }
    for kind in there.keys().chain(kept.keys()) {
        if there.get(kind) != kept.get(kind) && !found.damaged_kinds.contains(kind) {
            found.damaged_kinds.push(kind.clone());
        }
    }
    Ok(found)
}

/// Checks the checksums of all pages of a file that was closed well, without a change to it. One that was not is looked
/// through when it is opened: `None`.
pub(super) fn pages(disk: &mut Disk) -> Result<Option<bool>, StoreError> {
    let loan = disk.lend_to_read().map_err(redb::Error::Io)?;
    if loan.len().map_err(redb::Error::Io)? == 0 {
        return Ok(None);
    }
    let mut builder = Database::builder();
    builder.set_cache_size(super::recovery::PAGES);
    builder.set_repair_callback(redb::RepairSession::abort);
    let mut database = match builder.create_with_backend(loan) {
        Ok(database) => database,
        Err(redb::DatabaseError::RepairAborted) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match database.check_integrity() {
        Ok(whole) => Ok(Some(whole)),
        // Neither the last commit nor the one before it is whole.
        Err(redb::DatabaseError::Storage(redb::StorageError::Corrupted(_))) => Ok(Some(false)),
        Err(error) => Err(error.into()),
    }
}

/// All that can be found out of a file that no server has, without a change to it.
pub(super) fn file(disk: &mut Disk) -> Result<Verification, StoreError> {
    let pages = pages(disk)?;
    // redb panics where it reads a record from a page that is damaged.
    if pages == Some(false) {
        return Ok(Verification { pages, ..Verification::default() });
    }
    let loan: Loan = disk.lend_to_read().map_err(redb::Error::Io)?;
    let database = super::recovery::open(loan)?;
    let transaction = database.begin_read()?;
    if let Err(TableError::TableDoesNotExist(_)) = transaction.open_table(RECORDS) {
        return Ok(Verification { pages, ..Verification::default() });
    }
    Ok(Verification { pages, ..records(&transaction)? })
}
