//! The database over its disk, opened anew after a failure.

use std::sync::{Arc, PoisonError, RwLock};

use redb::{Database, DatabaseError};

use super::StoreError;
use super::backend::{Disk, Loan};
use super::cache::Cache;
use super::checksums::Checksums;
use super::revisions::Kinds;
use super::tables;
use super::watchers::Watchers;

/// Memory for pages of the file, in bytes. redb would take up to a gigabyte.
pub(super) const PAGES: usize = 16 * 1024 * 1024;

/// What readers and the writer share.
#[derive(Debug)]
pub(super) struct Shared {
    database: RwLock<Arc<Database>>,
    pub(super) cache: Cache,
    pub(super) checksums: Checksums,
    pub(super) kinds: Kinds,
    pub(super) watchers: Watchers,
}

impl Shared {
    pub(super) fn new(database: Database, checksums: Checksums) -> Result<Self, StoreError> {
        let shared = Self {
            database: RwLock::new(Arc::new(database)),
            cache: Cache::new(),
            checksums,
            kinds: Kinds::default(),
            watchers: Watchers::default(),
        };
        shared.learn_kinds()?;
        Ok(shared)
    }

    pub(super) fn database(&self) -> Arc<Database> {
        Arc::clone(&self.database.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another opening of the database in the place of the one that failed.
    pub(super) fn replace(&self, database: Database) -> Result<(), StoreError> {
        *self.database.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(database);
        // A batch whose writing failed may be there now, or no longer.
        self.cache.clear();
        self.learn_kinds()?;
        self.watchers.wake_all();
        Ok(())
    }

    fn learn_kinds(&self) -> Result<(), StoreError> {
        let kinds = tables::kinds(&self.database())?;
        self.kinds.changed(kinds.iter().map(|(kind, revision)| (kind.as_str(), *revision)));
        Ok(())
    }
}

/// Opens the database. Blocks: where it was not closed, the whole of it is looked through.
pub(super) fn open(loan: Loan) -> Result<Database, DatabaseError> {
    let mut builder = Database::builder();
    builder.set_cache_size(PAGES);
    builder.set_repair_callback(|repair| {
        if repair.progress() == 0.0 {
            tracing::warn!(event = "acl.store.repairing", "the store was not closed: looking through all of it");
        }
    });
    builder.create_with_backend(loan)
}

/// Opens the database anew after a failure, to be read and written if the disk lets it, or else to be read alone.
/// Whether it can be written. If `readable`, and it cannot be written, it stays as it is.
pub(super) fn reopen(shared: &Shared, disk: &mut Disk, readable: bool) -> Result<bool, StoreError> {
    let written = disk.write_again();
    if written.is_err() && readable {
        return Ok(false);
    }
    let opened = written.map_err(redb::Error::Io).map_err(StoreError::from).and_then(|()| Ok(open(disk.lend())?));
    let (database, writable) = match opened {
        Ok(database) => (database, true),
        Err(_) => (open(disk.lend_to_read().map_err(redb::Error::Io)?)?, false),
    };
    shared.replace(database)?;
    Ok(writable)
}
