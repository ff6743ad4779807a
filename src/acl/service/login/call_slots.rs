//! Bounds the calls of other services that callers who are not authenticated can cause at once.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// Slots for the calls of one method.
#[derive(Debug)]
pub(super) struct CallSlots(Semaphore);

const MAX_CALLS: usize = 16;
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// All slots stay taken.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("giving up after 10 s without a free slot")]
pub(super) struct NoSlot;

impl CallSlots {
    pub(super) const fn new() -> Self {
        Self(Semaphore::const_new(MAX_CALLS))
    }

    /// Waits for a slot, which is free again once the permit is dropped.
    pub(super) async fn take(&self) -> Result<SemaphorePermit<'_>, NoSlot> {
        let slot = tokio::time::timeout(TIME_LIMIT, self.0.acquire()).await.map_err(|_| NoSlot)?;
        slot.map_err(|_| NoSlot)
    }
}
