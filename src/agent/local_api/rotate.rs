//! `POST /agent/v1/rotate`: another certificate at once; the response waits for it.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use keyward_credentials::credential_watch::RefreshRequest;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::json_response::{Errors, json, retry_later};
use crate::rotation::{RotatedCertificate, Rotation};

/// Bounds the wait for the certificate, which continues afterwards.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Time after which a caller should ask again.
const AGAIN: Duration = Duration::from_secs(5);

const RATE_LIMITED: &str = "too many rotations of this certificate: three, then one a minute";
const UNDER_WAY: &str = "the rotation is under way";
const GONE: &str = "a reload has replaced or removed the certificate; GET /agent/v1/status shows it";

/// Body of a response with the new certificate.
#[derive(Debug, Serialize)]
struct Rotated<'a> {
    certificate: &'a str,
    #[serde(flatten)]
    new: &'a RotatedCertificate,
}

/// Requests a rotation, and reports the certificate after it.
pub(super) async fn rotate(rotation: Rotation, stop: CancellationToken) -> Response<Full<Bytes>> {
    if let RefreshRequest::RateLimited { retry_after } = rotation.request() {
        return retry_later(StatusCode::TOO_MANY_REQUESTS, &Errors { errors: [RATE_LIMITED] }, retry_after);
    }
    let outcome = tokio::select! {
        outcome = rotation.outcome() => Some(outcome),
        () = tokio::time::sleep(TIMEOUT) => None,
        () = stop.cancelled() => None,
    };
    let fail = |message: &str| retry_later(StatusCode::SERVICE_UNAVAILABLE, &Errors { errors: [message] }, AGAIN);
    match outcome {
        Some(Some(Ok(new))) => json(StatusCode::OK, &Rotated { certificate: rotation.name(), new: &new }),
        Some(Some(Err(error))) => fail(&error),
        Some(None) => fail(GONE),
        None => fail(UNDER_WAY),
    }
}
