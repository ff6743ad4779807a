//! How many callers may wait at once: those who only wait do not take the connections that others need.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tokio::sync::Semaphore;

use crate::agent::json_response::{Errors, retry_later};
use crate::http::server::ResponseFuture;

/// WaitSlots of one kind, one for each caller that waits.
#[derive(Debug)]
pub(super) struct WaitSlots(Arc<Semaphore>);

impl WaitSlots {
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// The answer, which holds a place until it is there; another one at once where no place is left.
    pub(super) fn wait(
        &self,
        answer: impl Future<Output = Response<Full<Bytes>>> + Send + 'static,
    ) -> ResponseFuture<Full<Bytes>> {
        let Ok(place) = Arc::clone(&self.0).try_acquire_owned() else {
            let errors = Errors { errors: ["too many callers wait here; ask again later, or without \"wait\""] };
            return ResponseFuture::ready(retry_later(StatusCode::TOO_MANY_REQUESTS, &errors, RETRY_AFTER));
        };
        ResponseFuture::waiting(async move {
            let _place = place;
            answer.await
        })
    }
}

const RETRY_AFTER: Duration = Duration::from_secs(5);
