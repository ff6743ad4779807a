//! Blocking queries: a read that waits until there is something newer than the caller knows.

use std::time::Duration;

use http::Response;
use tokio::time::Instant;

use super::ask::Ask;
use super::dispatch;
use super::error::ApiError;
use super::query::Waiting;
use super::reply::{Body, Seen, say_index};
use super::rooms::Rooms;
use crate::access::store::{Freshness, Revision};
use crate::backoff::random_unit;

/// Reads, and while nothing is newer than `waiting.index`, waits and reads again: who asks and what it may do is looked at
/// each time. Once the time is over, the answer is what there is then.
pub(super) async fn read(rooms: &Rooms, ask: &Ask, waiting: Waiting) -> Result<Response<Body>, ApiError> {
    let freshness = waiting.mode.freshness();
    let end = (waiting.index > 0).then(|| Instant::now() + waiting.wait + jitter(waiting.wait));
    let mut over = false;
    loop {
        let epoch = rooms.directory.epoch(freshness).await?;
        let seen = look(rooms, ask, freshness).await?;
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

/// Reads, or finds what was read already.
async fn look(rooms: &Rooms, ask: &Ask, freshness: Freshness) -> Result<Seen, ApiError> {
    // In boxes of their own, which are gone while this waits: ten thousand may.
    let read = || Box::pin(dispatch::read(rooms, ask, freshness));
    // Taken before anything is read: of what is written meanwhile too much is forgotten, not too little.
    let Some(at) = rooms.directory.records().store().last("") else { return read().await };
    // Who is nobody is told so by what it asks for.
    if Box::pin(ask.caller(rooms, freshness)).await.is_err() {
        return read().await;
    }
    let question = ask.question(&rooms.directory);
    if let Some(seen) = rooms.answers.get(&question, at, rooms.directory.now()) {
        return Ok(seen);
    }
    let seen = read().await?;
    rooms.answers.keep(question, at, &seen);
    Ok(seen)
}

/// Up to a sixteenth more, so that those who began together do not come back together.
fn jitter(wait: Duration) -> Duration {
    (wait / 16).mul_f64(random_unit())
}
