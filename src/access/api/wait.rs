//! Blocking queries: a read that waits until there is something newer than the caller knows.

use std::time::Duration;

use http::Response;
use tokio::time::Instant;

use super::answers::Given;
use super::ask::Ask;
use super::dispatch;
use super::error::ApiError;
use super::query::{Mode, Waiting};
use super::reply::{Body, say_default_policy, say_index};
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
        let given = look(rooms, ask, waiting.mode).await?;
        let Some(end) = end.filter(|_| !over && given.index.0 <= waiting.index) else { return Ok(given.answer) };
        let watch = given.watch;
        drop(given.answer);
        let changed = rooms.directory.records().store().changed(&watch, Revision(waiting.index));
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
async fn look(rooms: &Rooms, ask: &Ask, mode: Mode) -> Result<Given, ApiError> {
    let freshness = mode.freshness();
    // Taken before anything is read: of what is written meanwhile too much is forgotten, not too little.
    let at = rooms.directory.records().store().last("");
    let question = match at {
        // In boxes of their own, which are gone while this waits: ten thousand may. Who is nobody is told so by what it
        // asks for.
        Some(at) if Box::pin(ask.caller(rooms, freshness)).await.is_ok() => {
            let question = ask.question(&rooms.directory, mode);
            if let Some(given) = rooms.answers.get(&question, at, rooms.directory.now()) {
                return Ok(given);
            }
            Some((at, question))
        }
        _ => None,
    };
    let seen = Box::pin(dispatch::read(rooms, ask, freshness)).await?;
    let again = question.zip(seen.again());
    let (index, watch) = (seen.index, seen.watch);
    let mut answer = seen.reply.answer();
    say_index(answer.headers_mut(), index, mode);
    say_default_policy(answer.headers_mut(), rooms.directory.default_policy);
    if let Some(((at, question), seen)) = again {
        rooms.answers.keep(question, at, seen, answer.headers().clone());
    }
    Ok(Given { answer, index, watch })
}

/// Up to a sixteenth more, so that those who began together do not come back together.
fn jitter(wait: Duration) -> Duration {
    (wait / 16).mul_f64(random_unit())
}
