//! Handlers of `GET` and `PUT /v1/snapshot`.

use std::time::Duration;

use futures_util::stream::try_unfold;
use http::{HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, Either, StreamBody};
use hyper::body::{Body as _, Frame};
use keyward_telemetry::error_chain::format_chain;
use serde_json::json;

use super::body::BodyError;
use super::error::ApiError;
use super::request::ApiRequest;
use super::response::{ApiResponse, BodyInterrupted};
use super::state::ApiState;
use crate::model::id::Id;
use crate::service::error::ServiceError;
use crate::service::lists::Omitted;
use crate::service::snapshot::{RestoreResult, SnapshotExport, Spool};
use crate::store::Freshness;
use keyward_http::server::IncomingBody;

const OCTET_STREAM: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Streams a snapshot of all records from the store.
pub(super) async fn export(state: &ApiState, request: &ApiRequest) -> Result<ApiResponse, ApiError> {
    let caller = request.authenticate(state, Freshness::Linearizable).await?;
    let mut snapshot = SnapshotExport::start(&state.service, &caller).await?;
    // A store failure before the first byte still becomes an error status.
    let first = snapshot.next().await?;
    let frames =
        try_unfold(SnapshotStream { first, snapshot, by: caller.accessor() }, async |mut stream: SnapshotStream| {
            match stream.next().await {
                Ok(bytes) => Ok(bytes.map(|bytes| (Frame::data(bytes.into()), stream))),
                Err(error) => {
                    tracing::error!(
                        event = "acl.snapshot.broken",
                        error = format_chain(&error),
                        "interrupted the snapshot"
                    );
                    Err(BodyInterrupted)
                }
            }
        });
    let body = Either::Right(StreamBody::new(frames).boxed_unsync());
    Ok(ApiResponse { status: StatusCode::OK, content_type: Some(OCTET_STREAM), body, omitted: Omitted::default() })
}

/// Snapshot that is being sent.
struct SnapshotStream {
    first: Option<Vec<u8>>,
    snapshot: SnapshotExport,
    by: Option<Id>,
}

impl SnapshotStream {
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

/// Replaces all records by the snapshot in the body.
pub(super) async fn restore(state: &ApiState, request: &mut ApiRequest) -> Result<ApiResponse, ApiError> {
    let mut body = request.take_body();
    let result = run_restore(state, request, body.as_mut()).await;
    if let (Err(_), Some(body)) = (&result, body) {
        // A client that is still sending would see a connection reset instead of the response.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, drain(body)).await;
    }
    let RestoreResult { records, revision, .. } = result?;
    Ok(ApiResponse::json(&json!({"Records": records, "Index": revision.0}), request.pretty())?)
}

/// Maximum time for reading the rest of a refused body.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time between two parts of a body.
/// The whole body has no limit of time: an upload of gigabytes takes long.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

async fn run_restore(
    state: &ApiState,
    request: &ApiRequest,
    body: Option<&mut IncomingBody>,
) -> Result<RestoreResult, ApiError> {
    // Before the upload: a caller without the right must not fill the disk.
    let authorized = state.service.restore().authorize(request.secret.as_ref()).await?;
    request.audit_accessor(authorized.accessor());
    let permit = state.restores.begin()?;
    let mut spool = state.restores.spool(&permit).await?;
    if let Some(body) = body {
        spool_body(body, &mut spool).await?;
    }
    Ok(state.restores.run(permit, &state.service, request.secret.clone(), spool).await?)
}

async fn spool_body(body: &mut IncomingBody, spool: &mut Spool) -> Result<(), ApiError> {
    let too_large = || BodyError::TooLarge { limit: usize::try_from(Spool::MAX_SIZE).unwrap_or(usize::MAX) };
    // Content-Length is known before the upload: refuse it before it fills the disk.
    if body.size_hint().lower() > Spool::MAX_SIZE {
        return Err(too_large().into());
    }
    loop {
        let frame = tokio::time::timeout(STALL_TIMEOUT, body.frame())
            .await
            .map_err(|_| BodyError::Stalled { within: STALL_TIMEOUT })?;
        match frame {
            None => return Ok(()),
            Some(Err(_)) => return Err(BodyError::Interrupted.into()),
            Some(Ok(frame)) => {
                let Ok(bytes) = frame.into_data() else { continue };
                if !spool.add(&bytes).await? {
                    return Err(too_large().into());
                }
            }
        }
    }
}

async fn drain(mut body: IncomingBody) {
    while let Some(Ok(_)) = body.frame().await {}
}
