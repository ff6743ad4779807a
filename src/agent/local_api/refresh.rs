//! `POST /agent/v1/refresh`: reads the secrets that a session's templates use again, and responds with what has changed.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::json_response::{Errors, error, json, retry_later};
use crate::secrets::{RefreshOutcome, RefreshScope, RefreshedSecret, SecretRegistry};

/// Bounds the wait for the reads, which continue afterwards.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Response with the outcome of each secret.
#[derive(Debug, Serialize)]
struct RefreshReport {
    secrets: Vec<SecretReport>,
}

#[derive(Debug, Serialize)]
struct SecretReport {
    path: String,
    /// `changed`, `unchanged`, `kept`, `failed` or `rate_limited`.
    outcome: &'static str,
    /// Cause of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Time until it may be read on request again, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

impl From<RefreshedSecret> for SecretReport {
    fn from(secret: RefreshedSecret) -> Self {
        let RefreshedSecret { path, outcome } = secret;
        let (outcome, reason, retry_after) = match outcome {
            RefreshOutcome::Changed => ("changed", None, None),
            RefreshOutcome::Unchanged => ("unchanged", None, None),
            RefreshOutcome::Kept => ("kept", None, None),
            RefreshOutcome::Failed(reason) => ("failed", Some(reason), None),
            RefreshOutcome::RateLimited(after) => ("rate_limited", None, Some(after.as_secs().max(1))),
        };
        Self { path, outcome, reason, retry_after }
    }
}

/// Reads the secrets of a scope again; without a registry the session has none.
pub(super) async fn refresh(
    registry: Option<SecretRegistry>,
    scope: RefreshScope,
    stop: CancellationToken,
) -> Response<Full<Bytes>> {
    let secrets = async {
        match registry {
            Some(registry) => registry.refresh(&scope).await,
            None => Vec::new(),
        }
    };
    let secrets = tokio::select! {
        secrets = secrets => secrets,
        () = tokio::time::sleep(TIMEOUT) => {
            let message = "the server has not answered all reads yet; GET /agent/v1/status shows the result";
            return retry_later(StatusCode::SERVICE_UNAVAILABLE, &Errors { errors: [message] }, Duration::from_secs(5));
        }
        () = stop.cancelled() => return error(StatusCode::SERVICE_UNAVAILABLE, "the listener stops"),
    };
    if let (true, Some(path)) = (secrets.is_empty(), &scope.path) {
        return error(
            StatusCode::NOT_FOUND,
            &format!("no template of this session uses a secret at {path} or below it"),
        );
    }
    json(StatusCode::OK, &RefreshReport { secrets: secrets.into_iter().map(SecretReport::from).collect() })
}
