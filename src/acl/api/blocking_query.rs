//! Blocking queries: a read that waits until there is something newer than the caller knows.

use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::future::select_all;
use http::Response;
use tokio::time::Instant;

use super::dispatch;
use super::error::ApiError;
use super::query::{Mode, Waiting};
use super::request::Ask;
use super::response::{Body, Seen, say_default_policy, say_index};
use super::response_cache::{Asked, Given};
use super::state::Rooms;
use crate::acl::store::Revision;
use crate::backoff::random_unit;

/// Reads, and while nothing is newer than `waiting.index`, waits and reads again: who asks and what it may do is looked at
/// each time. Once the time is over, the answer is what there is then.
pub(super) async fn read(rooms: &Rooms, ask: &Ask, waiting: Waiting) -> Result<Response<Body>, ApiError> {
    let freshness = waiting.mode.freshness();
    let end = (waiting.index > 0).then(|| Instant::now() + waiting.wait + jitter(waiting.wait));
    let mut over = false;
    // What is asked stays the same however often it is asked.
    let mut question = None;
    loop {
        // What to wait on and until when, or the answer where there is nothing to wait for.
        let judged = |given: Given| match end {
            Some(end) if !over && given.index.0 <= waiting.index => ControlFlow::Continue((given.watch, end)),
            _ => ControlFlow::Break(given.answer),
        };
        // Taken before anything is read: of what is written meanwhile too much is forgotten, not too little.
        let at = rooms.directory.records().store().last("");
        // What is given again was seen while the store was open, and nothing was written since: no restore has begun.
        let known = match at.and_then(|at| given_again(rooms, ask, waiting.mode, &mut question, at)).map(judged) {
            Some(ControlFlow::Break(answer)) => return Ok(answer),
            Some(ControlFlow::Continue(known)) => Some(known),
            None => None,
        };
        let epoch = rooms.directory.epoch(freshness).await?;
        let (watch, end) = if let Some(known) = known {
            known
        } else {
            // In a box of its own, which is gone while this waits: ten thousand may.
            match judged(Box::pin(look(rooms, ask, waiting.mode, at.zip(question.as_ref()))).await?) {
                ControlFlow::Continue(found) => found,
                ControlFlow::Break(answer) => return Ok(answer),
            }
        };
        let store = rooms.directory.records().store();
        let since = Revision(waiting.index);
        let changed = select_all(watch.iter().map(|watched| store.changed(watched, since)));
        tokio::select! {
            biased;
            (changed, ..) = changed => {
                changed.map_err(|error| ApiError::Service(error.into()))?;
            }
            restored = rooms.directory.restored_since(epoch) => restored?,
            () = tokio::time::sleep_until(end) => over = true,
            () = rooms.stop.cancelled() => over = true,
        }
    }
}

/// What was read already, if nothing was written since.
fn given_again(rooms: &Rooms, ask: &Ask, mode: Mode, question: &mut Option<Asked>, at: Revision) -> Option<Given> {
    let question = question.get_or_insert_with(|| rooms.answers.ask(ask.question(&rooms.directory, mode)));
    rooms.answers.get(question, at, rooms.directory.now())
}

/// Reads, and keeps what was read for those who ask the same.
async fn look(rooms: &Rooms, ask: &Ask, mode: Mode, asked: Option<(Revision, &Asked)>) -> Result<Given, ApiError> {
    let freshness = mode.freshness();
    let Seen { reply, index, watch, until } = dispatch::read(rooms, ask, freshness).await?;
    let mut answer = reply.answer();
    say_index(answer.headers_mut(), index, mode);
    say_default_policy(answer.headers_mut(), rooms.directory.default_policy);
    let given = Given { answer, index, watch: watch.into() };
    // Who is nobody was told so by what it asked for, and what it is told is not kept.
    if let Some((at, question)) = asked
        && let Ok(caller) = ask.caller(rooms, freshness).await
    {
        let until = caller.live.token.value.birth().expiration_time.into_iter().chain(until).min();
        rooms.answers.keep(question, at, &given, until);
    }
    Ok(given)
}

/// Up to a sixteenth more, so that those who began together do not come back together.
fn jitter(wait: Duration) -> Duration {
    (wait / 16).mul_f64(random_unit())
}
