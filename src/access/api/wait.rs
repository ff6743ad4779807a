//! Blocking queries: a read that waits until there is something newer than the caller knows.

use std::time::Duration;

use http::Response;
use tokio::time::Instant;

use super::ask::Ask;
use super::dispatch;
use super::error::ApiError;
use super::query::Waiting;
use super::reply::{Body, say_index};
use super::rooms::Rooms;
use crate::access::store::Revision;
use crate::backoff::random_unit;

/// Reads, and while nothing is newer than `waiting.index`, waits and reads again: who asks and what it may do is looked at
/// each time. Once the time is over, the answer is what there is then.
pub(super) async fn read(rooms: &Rooms, ask: &Ask, waiting: Waiting) -> Result<Response<Body>, ApiError> {
    let freshness = waiting.mode.freshness();
    let end = (waiting.index > 0).then(|| Instant::now() + waiting.wait + jitter(waiting.wait));
    let mut over = false;
    loop {
        let epoch = rooms.directory.epoch(freshness).await?;
        // In a box of its own, which is gone while this waits: ten thousand may.
        let seen = Box::pin(dispatch::read(rooms, ask, freshness)).await?;
        let Some(end) = end.filter(|_| !over && seen.index.0 <= waiting.index) else {
            let mut answer = seen.reply.answer();
            say_index(answer.headers_mut(), seen.index, waiting.mode);
            return Ok(answer);
        };
        let changed = rooms.directory.records().store().changed(&seen.watch, Revision(waiting.index));
        tokio::select! {
            changed = changed => {
                changed.map_err(|error| ApiError::Service(error.into()))?;
            }
            restored = rooms.directory.restored_since(epoch) => restored?,
            () = tokio::time::sleep_until(end) => over = true,
            () = rooms.stop.cancelled() => over = true,
        }
    }
}

/// Up to a sixteenth more, so that those who began together do not come back together.
fn jitter(wait: Duration) -> Duration {
    (wait / 16).mul_f64(random_unit())
}
