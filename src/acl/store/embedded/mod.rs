//! Store in one local file (redb): snapshot readers, one writer, durable commits.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use keyward_machine::secure_dir;
use redb::{Database, StorageBackend};
use tokio::sync::{mpsc, oneshot};

use self::backend::BackendHandle;
use self::files::LockedFile;
pub(super) use self::reads::Export;
use self::reads::{begin, get, list};
use self::recovery::SharedState;
use self::tables::kind_of;
use self::writer::CommitJob;
use super::{
    Batch, Check, CommitError, FORMAT, Freshness, Key, Listing, OpenError, Page, Record, Revision, Store, StoreError,
    Verification, Write, revisions, watchers,
};

// 0: backend, tables, caches
mod cache;
mod checksums;
mod backend;
mod files;
mod tables;

// 1: the database, reopened after a failure, and reads
mod recovery;
mod reads;
mod verify;

// 2: the writer thread
mod writer;

/// Batches queued for the writer; further callers wait.
const QUEUE_LENGTH: usize = 1024;

/// A store in its own folder, open in one process at a time.
///
/// [`Store::get`] is cheap: recently read records are in memory, and a hit takes a fraction of a microsecond. So are
/// [`Store::last`], and [`Store::changed`] if there is a newer change.
///
/// A write that the disk rejects returns an error; reads continue with what the disk still provides. The first write
/// after a pause of a second (longer for a large store) tries again, so freeing space is enough. A batch whose commit
/// failed may turn out to be written.
#[derive(Debug)]
pub struct Embedded {
    shared: Arc<SharedState>,
    jobs: Option<mpsc::Sender<CommitJob>>,
    writer: Option<std::thread::JoinHandle<()>>,
    path: PathBuf,
}

impl Embedded {
    /// Opens the store in `folder` and creates it if missing. Blocks: after a crash the whole file is checked.
    pub fn open(folder: &Path, datacenter: &str) -> Result<Self, OpenError> {
        let folder = secure_dir::create_private(folder, 0o022)?;
        let path = Self::file_in(&folder);
        Self::open_backend(LockedFile::open_private(&path)?, &path, datacenter)
    }

    /// Opens a store over any backend; `path` is its name in errors. The caller ensures exclusive access. Blocks, as
    /// [`Embedded::open`] does.
    pub fn open_backend(backend: impl StorageBackend, path: &Path, datacenter: &str) -> Result<Self, OpenError> {
        let store = path.display().to_string();
        let path = path.to_owned();
        let damaged = |source: StoreError| OpenError::Damaged { store: store.clone(), source };
        let mut disk = BackendHandle::new(backend);
        if verify::pages(&mut disk).map_err(damaged)? == Some(false) {
            return Err(OpenError::PagesDamaged { store });
        }
        let database = recovery::open(disk.lease()).map_err(|error| damaged(error.into()))?;
        let about = tables::read_or_init_metadata(&database, datacenter).map_err(damaged)?;
        if about.format != FORMAT {
            return Err(OpenError::Format { store, found: about.format });
        }
        if about.datacenter != datacenter {
            return Err(OpenError::Datacenter { store, found: about.datacenter, expected: datacenter.to_owned() });
        }
        let shared = Arc::new(SharedState::new(database, about.checksums).map_err(damaged)?);
        let (jobs, queue) = mpsc::channel(QUEUE_LENGTH);
        let writer = writer::start(Arc::clone(&shared), disk, queue)
            .map_err(|source| OpenError::File { path: path.clone(), source })?;
        Ok(Self { shared, jobs: Some(jobs), writer: Some(writer), path })
    }

    /// Verifies the store in `folder`, which no server may have open. Changes nothing. Blocks.
    pub fn verify_file(folder: &Path) -> Result<Verification, OpenError> {
        let path = Self::file_in(folder);
        let damaged = |source: StoreError| OpenError::Damaged { store: path.display().to_string(), source };
        verify::file(&mut BackendHandle::new(LockedFile::existing(&path)?)).map_err(damaged)
    }

    /// Returns the path of the store file in a folder.
    pub fn file_in(folder: &Path) -> PathBuf {
        folder.join("acl.redb")
    }

    /// Returns the path of the store file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn submit(&self, batch: Batch) -> Result<Revision, CommitError> {
        let (outcome, response) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or(StoreError::Stopped)?;
        jobs.send(CommitJob { batch, outcome }).await.map_err(|_| StoreError::Stopped)?;
        response.await.map_err(|_| CommitError::Unknown(StoreError::Stopped))?
    }

    /// Reads from the file. After an I/O error redb serves only cached pages; an empty batch waits until the writer has
    /// reopened the database.
    async fn read<T: Send>(
        &self,
        read: impl Fn(&Database) -> Result<T, StoreError> + Send + Sync,
    ) -> Result<T, StoreError> {
        let result = read(&self.shared.database());
        if !matches!(result, Err(StoreError::Failed(_))) {
            return result;
        }
        // The outcome is irrelevant for reads.
        let _ = self.submit(Batch::default()).await;
        read(&self.shared.database())
    }
}

/// Reads run on the calling thread: pages are nearly always in memory, and a thread switch costs more than the read.
/// Concurrent batches share a disk sync.
#[async_trait]
impl Store for Embedded {
    async fn get(&self, key: &Key, _: Freshness) -> Result<Option<Record>, StoreError> {
        let miss = match self.shared.cache.get(key) {
            Ok(record) => return Ok(Some(record)),
            Err(miss) => miss,
        };
        let checksums = &self.shared.checksums;
        let record = self.read(|database| get(&begin(database)?, checksums, key)).await?;
        if let Some(record) = &record {
            self.shared.cache.insert_after_miss(key, record, miss);
        }
        Ok(record)
    }

    async fn list(&self, prefix: &str, page: Page, _: Freshness) -> Result<Listing, StoreError> {
        let checksums = &self.shared.checksums;
        self.read(|database| list(&begin(database)?, checksums, prefix, &page)).await
    }

    async fn export(&self) -> Result<super::Export, StoreError> {
        Ok(super::Export(super::ExportSource::Embedded(
            self.read(|database| Export::begin(database, &self.shared.checksums)).await?,
        )))
    }

    async fn commit(&self, batch: Batch) -> Result<Revision, CommitError> {
        self.submit(batch.normalize()?).await
    }

    async fn changed(&self, prefix: &str, since: Revision) -> Result<Revision, StoreError> {
        let kind = kind_of(prefix);
        let last = self.shared.kinds.last(kind);
        if last > since {
            return Ok(last);
        }
        let watcher = self.shared.watchers.watch(prefix);
        let mut changed = std::pin::pin!(watcher.changed());
        // Registered before the revision is read, so that no change in between is missed.
        changed.as_mut().enable();
        let last = self.shared.kinds.last(kind);
        if last > since {
            return Ok(last);
        }
        changed.await;
        Ok(self.shared.kinds.last(kind))
    }

    fn last(&self, kind: &str) -> Option<Revision> {
        Some(self.shared.kinds.last(kind))
    }

    async fn verify(&self) -> Result<Verification, StoreError> {
        let shared = Arc::clone(&self.shared);
        let verified = tokio::task::spawn_blocking(move || verify::records(&begin(&shared.database())?)).await;
        verified.map_err(StoreError::failed)?
    }
}

impl Drop for Embedded {
    /// Waits for accepted batches, so that the file is free for the next process.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}
