//! Handler of `GET /v1/operator/verify`.

use serde::Serialize;

use super::error::ApiError;
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::state::ApiState;
use crate::store::Freshness;

/// Result of checking all records.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct VerificationView<'a> {
    clean: bool,
    records: u64,
    without_checksum: u64,
    damaged: u64,
    damaged_keys: &'a [String],
    damaged_kinds: &'a [String],
}

pub(super) async fn verify(state: &ApiState, request: &ApiRequest) -> Result<ApiResponse, ApiError> {
    let caller = request.authenticate(state, Freshness::Linearizable).await?;
    let verification = state.service.verify(&caller).await?;
    let view = VerificationView {
        clean: verification.is_clean(),
        records: verification.records,
        without_checksum: verification.unchecked,
        damaged: verification.damaged,
        damaged_keys: &verification.damaged_keys,
        damaged_kinds: &verification.damaged_kinds,
    };
    Ok(ApiResponse::json(&view, request.pretty())?)
}
