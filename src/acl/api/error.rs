//! The only place that knows statuses and texts.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::json;

use super::body::BodyError;
use super::json::DecodeError;
use super::query::QueryError;
use super::response::{Body, JSON, Reply, whole};
use crate::acl::model::azure_identity::Refusal;
use crate::acl::service::error::{Denied, ServiceError};
use crate::acl::service::issuer_keys::KeyError;
use crate::acl::service::lists::LeftOut;
use crate::acl::service::login::LoginError;
use crate::acl::store::{CommitError, StoreError};
use crate::error_chain::format_chain;

/// Whose wire an answer is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// Errors as `{"errors": [...]}`.
    Vault,
    /// Errors as one line of plain text.
    Acl,
}

/// Why a request was not done.
#[derive(Debug)]
pub(super) enum ApiError {
    /// Nothing is at this path; whether it looked like one of the API.
    NoRoute { versioned: bool },
    /// Something is, for other methods, which are listed.
    NoMethod { method: Method, allow: String },
    /// The path holds what no path of this API holds.
    Path,
    /// A web page may have sent the request.
    Page { status: StatusCode, text: String },
    /// The body cannot be taken.
    Body(BodyError),
    /// The request is wrong.
    Invalid(String),
    /// A template was named that is not there.
    NoTemplate,
    /// A partition was named that is not there.
    NoPartition(String),
    /// A header under one of its names says something else than under another.
    TwoHeaders(&'static str),
    /// A secret is needed and none was given, or one that opens nothing.
    NoToken,
    /// Who logs out brought no token.
    NoLogout,
    /// One login too many; when there is room for one.
    TooMany { wait: Duration },
    /// The login gave nothing.
    Login(LoginError),
    /// A wrapped answer was asked for.
    Wrapping,
    /// A namespace was asked for where there is only one.
    Namespace(String),
    /// A token was to be renewed.
    NotRenewable,
    /// The service refused or failed.
    Service(ServiceError),
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        Self::Service(error)
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        Self::Service(denied.into())
    }
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

impl From<DecodeError> for ApiError {
    fn from(error: DecodeError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// An answer could not be written as JSON.
impl From<serde_json::Error> for ApiError {
    fn from(error: serde_json::Error) -> Self {
        Self::Service(ServiceError::Encode(error))
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl ApiError {
    /// The answer in the wire of that door.
    pub(super) fn at(&self, door: Door) -> Response<Body> {
        let (status, text) = self.told(door);
        if let Some(error) = self.failure().filter(|_| status.is_server_error()) {
            tracing::error!(event = "acl.request.failed", error = format_chain(error), "a request failed");
        }
        let mut answer = match door {
            Door::Vault => {
                let body = whole(Bytes::from(json!({"errors": [text]}).to_string()));
                Reply { status, kind: Some(JSON), body, left_out: LeftOut::default() }.answer()
            }
            Door::Acl => Reply::text(status, text).answer(),
        };
        let headers = answer.headers_mut();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        if let Self::TooMany { wait } = self {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        }
        if let Self::NoMethod { allow, .. } = self
            && let Ok(allow) = HeaderValue::from_str(allow)
        {
            headers.insert(header::ALLOW, allow);
        }
        answer
    }

    fn told(&self, door: Door) -> (StatusCode, String) {
        match self {
            Self::NoRoute { .. } if door == Door::Vault => (StatusCode::NOT_FOUND, "no handler for route".into()),
            Self::NoRoute { versioned: true } => {
                (StatusCode::NOT_FOUND, "Invalid URL path: not a recognized HTTP API endpoint\n".into())
            }
            Self::NoRoute { versioned: false } => (
                StatusCode::NOT_FOUND,
                "Invalid URL path: if attempting to use the HTTP API, ensure the path starts with '/v1/'\n".into(),
            ),
            Self::NoMethod { .. } if door == Door::Vault => {
                (StatusCode::METHOD_NOT_ALLOWED, "unsupported operation".into())
            }
            Self::NoMethod { method, .. } => (StatusCode::METHOD_NOT_ALLOWED, format!("method {method} not allowed")),
            Self::Page { status, text } => (*status, text.clone()),
            Self::Path => (
                StatusCode::BAD_REQUEST,
                "Invalid URL path: it holds an empty or dotted segment, or a character that cannot be printed".into(),
            ),
            Self::Body(error @ BodyError::TooLarge { .. }) => (StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
            Self::Body(error @ (BodyError::TooSlow | BodyError::Stalled { .. })) => {
                (StatusCode::REQUEST_TIMEOUT, error.to_string())
            }
            Self::Body(error) => (StatusCode::BAD_REQUEST, error.to_string()),
            Self::Invalid(text) => (StatusCode::BAD_REQUEST, text.clone()),
            Self::NoTemplate => (
                StatusCode::NOT_FOUND,
                "Requested templated policy does not exist: ACL templated policy not found".into(),
            ),
            Self::NoPartition(name) => (StatusCode::NOT_FOUND, format!("Partition {name:?} does not exist")),
            Self::TwoHeaders(name) => {
                (StatusCode::BAD_REQUEST, format!("Invalid header: {name:?} is given twice with different values"))
            }
            // The words by which an agent knows that its token is dead.
            Self::NoToken if door == Door::Acl => (StatusCode::NOT_FOUND, "Supplied token does not exist".into()),
            Self::NoToken => (StatusCode::FORBIDDEN, "permission denied: invalid token".into()),
            Self::NoLogout => (StatusCode::UNAUTHORIZED, "Supplied token does not exist".into()),
            Self::TooMany { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "too many logins from where this one comes from: try again later".into(),
            ),
            Self::Login(error) => login(error, door),
            Self::Wrapping => {
                (StatusCode::BAD_REQUEST, "this server does not wrap answers: leave the wrap TTL out".into())
            }
            Self::Namespace(name) => {
                (StatusCode::BAD_REQUEST, format!("this door opens to the default namespace, not to {name:?}"))
            }
            Self::NotRenewable => (
                StatusCode::BAD_REQUEST,
                "lease is not renewable: the ExpirationTime of a token never changes, log in again".into(),
            ),
            Self::Service(error) => service(error),
        }
    }

    /// What failed on this side, if something did.
    fn failure(&self) -> Option<&ServiceError> {
        match self {
            // Told once, when it begins.
            Self::Service(ServiceError::Restoring) | Self::Login(LoginError::Service(ServiceError::Restoring)) => None,
            Self::Service(error) | Self::Login(LoginError::Service(error)) => Some(error),
            _ => None,
        }
    }
}

/// A failure's causes are for the log; they would tell a caller how this side is built.
fn service(error: &ServiceError) -> (StatusCode, String) {
    let status = match error {
        ServiceError::Invalid(_) => StatusCode::BAD_REQUEST,
        ServiceError::Missing(_) => StatusCode::NOT_FOUND,
        ServiceError::Taken(_) => StatusCode::CONFLICT,
        ServiceError::Denied(_) | ServiceError::UnknownSecret | ServiceError::Forbidden(_) => StatusCode::FORBIDDEN,
        ServiceError::Commit(CommitError::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
        ServiceError::Spool(_) => StatusCode::INSUFFICIENT_STORAGE,
        ServiceError::Store(StoreError::Full(_)) | ServiceError::Commit(CommitError::Store(StoreError::Full(_))) => {
            return (StatusCode::INSUFFICIENT_STORAGE, "the disk of the store is full: nothing was written".to_owned());
        }
        ServiceError::Commit(CommitError::Unknown(cause)) if !matches!(cause, StoreError::Unavailable(_)) => {
            let text = "the store failed: the change may have been written";
            return (StatusCode::INTERNAL_SERVER_ERROR, text.to_owned());
        }
        ServiceError::Restoring
        | ServiceError::Crowded
        | ServiceError::NotNow(_)
        | ServiceError::Store(StoreError::Unavailable(_))
        | ServiceError::Commit(CommitError::Unknown(_) | CommitError::Store(StoreError::Unavailable(_))) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        ServiceError::Store(_) | ServiceError::Commit(_) | ServiceError::Seal(_) | ServiceError::Encode(_) => {
            return (StatusCode::INTERNAL_SERVER_ERROR, "internal error".to_owned());
        }
    };
    (status, error.to_string())
}

fn login(error: &LoginError, door: Door) -> (StatusCode, String) {
    let status = match error {
        LoginError::Unknown(_) | LoginError::NoBinding => return (StatusCode::FORBIDDEN, error.to_string()),
        LoginError::NoSuchMethod => return (StatusCode::NOT_FOUND, "no handler for route: no such auth method".into()),
        LoginError::Service(error) => return service(error),
        LoginError::Missing(_) | LoginError::NoSuchRole(_) | LoginError::Malformed | LoginError::Claims => {
            StatusCode::BAD_REQUEST
        }
        LoginError::Key(KeyError::Unavailable { .. }) => StatusCode::SERVICE_UNAVAILABLE,
        LoginError::Refused(Refusal::Differs { .. }) => StatusCode::BAD_REQUEST,
        LoginError::Algorithm { .. }
        | LoginError::NoKeyId
        | LoginError::Key(KeyError::Unknown { .. } | KeyError::None { .. })
        | LoginError::Signature
        | LoginError::Bind { .. }
        | LoginError::Refused(_) => StatusCode::FORBIDDEN,
    };
    let denied = if door == Door::Acl && status == StatusCode::FORBIDDEN { "Permission denied: " } else { "" };
    (status, format!("{denied}{error}"))
}
