//! A request as routes see it.

use std::collections::HashMap;

use axum::RequestPartsExt as _;
use axum::extract::{FromRequest, Path, Request};
use bytes::Bytes;
use http::Uri;
use http_body_util::{BodyExt as _, Limited};
use keyward_machine::clock::ClockReading;
use parking_lot::MutexGuard;
use serde_json::{Map, Value};

use super::EmulatorState;
use super::page::{PageRequest, Paging, page};
use super::reply::{ApiError, ApiResult, list_page};
use super::state::State;
use super::tokens::Token;

/// A request with its caller, body and parameters.
pub(super) struct ApiRequest {
    pub(super) emulator: EmulatorState,
    pub(super) uri: Uri,
    pub(super) body: Bytes,
    pub(super) now: ClockReading,
    caller: Option<Token>,
    names: HashMap<String, String>,
    query: Vec<(String, String)>,
}

/// Uploads are the largest bodies; the real platform's limit is not documented.
const MAX_BODY: usize = 64 * 1024 * 1024;

impl FromRequest<EmulatorState> for ApiRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, emulator: &EmulatorState) -> Result<Self, ApiError> {
        let (mut head, body) = request.into_parts();
        let names = head.extract::<Path<HashMap<String, String>>>().await;
        let Path(names) = names.map_err(|_| ApiError::not_found())?;
        let body = Limited::new(body, MAX_BODY).collect().await.map_err(|_| ApiError::too_large())?.to_bytes();
        // A nested route sees only the rest of the path; the original is in the extensions.
        let uri = head.extensions.remove::<Uri>().unwrap_or(head.uri);
        let query = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        Ok(Self {
            emulator: emulator.clone(),
            query: query.map(|(name, value)| (name.into_owned(), value.into_owned())).collect(),
            uri,
            body,
            now: emulator.faults.clock().now(),
            caller: head.extensions.remove::<Token>(),
            names,
        })
    }
}

impl ApiRequest {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.emulator.faults.state()
    }

    /// Returns the caller; only routes of the API have one.
    pub(super) fn caller(&self) -> Result<&Token, ApiError> {
        self.caller.as_ref().ok_or_else(ApiError::unauthorized)
    }

    /// Returns a path parameter, percent-decoded.
    pub(super) fn name(&self, name: &str) -> &str {
        self.names.get(name).map_or("", String::as_str)
    }

    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the organization in the path, if the caller may see it.
    pub(super) fn organization(&self, state: &State) -> Result<String, ApiError> {
        state
            .find(self.caller()?, "organizations", self.name("organization"))
            .map(|organization| organization.id.clone())
    }

    /// Parses the body. Clients send nothing, `null` or `{}` for an empty document.
    pub(super) fn parse_body(&self) -> Result<Value, ApiError> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&self.body).map_err(|_| ApiError::bad_request("the body is not JSON"))
    }

    /// Returns `data.attributes` of the body.
    pub(super) fn attributes(&self) -> Result<Map<String, Value>, ApiError> {
        let mut sent = self.parse_body()?;
        match sent.pointer_mut("/data/attributes").map(Value::take) {
            Some(Value::Object(attributes)) => Ok(attributes),
            _ => Ok(Map::new()),
        }
    }

    /// Responds with a list, paged by the request and `paging`.
    pub(super) fn list(&self, all: &[Value], paging: Paging) -> ApiResult {
        let number = |name: &str| match self.query(name) {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| ApiError::bad_request("a page is a number")),
        };
        let page_request = PageRequest { number: number("page[number]")?, size: number("page[size]")? };
        Ok(list_page(&self.emulator.url, &self.uri, &page(all.len(), page_request, paging), all))
    }
}

/// Returns an attribute if it is a non-empty string.
pub(super) fn text<'a>(attributes: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    attributes.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Returns a required string attribute.
pub(super) fn required<'a>(attributes: &'a Map<String, Value>, name: &str) -> Result<&'a str, ApiError> {
    text(attributes, name).ok_or_else(|| ApiError::invalid(name, "can't be blank"))
}
