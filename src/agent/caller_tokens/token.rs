//! A caller token, and values that are cached for each, such as a prebuilt header.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::token::{SessionHandle, TokenWatch};

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

/// Values by the id of their token. Those of ended tokens are dropped when another is built.
#[derive(Debug)]
pub(crate) struct TokenMap<T>(Mutex<HashMap<u64, (TokenWatch, Arc<T>)>>);

impl<T> Default for TokenMap<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> TokenMap<T> {
    /// Returns the value of a token; builds it the first time.
    pub(crate) fn get_or_build(&self, token: &CallerToken, build: impl FnOnce(SessionHandle) -> T) -> Arc<T> {
        let mut values = self.0.lock();
        if let Some((_, value)) = values.get(&token.id) {
            return Arc::clone(value);
        }
        values.retain(|_, (watch, _)| !watch.is_closed());
        let value = Arc::new(build(token.handle.clone()));
        values.insert(token.id, (token.handle.watch.clone(), Arc::clone(&value)));
        value
    }
}
