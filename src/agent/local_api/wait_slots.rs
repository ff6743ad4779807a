//! Bounds the callers that wait at once, so that they do not take the connections that others need.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tokio::sync::Semaphore;

use crate::json_response::{Errors, retry_later};
use keyward_http::server::ResponseFuture;

/// Slots for waiting callers.
#[derive(Debug)]
pub(super) struct WaitSlots(Arc<Semaphore>);

impl WaitSlots {
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// Returns a future for `answer` that holds a slot until it completes, or a 429 at once if there is no slot left.
    pub(super) fn wait(
        &self,
        response: impl Future<Output = Response<Full<Bytes>>> + Send + 'static,
    ) -> ResponseFuture<Full<Bytes>> {
        let Ok(slot) = Arc::clone(&self.0).try_acquire_owned() else {
            let errors =
                Errors { errors: ["too many callers wait at this listener; retry later, or without \"wait\""] };
            return ResponseFuture::ready(retry_later(StatusCode::TOO_MANY_REQUESTS, &errors, RETRY_AFTER));
        };
        ResponseFuture::waiting(async move {
            let _slot = slot;
            response.await
        })
    }
}

const RETRY_AFTER: Duration = Duration::from_secs(5);
