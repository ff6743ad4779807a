//! The only place that knows statuses and texts.

use axum::Json;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use super::body::BodyError;
use crate::access::model::cloud::Refusal;
use crate::access::service::keys::KeyError;
use crate::access::service::login::LoginError;
use crate::access::service::tokens::ServiceError;

/// Whose wire an answer is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// Errors as `{"errors": [...]}`.
    Vault,
    /// Errors as one line of plain text.
    Acl,
}

impl Door {
    pub(super) fn of(path: &str) -> Self {
        if path.starts_with("/v1/acl/") { Self::Acl } else { Self::Vault }
    }
}

/// Why a request was not done.
#[derive(Debug)]
pub(super) enum ApiError {
    /// Nothing is at this path.
    NoRoute,
    /// Something is, for other methods.
    NoMethod(Method),
    /// The body cannot be taken.
    Body(BodyError),
    /// Two different secrets, or one that is no text.
    Secrets,
    /// A secret is needed and none was given, or one that opens nothing.
    NoToken,
    /// The login gave nothing.
    Login(LoginError),
    /// A wrapped answer was asked for.
    Wrapping,
    /// A namespace was asked for that is not here.
    Namespace(String),
    /// A token was to be renewed.
    NotRenewable,
    /// This side failed.
    Service(ServiceError),
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        Self::Service(error)
    }
}

impl ApiError {
    /// The answer in the wire of that door.
    pub(super) fn at(&self, door: Door) -> Response {
        let (status, text) = self.told(door);
        let text = if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(event = "access.request.failed", error = %text, "a request failed");
            "internal error".to_owned()
        } else {
            text
        };
        let mut answer = match door {
            Door::Vault => (status, Json(json!({"errors": [text]}))).into_response(),
            Door::Acl => (status, text).into_response(),
        };
        answer.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        answer
    }

    fn told(&self, door: Door) -> (StatusCode, String) {
        match self {
            Self::NoRoute if door == Door::Acl => {
                (StatusCode::NOT_FOUND, "Invalid URL path: not a recognized HTTP API endpoint".into())
            }
            Self::NoRoute => (StatusCode::NOT_FOUND, "no handler for route".into()),
            Self::NoMethod(method) if door == Door::Acl => {
                (StatusCode::METHOD_NOT_ALLOWED, format!("method {method} not allowed"))
            }
            Self::NoMethod(_) => (StatusCode::METHOD_NOT_ALLOWED, "unsupported operation".into()),
            Self::Body(error @ BodyError::TooLarge { .. }) => (StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
            Self::Body(error @ BodyError::TooSlow) => (StatusCode::REQUEST_TIMEOUT, error.to_string()),
            Self::Body(error) => (StatusCode::BAD_REQUEST, error.to_string()),
            Self::Secrets => {
                (StatusCode::BAD_REQUEST, "the request carries two different tokens, or one that is no text".into())
            }
            // The words by which an agent knows that its token is dead.
            Self::NoToken if door == Door::Acl => (StatusCode::NOT_FOUND, "Supplied token does not exist".into()),
            Self::NoToken => (StatusCode::FORBIDDEN, "permission denied: invalid token".into()),
            Self::Login(error) => login(error),
            Self::Wrapping => {
                (StatusCode::BAD_REQUEST, "this server does not wrap answers: leave the wrap TTL out".into())
            }
            Self::Namespace(name) => {
                (StatusCode::BAD_REQUEST, format!("this server has no namespace {name:?}: leave the namespace out"))
            }
            Self::NotRenewable => (
                StatusCode::BAD_REQUEST,
                "lease is not renewable: the ExpirationTime of a token never changes, log in again".into(),
            ),
            Self::Service(error) => (StatusCode::INTERNAL_SERVER_ERROR, chain(error)),
        }
    }
}

fn login(error: &LoginError) -> (StatusCode, String) {
    let status = match error {
        LoginError::NoSuchMethod => return (StatusCode::NOT_FOUND, "no handler for route: no such auth method".into()),
        LoginError::Service(error) => return (StatusCode::INTERNAL_SERVER_ERROR, chain(error)),
        LoginError::Missing(_) | LoginError::NoSuchRole(_) | LoginError::Malformed | LoginError::Claims => {
            StatusCode::BAD_REQUEST
        }
        LoginError::Key(KeyError::Unavailable { .. }) => StatusCode::SERVICE_UNAVAILABLE,
        LoginError::Refused(Refusal::Differs { .. }) => StatusCode::BAD_REQUEST,
        LoginError::Algorithm(_)
        | LoginError::NoKeyId
        | LoginError::Key(KeyError::Unknown { .. })
        | LoginError::Signature
        | LoginError::Refused(_) => StatusCode::FORBIDDEN,
    };
    (status, error.to_string())
}

fn chain(error: &ServiceError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// Answers that hold a secret, or depend on one, are kept by nobody.
pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
