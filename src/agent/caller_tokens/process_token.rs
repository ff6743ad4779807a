//! Token of one process, with its slot in the limit of live tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::OwnedSemaphorePermit;

use crate::secrets::DerivedTokenManager;
use keyward_http::peer::PinnedProcess;

/// A process that has a token, or whose token is being created.
#[derive(Debug)]
pub(super) struct ProcessToken {
    pub(super) id: u64,
    /// Name in log events.
    pub(super) output: String,
    pub(super) process: Arc<PinnedProcess>,
    pub(super) manager: DerivedTokenManager,
    /// Occupies a slot of the limit until the token is revoked.
    pub(super) slot: LiveSlot,
}

/// Slot in the limit of live tokens; freed on drop.
#[derive(Debug)]
pub(super) struct LiveSlot {
    count: Arc<AtomicUsize>,
    _permit: OwnedSemaphorePermit,
}

impl LiveSlot {
    pub(super) fn new(permit: OwnedSemaphorePermit, count: Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self { count, _permit: permit }
    }
}

impl Drop for LiveSlot {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
