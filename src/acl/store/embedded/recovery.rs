//! Opens the database, and reopens it after a failure.

use std::sync::Arc;

use parking_lot::RwLock;
use redb::{Database, DatabaseError};

use super::StoreError;
use super::backend::{BackendHandle, LeasedBackend};
use super::cache::Cache;
use super::checksums::Checksums;
use super::revisions::KindRevisions;
use super::tables;
use super::watchers::Watchers;

/// Page cache size, in bytes. redb's default is up to a gigabyte.
pub(super) const PAGE_CACHE_BYTES: usize = 16 * 1024 * 1024;

/// State shared by readers and the writer.
#[derive(Debug)]
pub(super) struct SharedState {
    database: RwLock<Arc<Database>>,
    pub(super) cache: Cache,
    pub(super) checksums: Checksums,
    pub(super) kinds: KindRevisions,
    pub(super) watchers: Watchers,
}

impl SharedState {
    pub(super) fn new(database: Database, checksums: Checksums) -> Result<Self, StoreError> {
        let shared = Self {
            database: RwLock::new(Arc::new(database)),
            cache: Cache::new(),
            checksums,
            kinds: KindRevisions::default(),
            watchers: Watchers::default(),
        };
        shared.load_kind_revisions()?;
        Ok(shared)
    }

    pub(super) fn database(&self) -> Arc<Database> {
        Arc::clone(&self.database.read())
    }

    /// Replaces the database after a failure.
    pub(super) fn replace(&self, database: Database) -> Result<(), StoreError> {
        *self.database.write() = Arc::new(database);
        // A batch whose write failed may be visible now, or no longer.
        self.cache.clear();
        self.load_kind_revisions()?;
        // If that batch is visible now, its writer has not woken the tasks that wait for it.
        self.watchers.wake_all();
        Ok(())
    }

    fn load_kind_revisions(&self) -> Result<(), StoreError> {
        let kinds = tables::kind_revisions(&self.database())?;
        self.kinds.record(kinds.iter().map(|(kind, revision)| (kind.as_str(), *revision)));
        Ok(())
    }
}

/// Opens the database. Blocks: a file that was not closed is checked completely.
pub(super) fn open(lease: LeasedBackend) -> Result<Database, DatabaseError> {
    let mut builder = Database::builder();
    builder.set_cache_size(PAGE_CACHE_BYTES);
    builder.set_repair_callback(|repair| {
        if repair.progress() == 0.0 {
            tracing::warn!(event = "acl.store.repairing", "the store was not closed cleanly: checking the whole file");
        }
    });
    builder.create_with_backend(lease)
}

/// Reopens the database after a failure, for reading and writing if the disk allows it, otherwise for reading only.
/// Returns whether it is writable. If `readable`, an unwritable database stays open as it is.
pub(super) fn reopen(shared: &SharedState, disk: &mut BackendHandle, readable: bool) -> Result<bool, StoreError> {
    let written = disk.write_again();
    if written.is_err() && readable {
        return Ok(false);
    }
    let opened = written.map_err(redb::Error::Io).map_err(StoreError::from).and_then(|()| Ok(open(disk.lease())?));
    let (database, writable) = match opened {
        Ok(database) => (database, true),
        Err(_) => (open(disk.lease_read_only().map_err(redb::Error::Io)?)?, false),
    };
    shared.replace(database)?;
    Ok(writable)
}
