//! The store in one file of this machine (redb): snapshot readers beside one writer, each commit durable.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use redb::backends::FileBackend;
use redb::{Database, StorageBackend};
use tokio::sync::{mpsc, oneshot};

use self::backend::Disk;
pub(super) use self::reads::Export;
use self::reads::{begin, get, list};
use self::recovery::Shared;
use self::tables::kind_of;
use self::writer::Job;
use super::{
    Batch, Check, CommitError, FORMAT, Freshness, Key, Listing, OpenError, Page, Record, Revision, Store, StoreError,
    Verification, Write, revisions, watchers,
};
use crate::secure_dir;

// 0: what it stands on, and what it remembers
mod cache;
mod checksums;
mod backend;
mod files;
mod tables;

// 1: the database, opened anew after a failure, and looks into it
mod recovery;
mod reads;
mod verify;

// 2: the one thread that writes
mod writer;

/// Batches that may wait for the writer; more wait for room.
const QUEUE: usize = 1024;

/// A store in a folder of its own. One process at a time may have it.
///
/// [`Store::get`] is cheap: what was read lately is in memory, and a look there takes a fraction of a microsecond. So
/// are [`Store::last`], and [`Store::changed`] where something is newer.
///
/// A write that the disk refuses is answered with an error; reads go on, from what the disk still gives. The next
/// write after a pause of a second (longer for a large store) tries the disk again, so that freed space is enough. A
/// batch whose commit failed may turn out to have been written.
#[derive(Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<std::thread::JoinHandle<()>>,
    path: PathBuf,
}

impl Embedded {
    /// Opens the store in `folder`, made where it is not there. Blocks: after a crash the whole file is looked through.
    ///
    /// # Errors
    /// Another process has it, it belongs to another datacenter, it is damaged, or it cannot be opened.
    pub fn open(folder: &Path, datacenter: &str) -> Result<Self, OpenError> {
        let folder = secure_dir::create_private(folder, 0o022)?;
        let path = Self::file_in(&folder);
        let backend = FileBackend::new(files::private_file(&path)?);
        let backend =
            backend.map_err(|error| OpenError::Damaged { store: path.display().to_string(), source: error.into() })?;
        Self::over(backend, &path, datacenter)
    }

    /// Opens a store over anything that keeps bytes; `path` is what errors call it. The caller keeps others away from
    /// the bytes. Blocks, as [`Embedded::open`] does.
    ///
    /// # Errors
    /// It belongs to another datacenter, it is damaged, or it cannot be read and written.
    pub fn over(backend: impl StorageBackend, path: &Path, datacenter: &str) -> Result<Self, OpenError> {
        let (path, store) = (path.to_owned(), path.display().to_string());
        let damaged = |source: StoreError| OpenError::Damaged { store: store.clone(), source };
        let mut disk = Disk::new(backend);
        if verify::pages(&mut disk).map_err(damaged)? == Some(false) {
            return Err(OpenError::PagesDamaged { store });
        }
        let database = recovery::open(disk.lend()).map_err(|error| damaged(error.into()))?;
        let about = tables::introduce(&database, datacenter).map_err(damaged)?;
        if about.format != FORMAT {
            return Err(OpenError::Format { store, found: about.format });
        }
        if about.datacenter != datacenter {
            return Err(OpenError::Datacenter { store, found: about.datacenter, wanted: datacenter.to_owned() });
        }
        let shared = Arc::new(Shared::new(database, about.checksums).map_err(damaged)?);
        let (jobs, queue) = mpsc::channel(QUEUE);
        let writer = writer::start(Arc::clone(&shared), disk, queue)
            .map_err(|source| OpenError::File { path: path.clone(), source })?;
        Ok(Self { shared, jobs: Some(jobs), writer: Some(writer), path })
    }

    /// Checks all that the store in `folder` holds, which no server may have open. Changes nothing, whatever it finds. Blocks.
    ///
    /// # Errors
    /// There is none, a server has it, or it cannot be read as a store.
    pub fn verify_file(folder: &Path) -> Result<Verification, OpenError> {
        let path = Self::file_in(folder);
        let damaged = |source: StoreError| OpenError::Damaged { store: path.display().to_string(), source };
        let backend = FileBackend::new(files::existing_file(&path)?).map_err(|error| damaged(error.into()))?;
        verify::file(&mut Disk::new(backend)).map_err(damaged)
    }

    /// The file of the store in a folder.
    pub fn file_in(folder: &Path) -> PathBuf {
        folder.join("access.redb")
    }

    /// The store's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn submit(&self, batch: Batch) -> Result<Revision, CommitError> {
        let (outcome, answer) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or(StoreError::Stopped)?;
        jobs.send(Job { batch, outcome }).await.map_err(|_| StoreError::Stopped)?;
        answer.await.map_err(|_| CommitError::Unknown(StoreError::Stopped))?
    }

    /// Looks into the file. After a failure redb reads nothing more that it has not in memory; the writer, which opens
    /// it anew, answers no batch before it has done so.
    async fn look<T: Send>(
        &self,
        look: impl Fn(&Database) -> Result<T, StoreError> + Send + Sync,
    ) -> Result<T, StoreError> {
        let found = look(&self.shared.database());
        if !matches!(found, Err(StoreError::Failed(_))) {
            return found;
        }
        // Its outcome says nothing about reads.
        let _ = self.submit(Batch::default()).await;
        look(&self.shared.database())
    }
}

/// Reads happen in place, without another thread: the page is nearly always in memory, and a hop costs more than the
/// read. Batches that come at the same time share the wait for the disk.
#[async_trait]
impl Store for Embedded {
    async fn get(&self, key: &Key, _: Freshness) -> Result<Option<Record>, StoreError> {
        let miss = match self.shared.cache.get(key) {
            Ok(record) => return Ok(Some(record)),
            Err(miss) => miss,
        };
        let checksums = &self.shared.checksums;
        let found = self.look(|database| get(&begin(database)?, checksums, key)).await?;
        if let Some(record) = &found {
            self.shared.cache.fill(key, record, miss);
        }
        Ok(found)
    }

    async fn list(&self, prefix: &str, page: Page, _: Freshness) -> Result<Listing, StoreError> {
        let checksums = &self.shared.checksums;
        self.look(|database| list(&begin(database)?, checksums, prefix, &page)).await
    }

    async fn export(&self) -> Result<super::Export, StoreError> {
        Ok(super::Export(super::Exported::Embedded(
            self.look(|database| Export::begin(database, &self.shared.checksums)).await?,
        )))
    }

    async fn commit(&self, batch: Batch) -> Result<Revision, CommitError> {
        self.submit(batch.settled()?).await
    }

    async fn changed(&self, prefix: &str, since: Revision) -> Result<Revision, StoreError> {
        let kind = kind_of(prefix);
        let last = self.shared.kinds.last(kind);
        if last > since {
            return Ok(last);
        }
        let watcher = self.shared.watchers.watch(prefix);
        let mut changed = std::pin::pin!(watcher.changed());
        // Registered before the look, so that a change right after it is not missed.
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
    /// Waits for the batches that were taken on, so that the file is free for the next one to open it.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}
