//! Why a call gave nothing: what a server's status and text mean.

use std::fmt;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use crate::http::client::TransportError;
use crate::http::client::sanitize;

/// Why a call gave nothing.
///
/// Servers answer with one line of plain text. It is matched by parts of it: a server that forwards a call puts words of
/// its own before the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The server does not know the secret that was sent, or none was sent where one is needed.
    #[error("the server does not know this token: it is wrong, expired or deleted")]
    Unauthenticated,
    /// The token may not do this.
    #[error("{0}")]
    PermissionDenied(Denial),
    /// What was asked for is not there.
    #[error("{text}")]
    NotFound {
        /// The server's words.
        text: String,
    },
    /// A name or an id is taken, or what is asked for does not go with what is under way.
    #[error("{text}")]
    Conflict {
        /// The server's words.
        text: String,
    },
    /// The request is wrong, and will be wrong again.
    #[error("{text}")]
    Invalid {
        /// What is wrong with it.
        text: String,
    },
    /// The request is larger than the server takes.
    #[error("the request is larger than the server takes: {text}")]
    TooLarge {
        /// The server's words.
        text: String,
    },
    /// The server takes no more calls for now.
    #[error("the server takes no more calls for now{}", again(*.retry_after))]
    RateLimited {
        /// When to try again, where it said so.
        retry_after: Option<Duration>,
    },
    /// The server cannot answer for now.
    #[error("the server cannot answer for now ({status}): {text}{}", again(*.retry_after))]
    Unavailable {
        /// The status of its answer.
        status: u16,
        /// Its words.
        text: String,
        /// When to try again, where it said so.
        retry_after: Option<Duration>,
    },
    /// The server is too old for the call or for a field of it, or is another edition.
    #[error("this server lacks {what}{}", needs.map(|version| format!(": it needs {version} or later")).unwrap_or_default())]
    NotSupported {
        /// What it lacks.
        what: String,
        /// The first version that has it, where that is known.
        needs: Option<&'static str>,
    },
    /// There was no answer.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The answer is none that such a service gives.
    #[error("the server answers {status}, which means nothing here: {text}")]
    Unexpected {
        /// The status.
        status: u16,
        /// What came.
        text: String,
    },
}

impl Error {
    /// Whether a write that failed so may have been done all the same.
    pub const fn is_in_doubt(&self) -> bool {
        match self {
            // A full disk that took nothing.
            Self::Transport(TransportError::Connect { .. }) | Self::Unavailable { status: 507, .. } => false,
            Self::Transport(_) | Self::Unavailable { .. } | Self::Unexpected { .. } => true,
            _ => false,
        }
    }
}

fn again(after: Option<Duration>) -> String {
    after.map(|after| format!("; try again in {} s", after.as_secs())).unwrap_or_default()
}

/// Who was refused what. Old servers say nothing but "Permission denied".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Denial {
    /// The accessor of the token that was refused, or `anonymous`.
    pub accessor: Option<String>,
    /// What it lacks, such as `acl:write`.
    pub permission: Option<String>,
    /// On what, where the permission is for something that has a name.
    pub resource: Option<String>,
    /// The server's own words where they are none of these.
    pub text: Option<String>,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("permission denied")?;
        match self.accessor.as_deref() {
            Some("anonymous") => f.write_str(": no token was sent, and without one there is no")?,
            Some(accessor) => write!(f, ": the token with accessor {accessor} has no")?,
            None => return self.text.as_ref().map_or(Ok(()), |text| write!(f, ": {text}")),
        }
        write!(f, " {}", self.permission.as_deref().unwrap_or("such permission"))?;
        self.resource.as_ref().map_or(Ok(()), |resource| write!(f, " on {resource:?}"))
    }
}

impl Denial {
    /// Reads `Permission denied: token with AccessorID 'ID' lacks permission 'acl:write' on "name"`, and its kin.
    fn read(told: &str) -> Self {
        let between = |from: &str, to: char| {
            let (_, rest) = told.split_once(from)?;
            Some(rest.split_once(to)?.0.to_owned())
        };
        let anonymous = told.contains("anonymous token lacks permission").then(|| "anonymous".to_owned());
        let accessor = anonymous.or_else(|| between("AccessorID '", '\''));
        let rest = told.split_once("Permission denied").map_or(told, |(_, rest)| rest);
        let text = rest.trim_start_matches([':', ' ']);
        Self {
            permission: between("lacks permission '", '\''),
            resource: between("' on \"", '"'),
            text: (accessor.is_none() && !text.is_empty()).then(|| text.to_owned()),
            accessor,
        }
    }
}

/// What an answer that is no success means. `call` is what was asked for, `since` the version that brought it, where one
/// is known; `sent` is the secret of the call, which a server might echo.
pub(super) fn refusal(
    (status, headers, body): (StatusCode, &HeaderMap, &[u8]),
    call: &'static str,
    since: Option<&'static str>,
    sent: &str,
) -> Error {
    let told = sanitize::sanitize(String::from_utf8_lossy(body).trim(), sent);
    let now = || sanitize::parse_date_header(headers).unwrap_or_else(SystemTime::now);
    let retry_after = || sanitize::parse_retry_after(headers, now());
    let text = || if told.is_empty() { status.to_string() } else { told.clone() };
    if let Some(error) = not_supported(status, &told, call, since) {
        return error;
    }
    match status.as_u16() {
        401 | 403 | 404 if told.contains("Supplied token does not exist") => Error::Unauthenticated,
        403 if told.contains("ACL not found") => Error::Unauthenticated,
        403 => Error::PermissionDenied(Denial::read(&told)),
        404 => Error::NotFound { text: text() },
        409 => Error::Conflict { text: text() },
        413 => Error::TooLarge { text: text() },
        429 => Error::RateLimited { retry_after: retry_after() },
        502..=504 | 507 => Error::Unavailable { status: status.as_u16(), text: text(), retry_after: retry_after() },
        400 | 500 if TAKEN.iter().any(|part| told.contains(part)) => Error::Conflict { text: text() },
        400 | 405 | 408 | 414 | 415 | 422 | 431 => Error::Invalid { text: text() },
        500 if WRONG.iter().any(|part| told.contains(part)) => Error::Invalid { text: text() },
        status => Error::Unexpected { status, text: text() },
    }
}

fn not_supported(status: StatusCode, told: &str, call: &str, since: Option<&'static str>) -> Option<Error> {
    let lacks = |what: &str, needs| Some(Error::NotSupported { what: what.to_owned(), needs });
    let no_path = told.contains("Invalid URL path") || told.contains("404 page not found");
    match status.as_u16() {
        404 if no_path => lacks(&format!("{call}, or the address's path is wrong"), since),
        401 if told.contains("ACL support disabled") => lacks("access control, which is switched off there", None),
        // The smaller edition's words for a field, a parameter or a header.
        400 if told.contains("Namespaces are a ") => lacks("namespaces", Some("1.7.0")),
        400 => {
            let (_, rest) = told.split_once("unknown field \"")?;
            let field = rest.split('"').next()?;
            let (_, needs) = FIELDS.iter().find(|(known, _)| *known == field)?;
            lacks(&format!("the field {field}"), *needs)
        }
        _ => None,
    }
}

/// Fields that older servers do not know, and the first version that does.
const FIELDS: [(&str, Option<&str>); 10] = [
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

/// Parts of what servers say of a name or an id that is taken, whatever the status.
const TAKEN: [&str; 2] = ["already exists", "is already in use"];

/// Parts of what servers say of a request that is wrong and answer with 500.
const WRONG: [&str; 15] = [
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
