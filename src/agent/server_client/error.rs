//! Errors of calls to a server, and their meaning for the token.

use std::time::{Duration, SystemTime};

use keyward_http::client::{TransportError, connection_error_code};
use keyward_telemetry::error_code::ErrorCode;

/// Error of a call. Texts of the server are truncated, escaped, and redacted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The connection failed, or broke before the response was complete.
    #[error("{cause}")]
    Unreachable {
        /// Chain of causes in one line, including the server's origin.
        cause: String,
    },
    /// The server accepted the connection and did not respond in time.
    #[error("no response from {server} within {} s", after.as_secs_f32())]
    TimedOut {
        /// Origin or socket of the server.
        server: String,
        /// Time limit of the call.
        after: Duration,
    },
    /// The server responded with an error status.
    #[error("HTTP {status}{}", format_reasons(errors))]
    Status {
        /// HTTP status.
        status: u16,
        /// Error messages of the server.
        errors: Vec<String>,
        /// The `Retry-After` header, between one second and fifteen minutes.
        retry_after: Option<Duration>,
        /// The server's time by its `Date` header.
        date: Option<SystemTime>,
    },
    /// The response does not have the form of this call's responses.
    #[error("invalid response from the server: {what}")]
    InvalidResponse {
        /// Description of the defect, without content of the response.
        what: String,
    },
    /// The response is longer than responses may be, and was not read to its end.
    #[error("{what}")]
    TooLarge {
        /// The server and the limit.
        what: String,
    },
    /// The response is valid and holds no secret, which a retry would not change.
    #[error("the path holds no secret: {what}")]
    NoSecret {
        /// Description of the response.
        what: &'static str,
    },
    /// The login returned a token with limited uses, or the token in a file has them.
    #[error("the token has a limited number of uses ({uses} left), which the agent's own calls would consume")]
    LimitedUse {
        /// Number of uses that are left.
        uses: u64,
    },
}

/// Meaning of a failed look-up, renewal or revocation for the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenVerdict {
    /// The server does not know the token (any more).
    Dead,
    /// A 403 whose only text is `permission denied`: OpenBao, and Vault before 1.13, refuse an unknown token with it.
    ///
    /// A live token gets it only from an address that it is not bound to. The text decides, whatever product is configured.
    Suspect,
    /// Any other 403, such as by a policy that forbids the call (`1 error occurred: * permission denied`).
    ///
    /// If the same call succeeded with the token before, the token is suspect.
    Denied,
    /// Another error status, as of a load balancer or a wrong path, which says nothing about the token.
    Refused,
    /// The server cannot be reached or is in trouble, which says nothing about the token.
    Unavailable,
}

impl CallError {
    /// Returns the server's `Retry-After`.
    pub(crate) const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns the code for operators. Logins have codes of their own for refusals.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            // The first part names the server.
            Self::Unreachable { cause } => {
                Some(connection_error_code(cause.split_once(": ").map_or(cause, |(_, causes)| causes)))
            }
            Self::TimedOut { .. } => Some(ErrorCode::ServerTimeout),
            Self::InvalidResponse { .. } | Self::TooLarge { .. } => Some(ErrorCode::InvalidResponse),
            Self::NoSecret { .. } => Some(ErrorCode::SecretMissing),
            Self::LimitedUse { .. } => Some(ErrorCode::TokenLimitedUse),
            Self::Status { status, errors, .. } => match status {
                _ if self.is_token_dead() => Some(ErrorCode::TokenDead),
                403 => Some(ErrorCode::AccessDenied),
                404 | 405 => Some(ErrorCode::ServerPath),
                429 => Some(ErrorCode::ServerRateLimited),
                503 if errors.iter().any(|text| text.contains("sealed")) => Some(ErrorCode::ServerSealed),
                300..=399 | 412 | 472 | 473 => Some(ErrorCode::ServerStandby),
                500.. => Some(ErrorCode::ServerFailed),
                _ => None,
            },
        }
    }

    /// Interprets the error for the token of the call. Not for logins.
    pub fn verdict(&self) -> TokenVerdict {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::InvalidResponse { .. } => {
                TokenVerdict::Unavailable
            }
            Self::Status { status, .. } if is_outage(*status) => TokenVerdict::Unavailable,
            Self::Status { status: 403, errors, .. } if errors.iter().any(|error| is_unknown_token(error)) => {
                TokenVerdict::Dead
            }
            // Consul's response to the self look-up of an unknown token.
            Self::Status { status: 404, errors, .. } if errors.iter().any(|error| error.contains(NO_SUCH_SELF)) => {
                TokenVerdict::Dead
            }
            Self::Status { status: 403, errors, .. } if is_bare_denial(errors) => TokenVerdict::Suspect,
            Self::Status { status: 403, .. } => TokenVerdict::Denied,
            Self::LimitedUse { .. } | Self::NoSecret { .. } | Self::TooLarge { .. } | Self::Status { .. } => {
                TokenVerdict::Refused
            }
        }
    }

    /// Returns true if the server refused an option of a token because the token would be a batch token.
    pub(crate) fn refuses_batch_option(&self) -> bool {
        matches!(self, Self::Status { status: 400, errors, .. } if errors.iter().any(|error| error.contains(NO_BATCH_OPTION)))
    }

    /// Returns true if the server does not know the token.
    pub fn is_token_dead(&self) -> bool {
        self.verdict() == TokenVerdict::Dead
    }
}

impl TokenVerdict {
    /// Returns true if the token may be dead, so that its manager has to look it up; the call itself may be fine.
    pub(crate) const fn suspects_token(self) -> bool {
        matches!(self, Self::Dead | Self::Suspect)
    }
}

/// Returns true if a 403 has the message `permission denied` and no other ([`TokenVerdict::Suspect`]).
pub(crate) fn is_bare_denial(errors: &[impl AsRef<str>]) -> bool {
    matches!(errors, [only] if only.as_ref() == "permission denied")
}

impl From<TransportError> for CallError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::TimedOut { server, after } => Self::TimedOut { server, after },
            TransportError::TooLarge { .. } => Self::TooLarge { what: error.to_string() },
            TransportError::NotWebSocket { .. } => Self::InvalidResponse { what: error.to_string() },
            TransportError::Connect { .. } | TransportError::Broken { .. } => {
                Self::Unreachable { cause: error.to_string() }
            }
        }
    }
}

/// Returns true for a status that means trouble of the server or a load balancer.
///
/// 412 is a node that lags behind, 472 and 473 are standby nodes (Vault's API documentation). A redirect leads to the
/// active node, whose address has to be configured.
pub(crate) const fn is_outage(status: u16) -> bool {
    matches!(status, 300..=399 | 408 | 412 | 425 | 429 | 472 | 473 | 500..)
}

/// Returns true for the message of an unknown token: Vault and OpenBao use the first two, Consul the third.
fn is_unknown_token(error: &str) -> bool {
    ["invalid token", "bad token", "ACL not found"].iter().any(|pattern| error.contains(pattern))
}

/// Start of the refusal of `explicit_max_ttl`, `num_uses` or `period` for a batch token, by Vault and OpenBao.
const NO_BATCH_OPTION: &str = "batch tokens cannot have";

const NO_SUCH_SELF: &str = "Supplied token does not exist";

fn format_reasons(errors: &[String]) -> String {
    if errors.is_empty() { " without a reason".to_owned() } else { format!(": {}", errors.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_is_classified_as_dead_refused_or_unavailable() {
        let check = |status, error: &str, expected| {
            let errors = vec![error.to_owned()];
            let error = CallError::Status { status, errors, retry_after: None, date: None };
            assert_eq!(error.verdict(), expected, "{error}");
        };
        check(403, "2 errors occurred:\\n\\t* permission denied\\n\\t* invalid token\\n\\n", TokenVerdict::Dead);
        check(403, "bad token", TokenVerdict::Dead);
        check(403, "rpc error: ACL not found", TokenVerdict::Dead);
        check(403, "permission denied", TokenVerdict::Suspect);
        check(403, "1 error occurred:\\n\\t* permission denied\\n\\n", TokenVerdict::Denied);
        check(
            403,
            "preflight capability check returned 403, please ensure client's policies grant access",
            TokenVerdict::Denied,
        );
        check(403, "", TokenVerdict::Denied);
        check(404, "Supplied token does not exist", TokenVerdict::Dead);
        check(401, "invalid token", TokenVerdict::Refused);
        check(400, "lease is not renewable", TokenVerdict::Refused);
        check(404, "no handler for route", TokenVerdict::Refused);
        check(405, "unsupported operation", TokenVerdict::Refused);
        check(429, "request path rate limit quota exceeded", TokenVerdict::Unavailable);
        check(503, "Vault is sealed", TokenVerdict::Unavailable);
        check(500, "internal error: invalid token store", TokenVerdict::Unavailable);
        check(307, "the server redirects", TokenVerdict::Unavailable);
        check(473, "", TokenVerdict::Unavailable);
        assert_eq!(CallError::InvalidResponse { what: String::new() }.verdict(), TokenVerdict::Unavailable);
    }

    #[test]
    fn a_failed_call_has_the_code_of_its_cause() {
        let check = |status, error: &str, expected| {
            let errors = vec![error.to_owned()];
            let error = CallError::Status { status, errors, retry_after: None, date: None };
            assert_eq!(error.code(), expected, "{error}");
        };
        check(403, "2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n", Some(ErrorCode::TokenDead));
        check(403, "1 error occurred:\n\t* permission denied\n\n", Some(ErrorCode::AccessDenied));
        check(404, "no handler for route", Some(ErrorCode::ServerPath));
        check(503, "Vault is sealed", Some(ErrorCode::ServerSealed));
        check(503, "no healthy upstream", Some(ErrorCode::ServerFailed));
        check(473, "", Some(ErrorCode::ServerStandby));
        check(400, "lease is not renewable", None);
        let check = |cause: &str, expected| {
            let error = CallError::Unreachable { cause: format!("cannot connect to https://vault.example: {cause}") };
            assert_eq!(error.code(), Some(expected), "{error}");
        };
        check("invalid peer certificate: UnknownIssuer", ErrorCode::ServerCertificate);
        check("dns error: failed to lookup address information", ErrorCode::ServerNameUnknown);
        check("tcp connect error: Connection refused (os error 111)", ErrorCode::ServerUnreachable);
    }
}
