//! Store of an ACL server that can fail, pause a read, and pretend to be shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use keyward_acl::store::{
    Batch, CommitError, Export, Freshness, Key, Listing, Page, Record, Revision, Store, StoreError,
};
use tokio::sync::Notify;

/// Store that can stop before a batch, or delay a read.
#[derive(Debug)]
pub(crate) struct StoreFaults {
    store: Arc<dyn Store>,
    /// Batches that are written before the failure.
    pub(crate) batches: AtomicUsize,
    /// Batches that were refused because a check failed.
    pub(crate) conflicts: AtomicUsize,
    /// Key or prefix of the read that is delayed once and then returns the old value.
    delayed_key: &'static str,
    reached: AtomicBool,
    open: Notify,
    /// Pretends that other servers use the store.
    shared: bool,
    /// Fails as a full disk does.
    full: bool,
}

impl StoreFaults {
    pub(crate) fn new(store: &Arc<dyn Store>) -> Self {
        Self {
            store: Arc::clone(store),
            batches: AtomicUsize::new(usize::MAX),
            conflicts: AtomicUsize::new(0),
            delayed_key: "",
            reached: AtomicBool::new(false),
            open: Notify::new(),
            shared: false,
            full: false,
        }
    }

    pub(crate) fn with_delayed_read(store: &Arc<dyn Store>, delayed_key: &'static str) -> Self {
        Self { delayed_key, ..Self::new(store) }
    }

    pub(crate) fn shared(store: &Arc<dyn Store>) -> Self {
        Self { shared: true, ..Self::new(store) }
    }

    pub(crate) fn with_full_disk(store: &Arc<dyn Store>) -> Self {
        Self { full: true, ..Self::new(store) }
    }

    /// Lets reads pass until [`StoreFaults::arm`].
    pub(crate) fn disarm(&self) {
        self.reached.store(true, Ordering::SeqCst);
    }

    /// Delays the next read.
    pub(crate) fn arm(&self) {
        self.reached.store(false, Ordering::SeqCst);
    }

    /// Waits until the read is paused.
    pub(crate) async fn is_reached(&self) {
        while !self.reached.load(Ordering::SeqCst) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// Lets the paused read return.
    pub(crate) fn release(&self) {
        self.open.notify_one();
    }

    async fn hold_up(&self, what: &str) {
        if what == self.delayed_key && !self.reached.swap(true, Ordering::SeqCst) {
            self.open.notified().await;
        }
    }
}

#[async_trait]
impl Store for StoreFaults {
    async fn get(&self, key: &Key, freshness: Freshness) -> Result<Option<Record>, StoreError> {
        let found = self.store.get(key, freshness).await;
        self.hold_up(key.as_str()).await;
        found
    }

    async fn list(&self, prefix: &str, page: Page, freshness: Freshness) -> Result<Listing, StoreError> {
        let listing = self.store.list(prefix, page, freshness).await;
        self.hold_up(prefix).await;
        listing
    }

    async fn export(&self) -> Result<Export, StoreError> {
        self.store.export().await
    }

    async fn commit(&self, batch: Batch) -> Result<Revision, CommitError> {
        let left = self.batches.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let full = || StoreError::Full(Arc::new(std::io::Error::from(std::io::ErrorKind::StorageFull)));
        left.map_err(|_| if self.full { full() } else { StoreError::Stopped })?;
        let outcome = self.store.commit(batch).await;
        if matches!(outcome, Err(CommitError::Conflict(_))) {
            self.conflicts.fetch_add(1, Ordering::SeqCst);
        }
        outcome
    }

    async fn changed(&self, prefix: &str, since: Revision) -> Result<Revision, StoreError> {
        self.store.changed(prefix, since).await
    }

    fn last(&self, kind: &str) -> Option<Revision> {
        self.store.last(kind).filter(|_| !self.shared)
    }
}
