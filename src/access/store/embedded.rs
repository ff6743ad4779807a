//! The store in one file of this machine (redb): snapshot readers beside one writer, each commit durable.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::FileBackend;
use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tokio::sync::{mpsc, oneshot};

use super::tables::{KINDS, RECORDS, decode};
use super::watchers::Watchers;
use super::writer::{self, Job};
use super::{Batch, CommitError, FORMAT, Key, Listing, OpenError, Page, Record, Revision, StoreError, files};
use crate::folder;

const ABOUT: TableDefinition<'_, &str, &str> = TableDefinition::new("about");

/// Memory for pages of the file, in bytes. redb would take up to a gigabyte.
const CACHE: usize = 32 * 1024 * 1024;

/// Batches that may wait for the writer; more wait for room.
const QUEUE: usize = 1024;

/// A store in a folder of its own. One process at a time may have it.
#[derive(Debug)]
pub struct Embedded {
    database: Arc<Database>,
    watchers: Arc<Watchers>,
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
        let folder = folder::private(folder, 0o022)?;
        let path = folder.join("access.redb");
        let backend = FileBackend::new(files::private_file(&path)?);
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE);
        let database =
            backend.and_then(|backend| builder.create_with_backend(backend)).map_err(|error| match error {
                DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { path: path.clone() },
                other => OpenError::Damaged { path: path.clone(), source: other.into() },
            })?;
        let about =
            introduce(&database, datacenter).map_err(|source| OpenError::Damaged { path: path.clone(), source })?;
        if about.format != FORMAT {
            return Err(OpenError::Format { path, found: about.format });
        }
        if about.datacenter != datacenter {
            return Err(OpenError::Datacenter { path, found: about.datacenter, wanted: datacenter.to_owned() });
        }
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (database, watchers) = (Arc::new(database), Arc::new(Watchers::default()));
        let writer = writer::start(Arc::clone(&database), queue, Arc::clone(&watchers))
            .map_err(|source| OpenError::File { path: path.clone(), source })?;
        Ok(Self { database, watchers, jobs: Some(jobs), writer: Some(writer), path })
    }

    /// The store's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The record of that key.
    ///
    /// Reads in place, without another thread: the page is nearly always in memory, and a hop costs more than the read.
    ///
    /// # Errors
    /// The store failed.
    #[expect(clippy::unused_async, reason = "a store on the network has to wait here")]
    pub async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let records = self.database.begin_read()?.open_table(RECORDS)?;
        records.get(key.as_str())?.map(|bytes| decode(key.as_str(), bytes.value())).transpose()
    }

    /// The records whose keys start with `prefix`, which ends with a slash.
    ///
    /// # Errors
    /// The store failed.
    #[expect(clippy::unused_async, reason = "a store on the network has to wait here")]
    pub async fn list(&self, prefix: &str, page: Page) -> Result<Listing, StoreError> {
        let transaction = self.database.begin_read()?;
        let kinds = transaction.open_table(KINDS)?;
        let revision = kinds.get(kind_of(prefix))?.map_or(0, |last| last.value());
        let records = transaction.open_table(RECORDS)?;
        let start = page.after.as_ref().map_or(prefix, Key::as_str);
        let mut listing = Listing { entries: Vec::new(), more: false, revision: Revision(revision) };
        for entry in records.range(start..)? {
            let (key, bytes) = entry?;
            let key = key.value();
            if !key.starts_with(prefix) {
                break;
            }
            if page.after.as_ref().is_some_and(|after| after.as_str() == key) {
                continue;
            }
            if listing.entries.len() == page.limit {
                listing.more = true;
                break;
            }
            listing.entries.push((Key::from(key.to_owned()), decode(key, bytes.value())?));
        }
        Ok(listing)
    }

    /// Writes a batch. Once this returns, the writes outlive a crash of the process and of the machine. Batches that
    /// come at the same time share the wait for the disk. A caller that goes away in the meantime does not stop it.
    ///
    /// # Errors
    /// A check does not hold, the batch is too large, or the store failed.
    pub async fn commit(&self, batch: Batch) -> Result<Revision, CommitError> {
        if !batch.fits() {
            return Err(CommitError::TooLarge);
        }
        let (outcome, answer) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or(StoreError::Stopped)?;
        jobs.send(Job { batch, outcome }).await.map_err(|_| StoreError::Stopped)?;
        answer.await.map_err(|_| StoreError::Stopped)?
    }

    /// Returns once a record of `prefix` (a key, or the start of keys up to a slash) may be newer than `since`, with
    /// the revision of its kind; at once where something of the same kind is newer.
    ///
    /// # Errors
    /// The store failed.
    pub async fn changed(&self, prefix: &str, since: Revision) -> Result<Revision, StoreError> {
        let watcher = self.watchers.watch(prefix);
        let mut changed = std::pin::pin!(watcher.changed.notified());
        // Registered before the look, so that a change right after it is not missed.
        changed.as_mut().enable();
        let revision = self.revision(prefix)?;
        if revision > since {
            return Ok(revision);
        }
        changed.await;
        self.revision(prefix)
    }

    fn revision(&self, prefix: &str) -> Result<Revision, StoreError> {
        let kinds = self.database.begin_read()?.open_table(KINDS)?;
        Ok(Revision(kinds.get(kind_of(prefix))?.map_or(0, |last| last.value())))
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

struct About {
    format: String,
    datacenter: String,
}

/// Reads what the store says of itself; a new one is told.
fn introduce(database: &Database, datacenter: &str) -> Result<About, StoreError> {
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

fn kind_of(prefix: &str) -> &str {
    prefix.split('/').next().unwrap_or_default()
}
