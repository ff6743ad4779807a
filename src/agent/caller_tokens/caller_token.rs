//! Handle of a caller token, as its manager holds it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::token::SessionHandle;

/// A token that is derived from a session's for one caller, or for one of its processes.
#[derive(Debug, Clone)]
pub struct CallerToken {
    /// Differs from that of any other token of a caller in this process.
    pub(super) id: u64,
    /// Publishes the token.
    pub handle: SessionHandle,
}

impl CallerToken {
    /// Creates a token with a new id.
    pub fn new(handle: SessionHandle) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), handle }
    }
}
