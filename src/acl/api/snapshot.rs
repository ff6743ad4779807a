//! `GET` and `PUT /v1/snapshot`.

use std::time::Duration;

use futures_util::stream::try_unfold;
use http::{HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, Either, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use serde_json::json;

use super::body::BodyError;
use super::error::ApiError;
use super::request::Ask;
use super::response::{Broken, Reply};
use super::state::Rooms;
use crate::acl::model::id::Id;
use crate::acl::service::error::ServiceError;
use crate::acl::service::lists::LeftOut;
use crate::acl::service::snapshot::{Restored, Snapshot, Spool};
use crate::acl::store::Freshness;

const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Everything, as it is read from the store.
pub(super) async fn take(rooms: &Rooms, ask: &Ask) -> Result<Reply, ApiError> {
    let caller = ask.caller(rooms, Freshness::Linearizable).await?;
    let mut snapshot = rooms.directory.snapshot(&caller).await?;
    // While nothing is sent, a store that fails can still be told by a status.
    let first = snapshot.next().await?;
    let frames = try_unfold(Coming { first, snapshot, by: caller.accessor() }, async |mut coming: Coming| match coming
        .next()
        .await
    {
        Ok(bytes) => Ok(bytes.map(|bytes| (Frame::data(bytes.into()), coming))),
        Err(error) => {
            tracing::error!(event = "acl.snapshot.broken", %error, "a snapshot broke off");
            Err(Broken)
        }
    });
    let body = Either::Right(StreamBody::new(frames).boxed_unsync());
    Ok(Reply { status: StatusCode::OK, kind: Some(BYTES), body, left_out: LeftOut::default() })
}

/// A snapshot on its way out.
struct Coming {
    first: Option<Vec<u8>>,
    snapshot: Snapshot,
    by: Option<Id>,
}

impl Coming {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, ServiceError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let bytes = self.snapshot.next().await?;
        if let (None, Some(records)) = (&bytes, self.snapshot.records()) {
            let by = self.by.map(|by| by.to_string());
            tracing::info!(event = "acl.snapshot.taken", records, by, "a snapshot was taken");
        }
        Ok(bytes)
    }
}

/// Replaces everything by the body.
pub(super) async fn restore(rooms: &Rooms, ask: &mut Ask) -> Result<Reply, ApiError> {
    let mut body = ask.body();
    let outcome = replace(rooms, ask, body.as_mut()).await;
    if let (Err(_), Some(body)) = (&outcome, body) {
        // Who is still sending would see a lost connection in place of the answer.
        let _ = tokio::time::timeout(LINGER, read_out(body)).await;
    }
    let Restored { records, revision, .. } = outcome?;
    Ok(Reply::json(&json!({"Records": records, "Index": revision.0}), ask.pretty())?)
}

/// How long a refused body is read on.
const LINGER: Duration = Duration::from_secs(10);

/// How long a body may bring nothing.
const STALL: Duration = Duration::from_secs(30);

async fn replace(rooms: &Rooms, ask: &Ask, body: Option<&mut Incoming>) -> Result<Restored, ApiError> {
    rooms.directory.restorer(ask.secret.as_ref()).await?;
    let turn = rooms.restores.begin()?;
    let mut spool = rooms.restores.spool(&turn).await?;
    if let Some(body) = body {
        keep(body, &mut spool).await?;
    }
    Ok(rooms.restores.run(turn, &rooms.directory, ask.secret.clone(), spool).await?)
}

async fn keep(body: &mut Incoming, spool: &mut Spool) -> Result<(), ApiError> {
    let too_large = || BodyError::TooLarge { limit: usize::try_from(Spool::LARGEST).unwrap_or(usize::MAX) };
    if body.size_hint().lower() > Spool::LARGEST {
        return Err(too_large().into());
    }
    loop {
        let frame =
            tokio::time::timeout(STALL, body.frame()).await.map_err(|_| BodyError::Stalled { within: STALL })?;
        match frame {
            None => return Ok(()),
            Some(Err(_)) => return Err(BodyError::Broken.into()),
            Some(Ok(frame)) => {
                let Ok(bytes) = frame.into_data() else { continue };
                if !spool.add(&bytes).await? {
                    return Err(too_large().into());
                }
            }
        }
    }
}

async fn read_out(mut body: Incoming) {
    while let Some(Ok(_)) = body.frame().await {}
}
