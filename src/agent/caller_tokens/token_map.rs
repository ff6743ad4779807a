//! Caches a value per caller token, such as a prebuilt header.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::caller_token::CallerToken;
use crate::token::{SessionHandle, TokenWatch};

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
