//! Errors of the API, with their statuses and texts in Consul's and in Vault's wire format.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use keyward_telemetry::error_chain::format_chain;
use serde_json::json;

use super::body::BodyError;
use super::json::DecodeError;
use super::query_string::QueryError;
use super::response::{ApiResponse, JSON, ResponseBody, full_body};
use crate::model::aws_identity::AwsError;
use crate::model::azure_identity::ClaimsError;
use crate::model::kubernetes_identity::KubernetesError;
use crate::model::names::NamespaceName;
use crate::model::oidc::OidcError;
use crate::service::error::{Denied, ServiceError};
use crate::service::issuer_keys::IssuerKeyError;
use crate::service::lists::Omitted;
use crate::service::login::LoginError;
use crate::store::{CommitError, StoreError};

/// Wire format of error responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Vault's: errors as `{"errors": [...]}`.
    Vault,
    /// Consul's: errors as one line of plain text.
    Consul,
}

/// Error of an API request; holds no secret.
#[derive(Debug)]
pub(super) enum ApiError {
    /// The API has no such path; `versioned` if the path has a `/v1/` segment.
    RouteNotFound { versioned: bool },
    /// The path exists for the methods in `allow` only.
    MethodNotAllowed { method: Method, allow: String },
    /// The path has an empty or dotted segment, a control character, or invalid UTF-8.
    MalformedPath,
    /// The headers show that a web page sent the request.
    BrowserRequest,
    /// The request is for a host name that the configuration does not allow.
    HostNotAllowed { allowed: String },
    /// The request has two framings: a proxy might read its end elsewhere (request smuggling).
    AmbiguousLength,
    /// The body could not be read.
    Body(BodyError),
    /// The body does not describe the record.
    Decode(DecodeError),
    /// The query is malformed.
    Query(QueryError),
    /// A header value is not visible ASCII.
    HeaderNotText,
    /// A header has different values, also under its alternative names.
    ConflictingHeaders(&'static str),
    /// The path lacks the name or id (`field`) of the record.
    MissingSubject { kind: &'static str, field: &'static str },
    /// The id in the path is not a UUID; `is_uuid_length` if it has at least its length.
    MalformedId { kind: &'static str, is_uuid_length: bool },
    /// The field has different values in path and body.
    PathBodyMismatch { field: String },
    /// The namespace name is invalid.
    InvalidNamespace { name: String, reason: String },
    /// `*` names all namespaces, which only lists accept.
    WildcardNamespace,
    /// The query or a header names a partition other than `default`.
    UnknownPartition(String),
    /// The body names a partition other than `default`.
    UnknownPartitionInBody(String),
    /// The body of a clone names another namespace than the source's.
    CloneNamespace(NamespaceName),
    /// A token list has more than one filter.
    FilterConflict,
    /// The bootstrap secret is not a UUID.
    BootstrapSecret { reason: String },
    /// The template does not accept the variables.
    TemplateVariables { reason: String },
    /// An authorization request has an unknown `Access` or `Resource`.
    UnknownAuthorization { field: &'static str, value: String },
    /// The body has more authorization requests than one call answers.
    TooManyAuthorizations { count: usize, max: usize },
    /// There is no such policy template.
    UnknownTemplate,
    /// The request has no token, or one that does not exist.
    UnknownToken,
    /// The logout request has no token.
    LogoutWithoutToken,
    /// The source logs in too often; `wait` is the time until its next login.
    LoginRateLimited { wait: Duration },
    /// The login was refused or failed.
    Login(LoginError),
    /// The request asks for a wrapped response.
    WrappingUnsupported,
    /// The Vault API serves the `default` namespace only.
    NamespaceUnsupported(String),
    /// Tokens cannot be renewed.
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
        Self::Decode(error)
    }
}

/// A response could not be written as JSON.
impl From<serde_json::Error> for ApiError {
    fn from(error: serde_json::Error) -> Self {
        Self::Service(ServiceError::Encode(error))
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}

impl ApiError {
    /// Converts the error into a response of a dialect, and logs failures of this server.
    pub(super) fn to_response(&self, dialect: Dialect) -> Response<ResponseBody> {
        let (status, text) = self.status_and_text(dialect);
        if let Some(error) = self.failure().filter(|_| status.is_server_error()) {
            tracing::error!(event = "acl.request.failed", error = format_chain(error), "a request failed");
        }
        let mut response = match dialect {
            Dialect::Vault => {
                let body = full_body(Bytes::from(json!({"errors": [text]}).to_string()));
                ApiResponse { status, content_type: Some(JSON), body, omitted: Omitted::default() }.into_http()
            }
            Dialect::Consul => ApiResponse::text(status, text).into_http(),
        };
        let headers = response.headers_mut();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        if let Self::LoginRateLimited { wait } = self {
            // Whole seconds (RFC 9110, 10.2.3), rounded up: a retry must not come before the limit ends.
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        }
        if let Self::MethodNotAllowed { allow, .. } = self
            && let Ok(allow) = HeaderValue::from_str(allow)
        {
            headers.insert(header::ALLOW, allow);
        }
        response
    }

    fn status_and_text(&self, dialect: Dialect) -> (StatusCode, String) {
        let status = match self {
            Self::RouteNotFound { .. } | Self::UnknownTemplate | Self::UnknownPartition(_) => StatusCode::NOT_FOUND,
            // Agents recognize an expired or deleted token by 404 and this text.
            Self::UnknownToken if dialect == Dialect::Consul => StatusCode::NOT_FOUND,
            Self::UnknownToken | Self::BrowserRequest => StatusCode::FORBIDDEN,
            Self::HostNotAllowed { .. } => StatusCode::MISDIRECTED_REQUEST,
            Self::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::LogoutWithoutToken => StatusCode::UNAUTHORIZED,
            Self::LoginRateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Body(BodyError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(BodyError::TooSlow | BodyError::Stalled { .. }) => StatusCode::REQUEST_TIMEOUT,
            Self::Login(error) => return login(error, dialect),
            Self::Service(error) => return service(error),
            _ => StatusCode::BAD_REQUEST,
        };
        (status, self.text(dialect))
    }

    fn text(&self, dialect: Dialect) -> String {
        let text = match self {
            Self::RouteNotFound { .. } if dialect == Dialect::Vault => "no handler for route",
            // Consul's texts: these two end with a line feed.
            Self::RouteNotFound { versioned: true } => "Invalid URL path: not a recognized HTTP API endpoint\n",
            Self::RouteNotFound { versioned: false } => {
                "Invalid URL path: if attempting to use the HTTP API, ensure the path starts with '/v1/'\n"
            }
            Self::MethodNotAllowed { .. } if dialect == Dialect::Vault => "unsupported operation",
            Self::MethodNotAllowed { method, .. } => return format!("method {method} not allowed"),
            Self::MalformedPath => {
                "Invalid URL path: it has an empty or dotted segment, a control character, or invalid UTF-8"
            }
            Self::BrowserRequest => "requests from web pages are not allowed (Origin, Sec-Fetch-*)",
            Self::HostNotAllowed { allowed } => {
                return format!("the Host header must be one of {allowed}; add other names to allowed_hosts");
            }
            Self::AmbiguousLength => "the request has both Content-Length and Transfer-Encoding",
            Self::Body(error) => return error.to_string(),
            Self::Decode(error) => return error.to_string(),
            Self::Query(error) => return error.to_string(),
            Self::HeaderNotText => "a header value is not visible ASCII",
            Self::ConflictingHeaders(name) => {
                return format!("Invalid header: {name:?} is given twice with different values");
            }
            Self::MissingSubject { kind, field } => return format!("Missing {kind} {field}"),
            Self::MalformedId { kind, is_uuid_length } => {
                // Consul's texts: there the lookup is one in the index of its state store.
                let reason = if *is_uuid_length { "Invalid UUID" } else { "UUID must be 36 characters" };
                return format!("failed acl {kind} lookup: index error: {reason}");
            }
            Self::PathBodyMismatch { field } => return format!("{field} in URL and payload do not match"),
            Self::InvalidNamespace { name, reason } => return format!("Invalid namespace {name:?}: {reason}"),
            Self::WildcardNamespace => "Invalid namespace \"*\": only lists span all namespaces",
            Self::UnknownPartition(name) | Self::UnknownPartitionInBody(name) => {
                return format!("Partition {name:?} does not exist");
            }
            Self::CloneNamespace(name) => {
                return format!("A clone is created in the namespace of its source token: {name}");
            }
            Self::FilterConflict => "can only filter by one of policy, role, serviceName, or methodName at a time",
            Self::BootstrapSecret { reason } => return format!("Invalid BootstrapSecret: {reason}"),
            Self::TemplateVariables { reason } => return reason.clone(),
            Self::UnknownAuthorization { field, value } => return format!("Invalid {field} {value:?}"),
            Self::TooManyAuthorizations { count, max } => {
                return format!("{count} authorization requests exceed the limit of {max}");
            }
            Self::UnknownTemplate => "Requested templated policy does not exist: ACL templated policy not found",
            Self::UnknownToken if dialect == Dialect::Vault => "permission denied: invalid token",
            Self::UnknownToken | Self::LogoutWithoutToken => "Supplied token does not exist",
            Self::LoginRateLimited { .. } => "too many logins from this source: try again later",
            Self::Login(error) => return error.to_string(),
            Self::WrappingUnsupported => "this server does not wrap responses: leave the wrap TTL out",
            Self::NamespaceUnsupported(name) => {
                return format!("the Vault API serves the default namespace only, not {name:?}");
            }
            Self::NotRenewable => "lease is not renewable: the ExpirationTime of a token never changes, log in again",
            Self::Service(error) => return error.to_string(),
        };
        text.to_owned()
    }

    /// Returns the failure of this server behind the error, if there is one.
    fn failure(&self) -> Option<&ServiceError> {
        match self {
            // Logged once, when the restore starts.
            Self::Service(ServiceError::Restoring) | Self::Login(LoginError::Service(ServiceError::Restoring)) => None,
            Self::Service(error) | Self::Login(LoginError::Service(error)) => Some(error),
            _ => None,
        }
    }
}

/// Builds the response to a read of a record that does not exist. It is not an [`ApiError`]: blocking queries wait on it.
pub(super) fn record_not_found(kind: &str) -> ApiResponse {
    ApiResponse::text(StatusCode::NOT_FOUND, format!("Requested {kind} does not exist: ACL not found"))
}

/// Builds the response to a read of a namespace that does not exist.
pub(super) fn namespace_not_found(name: &NamespaceName) -> ApiResponse {
    ApiResponse::text(StatusCode::NOT_FOUND, format!("Namespace {:?} does not exist", name.as_str()))
}

/// Causes of failures go to the log only: they would show a caller how this server is built.
fn service(error: &ServiceError) -> (StatusCode, String) {
    let status = match error {
        ServiceError::Invalid(_) => StatusCode::BAD_REQUEST,
        ServiceError::NotFound(_) => StatusCode::NOT_FOUND,
        ServiceError::Conflict(_) => StatusCode::CONFLICT,
        ServiceError::Denied(_) | ServiceError::UnknownSecret | ServiceError::Forbidden(_) => StatusCode::FORBIDDEN,
        ServiceError::Commit(CommitError::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
        ServiceError::Spool(_) => StatusCode::INSUFFICIENT_STORAGE,
        ServiceError::Store(StoreError::Full(_)) | ServiceError::Commit(CommitError::Store(StoreError::Full(_))) => {
            return (StatusCode::INSUFFICIENT_STORAGE, "the disk of the store is full: nothing was written".to_owned());
        }
        ServiceError::Commit(CommitError::Unknown(cause)) if !matches!(cause, StoreError::Unavailable(_)) => {
            let text = "the store failed: the change may have been written; read the record before you retry";
            return (StatusCode::INTERNAL_SERVER_ERROR, text.to_owned());
        }
        ServiceError::AnonymousTokenMissing(_) => StatusCode::INTERNAL_SERVER_ERROR,
        ServiceError::Restoring
        | ServiceError::RestoreFailed(_)
        | ServiceError::RekeyFailed(_)
        | ServiceError::Contention
        | ServiceError::Unavailable(_)
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

fn login(error: &LoginError, dialect: Dialect) -> (StatusCode, String) {
    let status = match error {
        LoginError::Unknown(_) | LoginError::NoBinding => return (StatusCode::FORBIDDEN, error.to_string()),
        LoginError::NoSuchMethod => return (StatusCode::NOT_FOUND, "no handler for route: no such auth method".into()),
        LoginError::Service(error) => return service(error),
        LoginError::Missing(_)
        | LoginError::Refused(ClaimsError::FieldMismatch { .. })
        | LoginError::NoSuchRole(_)
        | LoginError::Malformed
        | LoginError::Claims
        | LoginError::Aws(AwsError::Missing(_) | AwsError::Malformed(_) | AwsError::Header(_))
        | LoginError::Oidc(
            OidcError::NotOidc
            | OidcError::NotBearer
            | OidcError::RedirectUri(_)
            | OidcError::ClientNonce
            | OidcError::Meta(_),
        ) => StatusCode::BAD_REQUEST,
        LoginError::Key(IssuerKeyError::Unavailable { .. })
        | LoginError::Aws(AwsError::Unavailable(_))
        | LoginError::Oidc(OidcError::Discovery(_) | OidcError::TokenEndpoint(_))
        | LoginError::Kubernetes(KubernetesError::Unavailable(_)) => StatusCode::SERVICE_UNAVAILABLE,
        LoginError::Algorithm { .. }
        | LoginError::NoKeyId
        | LoginError::Key(IssuerKeyError::Unknown { .. } | IssuerKeyError::None { .. })
        | LoginError::Signature
        | LoginError::Bind { .. }
        | LoginError::BindNamespace { .. }
        | LoginError::Google(_)
        | LoginError::Aws(_)
        | LoginError::Oidc(_)
        | LoginError::Kubernetes(_)
        | LoginError::Refused(_) => StatusCode::FORBIDDEN,
    };
    // Consul's clients look for this text to tell a refusal from a failure.
    let denied = if dialect == Dialect::Consul && status == StatusCode::FORBIDDEN { "Permission denied: " } else { "" };
    (status, format!("{denied}{error}"))
}
