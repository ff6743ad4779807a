//! Errors of the client, parsed from the server's status and text.

use std::fmt;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use keyward_http::client::TransportError;
use keyward_http::client::sanitize;
use keyward_telemetry::error_code::ErrorCode;

/// Error of a call.
///
/// Servers respond with one line of plain text. It is matched by substrings, as a server that forwards a call prefixes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AclClientError {
    /// The token does not exist, or a call that needs one had none.
    #[error("the server does not know this token: it is wrong, expired or deleted")]
    Unauthenticated,
    /// The token lacks a permission.
    #[error("{0}")]
    PermissionDenied(PermissionDenial),
    /// The record does not exist.
    #[error("{text}")]
    NotFound {
        /// Text of the server.
        text: String,
    },
    /// A name or id is already in use, or another operation is in progress.
    #[error("{text}")]
    Conflict {
        /// Text of the server.
        text: String,
    },
    /// The request is invalid; a retry does not help.
    #[error("{text}")]
    Invalid {
        /// Reason from the server or the client.
        text: String,
    },
    /// The request exceeds the server's limit.
    #[error("the request is too large for the server: {text}")]
    TooLarge {
        /// Text of the server.
        text: String,
    },
    /// The server rate-limited the call.
    #[error("the server rate-limited the call{}", format_retry_after(*.retry_after))]
    RateLimited {
        /// Time until a retry, if the server sent one.
        retry_after: Option<Duration>,
    },
    /// The server is temporarily unavailable.
    #[error("the server is unavailable ({status}): {text}{}", format_retry_after(*.retry_after))]
    Unavailable {
        /// HTTP status.
        status: u16,
        /// Text of the server.
        text: String,
        /// Time until a retry, if the server sent one.
        retry_after: Option<Duration>,
    },
    /// The server's version or edition lacks the call or a field of it.
    #[error("this server does not support {feature}{}", format_since(*.since))]
    NotSupported {
        /// Missing call, field or feature.
        feature: String,
        /// First version that has it, if known.
        since: Option<&'static str>,
    },
    /// There was no response.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The response does not fit the API.
    #[error("unexpected response with status {status}: {text}")]
    Unexpected {
        /// HTTP status.
        status: u16,
        /// Text of the server, or the decoding error.
        text: String,
    },
}

impl AclClientError {
    /// Returns the code for operators.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Unauthenticated => Some(ErrorCode::AclTokenUnknown),
            Self::PermissionDenied(denial)
                if denial.text.as_deref().is_some_and(|text| text.contains(BOOTSTRAP_DONE)) =>
            {
                Some(ErrorCode::BootstrapDone)
            }
            Self::PermissionDenied(_) => Some(ErrorCode::AclPermissionDenied),
            Self::RateLimited { .. } => Some(ErrorCode::ServerRateLimited),
            Self::Unavailable { .. } => Some(ErrorCode::ServerFailed),
            Self::Unexpected { .. } => Some(ErrorCode::InvalidResponse),
            Self::Transport(error) => Some(error.code()),
            _ => None,
        }
    }

    /// True if a write with this error may have been done nevertheless.
    pub const fn is_in_doubt(&self) -> bool {
        match self {
            // 507: the disk is full, and nothing was written.
            Self::Transport(TransportError::Connect { .. }) | Self::Unavailable { status: 507, .. } => false,
            Self::Transport(_) | Self::Unavailable { .. } | Self::Unexpected { .. } => true,
            _ => false,
        }
    }
}

/// Text of servers that have their first token.
const BOOTSTRAP_DONE: &str = "bootstrap no longer allowed";

fn format_since(version: Option<&str>) -> String {
    version.map(|version| format!(": it needs {version} or later")).unwrap_or_default()
}

fn format_retry_after(after: Option<Duration>) -> String {
    after.map(|after| format!("; try again in {} s", after.as_secs())).unwrap_or_default()
}

/// Details of a denied permission. Old servers send only "Permission denied".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionDenial {
    /// Accessor of the denied token, or `anonymous`.
    pub accessor: Option<String>,
    /// Missing permission, such as `acl:write`.
    pub permission: Option<String>,
    /// Name of the resource, if the permission is for a named one.
    pub(crate) resource: Option<String>,
    /// Text of the server if it has another form.
    pub(crate) text: Option<String>,
}

impl fmt::Display for PermissionDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("permission denied")?;
        match self.accessor.as_deref() {
            Some("anonymous") => f.write_str(": no token was sent, and the anonymous token lacks")?,
            Some(accessor) => write!(f, ": the token with accessor {accessor} lacks")?,
            None => return self.text.as_ref().map_or(Ok(()), |text| write!(f, ": {text}")),
        }
        write!(f, " {}", self.permission.as_deref().unwrap_or("the permission"))?;
        self.resource.as_ref().map_or(Ok(()), |resource| write!(f, " on {resource:?}"))
    }
}

impl PermissionDenial {
    /// Parses `Permission denied: token with AccessorID 'ID' lacks permission 'acl:write' on "name"` and variants.
    fn parse(text: &str) -> Self {
        let between = |from: &str, until: char| {
            let (_, rest) = text.split_once(from)?;
            Some(rest.split_once(until)?.0.to_owned())
        };
        let anonymous = text.contains("anonymous token lacks permission").then(|| "anonymous".to_owned());
        let accessor = anonymous.or_else(|| between("AccessorID '", '\''));
        let rest = text.split_once("Permission denied").map_or(text, |(_, rest)| rest);
        let text = rest.trim_start_matches([':', ' ']);
        Self {
            permission: between("lacks permission '", '\''),
            resource: between("' on \"", '"'),
            text: (accessor.is_none() && !text.is_empty()).then(|| text.to_owned()),
            accessor,
        }
    }
}

/// Converts an unsuccessful response into an error. `call` names the endpoint, `since` is the first version that has it;
/// `sent` is the secret of the call, which is redacted where the server echoes it.
pub(super) fn parse_error(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    call: &str,
    since: Option<&'static str>,
    sent: &str,
) -> AclClientError {
    let message = sanitize::sanitize(String::from_utf8_lossy(body).trim(), sent);
    let now = || sanitize::parse_date_header(headers).unwrap_or_else(SystemTime::now);
    let retry_after = || sanitize::parse_retry_after(headers, now());
    let text = || if message.is_empty() { status.to_string() } else { message.clone() };
    if let Some(error) = not_supported(status, &message, call, since) {
        return error;
    }
    match status.as_u16() {
        401 | 403 | 404 if message.contains("Supplied token does not exist") => AclClientError::Unauthenticated,
        // Logins send no token, so the 403 is about the auth method.
        403 if message.contains("ACL not found: auth method") => AclClientError::NotFound { text: text() },
        403 if message.contains("ACL not found") => AclClientError::Unauthenticated,
        403 => AclClientError::PermissionDenied(PermissionDenial::parse(&message)),
        404 => AclClientError::NotFound { text: text() },
        409 => AclClientError::Conflict { text: text() },
        413 => AclClientError::TooLarge { text: text() },
        429 => AclClientError::RateLimited { retry_after: retry_after() },
        502..=504 | 507 => {
            AclClientError::Unavailable { status: status.as_u16(), text: text(), retry_after: retry_after() }
        }
        400 | 500 if CONFLICT_TEXTS.iter().any(|part| message.contains(part)) => {
            AclClientError::Conflict { text: text() }
        }
        400 | 405 | 408 | 414 | 415 | 422 | 431 => AclClientError::Invalid { text: text() },
        500 if INVALID_TEXTS.iter().any(|part| message.contains(part)) => AclClientError::Invalid { text: text() },
        status => AclClientError::Unexpected { status, text: text() },
    }
}

fn not_supported(status: StatusCode, text: &str, call: &str, since: Option<&'static str>) -> Option<AclClientError> {
    let not_supported =
        |feature: &str, since| Some(AclClientError::NotSupported { feature: feature.to_owned(), since });
    let no_path = text.contains("Invalid URL path") || text.contains("404 page not found");
    match status.as_u16() {
        404 if no_path => not_supported(&format!("{call}, or the address's path is wrong"), since),
        401 if text.contains("ACL support disabled") => not_supported("ACL support, which is disabled there", None),
        // Text of Consul's community edition for a field, a parameter or a header.
        400 if text.contains("Namespaces are a ") => not_supported("namespaces", Some("1.7.0")),
        400 => {
            let (_, rest) = text.split_once("unknown field \"")?;
            let field = rest.split('"').next()?;
            let (_, since) = VERSIONED_FIELDS.iter().find(|(name, _)| *name == field)?;
            not_supported(&format!("the field {field}"), *since)
        }
        _ => None,
    }
}

/// Fields that older servers lack, with the first version that has them.
const VERSIONED_FIELDS: [(&str, Option<&str>); 10] = [
    ("AccessorID", Some("1.5.0")),
    ("SecretID", Some("1.5.0")),
    ("Roles", Some("1.5.0")),
    ("ServiceIdentities", Some("1.5.0")),
    ("ExpirationTime", Some("1.5.0")),
    ("ExpirationTTL", Some("1.5.0")),
    ("Namespace", Some("1.7.0")),
    ("Partition", None),
    ("NodeIdentities", Some("1.8.1")),
    ("TemplatedPolicies", None),
];

/// Substrings of errors about a name or id in use, with any status.
const CONFLICT_TEXTS: [&str; 2] = ["already exists", "is already in use"];

/// Substrings of errors about an invalid request with status 500.
const INVALID_TEXTS: [&str; 15] = [
    "Invalid ",
    "No such ACL",
    "Cannot ",
    "cannot ",
    "is disallowed",
    "is not permitted",
    "not a valid UUID",
    "invalid UUID",
    "UUID must be",
    "identity is missing",
    "has an invalid name",
    "should be > 0",
    "can only filter by one",
    "Failed to parse ACL rules",
    "Deletion of ",
];

#[cfg(test)]
mod tests;
