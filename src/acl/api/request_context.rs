//! Authenticated caller and namespace of a request, and the results of its changes.

use std::fmt::Display;
use std::sync::Arc;

use serde::Serialize;

use super::error::ApiError;
use super::request::ApiRequest;
use super::response::{ApiResponse, Change, WriteResult};
use super::state::ApiState;
use crate::model::names::NamespaceName;
use crate::service::caller::Caller;
use crate::store::Freshness;

/// Caller of a request, and the namespace that the request acts in.
#[derive(Debug)]
pub(super) struct RequestContext {
    pub(super) caller: Arc<Caller>,
    pub(super) namespace: NamespaceName,
}

impl RequestContext {
    /// Authenticates a read.
    pub(super) async fn for_read(
        state: &ApiState,
        request: &ApiRequest,
        freshness: Freshness,
    ) -> Result<Self, ApiError> {
        let caller = request.authenticate(state, freshness).await?;
        let namespace = request.namespace(&caller, None)?;
        Ok(Self { caller, namespace })
    }

    /// Authenticates a change. `body_namespace` is the namespace that the body names.
    pub(super) async fn for_write(
        state: &ApiState,
        request: &ApiRequest,
        body_namespace: Option<&str>,
    ) -> Result<Self, ApiError> {
        let caller = request.authenticate(state, Freshness::Linearizable).await?;
        let namespace = request.namespace(&caller, body_namespace)?;
        Ok(Self { caller, namespace })
    }

    /// Builds the result of a change; `view` is the record after it, `subject` its id or name for the audit log.
    pub(super) fn into_change(
        self,
        request: &ApiRequest,
        view: &impl Serialize,
        subject: impl Display,
    ) -> Result<Change, ApiError> {
        let response = ApiResponse::json(view, request.pretty())?;
        let by = self.caller.accessor();
        let namespace = self.namespace;
        let subject = subject.to_string();
        Ok(Change { response, by, namespace, subject })
    }

    /// Builds the result of a deletion; `deleted` is false if there was no such record.
    pub(super) fn into_deletion(
        self,
        request: &ApiRequest,
        deleted: bool,
        subject: impl Display,
    ) -> Result<WriteResult, ApiError> {
        let change = self.into_change(request, &deleted, subject)?;
        Ok(if deleted { WriteResult::Changed(change) } else { WriteResult::Unchanged(change.response) })
    }
}
