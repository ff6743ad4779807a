//! Responses of the API: results of reads and writes, and their form as HTTP.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Either, Full};
use serde::Serialize;

use super::json::to_json;
use super::query_string::ConsistencyMode;
use crate::model::authorize::DefaultPolicy;
use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::model::timestamp::Timestamp;
use crate::service::lists::Omitted;
use crate::store::Revision;

/// Body of a response: complete, or streamed from the store.
pub type ResponseBody = Either<Full<Bytes>, UnsyncBoxBody<Bytes, BodyInterrupted>>;

/// A streamed body ended early because the store failed; the connection is closed.
#[derive(Debug, thiserror::Error)]
#[error("the store failed while a body was streamed")]
pub struct BodyInterrupted;

/// Response without the headers that all responses have.
#[derive(Debug)]
pub(super) struct ApiResponse {
    pub(super) status: StatusCode,
    pub(super) content_type: Option<HeaderValue>,
    pub(super) body: ResponseBody,
    /// Records that a list lacks, which the headers say.
    pub(super) omitted: Omitted,
}

/// Result of a read.
#[derive(Debug)]
pub(super) struct ReadResult {
    pub(super) response: ApiResponse,
    /// Last change of the record kinds shown, taken before the read: a change in between ends the next wait at once.
    pub(super) index: Revision,
    /// Keys or key prefixes whose changes may change the response.
    pub(super) watch: Vec<String>,
    /// Expiry of the token shown, from which on the response differs although nothing was written.
    pub(super) until: Option<Timestamp>,
}

/// Result of an operation that may write.
#[derive(Debug)]
pub(super) enum WriteResult {
    /// The operation changed records.
    Changed(Change),
    /// The operation wrote nothing.
    Unchanged(ApiResponse),
}

impl From<Change> for WriteResult {
    fn from(change: Change) -> Self {
        Self::Changed(change)
    }
}

impl From<ApiResponse> for WriteResult {
    fn from(response: ApiResponse) -> Self {
        Self::Unchanged(response)
    }
}

/// Change for the audit log, with its response.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) response: ApiResponse,
    /// Accessor of the caller's token; `None` for the bootstrap.
    pub(super) by: Option<Id>,
    pub(super) namespace: NamespaceName,
    /// Id or name of the record.
    pub(super) subject: String,
}

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

impl ApiResponse {
    /// Builds a 200 with JSON.
    pub(super) fn json(value: &impl Serialize, pretty: bool) -> Result<Self, serde_json::Error> {
        Ok(Self::encoded_json(to_json(value, pretty)?))
    }

    /// Builds a 200 with JSON that is encoded already.
    pub(super) fn encoded_json(text: Bytes) -> Self {
        let body = full_body(text);
        Self { status: StatusCode::OK, content_type: Some(JSON), body, omitted: Omitted::default() }
    }

    /// Builds a response with one line of plain text.
    pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Self {
        Self { status, content_type: Some(TEXT), body: full_body(text.into()), omitted: Omitted::default() }
    }

    /// Builds a response without a body.
    pub(super) fn empty(status: StatusCode) -> Self {
        Self { status, content_type: None, body: full_body(Bytes::new()), omitted: Omitted::default() }
    }

    /// Builds a 200 with streamed JSON.
    pub(super) fn stream(body: UnsyncBoxBody<Bytes, BodyInterrupted>) -> Self {
        let body = Either::Right(body);
        Self { status: StatusCode::OK, content_type: Some(JSON), body, omitted: Omitted::default() }
    }

    /// Converts to HTTP with the headers that all responses have. `no-store`, as each holds a secret or depends on one.
    pub(super) fn into_http(self) -> Response<ResponseBody> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        // Capacity for all headers that may follow: the map would grow three times otherwise.
        *response.headers_mut() = HeaderMap::with_capacity(24);
        let headers = response.headers_mut();
        if let Some(content_type) = self.content_type {
            headers.insert(header::CONTENT_TYPE, content_type);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.omitted.forbidden {
            insert_both(headers, &FILTERED, HeaderValue::from_static("true"));
        }
        if self.omitted.unreadable {
            insert_both(headers, &UNREADABLE, HeaderValue::from_static("true"));
        }
        response
    }
}

pub(super) fn full_body(body: Bytes) -> ResponseBody {
    Either::Left(Full::new(body))
}

/// Builds the 503 for a request whose audit record cannot be kept.
pub fn unaudited_response(message: &str) -> Response<ResponseBody> {
    ApiResponse::text(StatusCode::SERVICE_UNAVAILABLE, message.to_owned()).into_http()
}

/// Header under its neutral and its Consul name.
type HeaderPair = [HeaderName; 2];

macro_rules! header_pair {
    ($name:literal) => {
        [HeaderName::from_static(concat!("x-service-", $name)), HeaderName::from_static(concat!("x-consul-", $name))]
    };
}

static FILTERED: HeaderPair = header_pair!("results-filtered-by-acls");
static UNREADABLE: HeaderPair = header_pair!("results-unreadable");
static DEFAULT_POLICY: HeaderPair = header_pair!("default-acl-policy");
static INDEX: HeaderPair = header_pair!("index");
static KNOWN_LEADER: HeaderPair = header_pair!("knownleader");
static LAST_CONTACT: HeaderPair = header_pair!("lastcontact");
static CONSISTENCY: HeaderPair = header_pair!("effective-consistency");
static BACKEND: HeaderPair = header_pair!("query-backend");

fn insert_both(headers: &mut HeaderMap, names: &HeaderPair, value: HeaderValue) {
    let [first, second] = names;
    headers.insert(first, value.clone());
    headers.insert(second, value);
}

/// Sets the header of the default policy, which every response of the ACL API has.
pub(super) fn set_default_policy_header(headers: &mut HeaderMap, policy: DefaultPolicy) {
    insert_both(headers, &DEFAULT_POLICY, HeaderValue::from_static(policy.as_str()));
}

/// Sets the headers of a read's index and consistency. The leader is always known: the embedded store has none to lose,
/// and etcd refuses a consistent read without a leader.
pub(super) fn set_index_headers(headers: &mut HeaderMap, index: Revision, mode: ConsistencyMode) {
    // Clients take 0 for "no index" and would repeat the query at once.
    insert_both(headers, &INDEX, HeaderValue::from(index.0.max(1)));
    insert_both(headers, &KNOWN_LEADER, HeaderValue::from_static("true"));
    insert_both(headers, &LAST_CONTACT, HeaderValue::from_static("0"));
    insert_both(headers, &CONSISTENCY, HeaderValue::from_static(mode.as_str()));
    insert_both(headers, &BACKEND, HeaderValue::from_static("blocking-query"));
}
