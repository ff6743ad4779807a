//! Errors of identity sources: of one attempt at a token, and of all attempts of a login.

use std::time::Duration;

use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_code::ErrorCode;

/// Error of an identity source after all attempts.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{source_name}: {message}{}", hint.map(|hint| format!(" ({hint})")).unwrap_or_default())]
pub struct IdentityError {
    /// Class of the error, which decides on retries.
    pub kind: IdentityErrorKind,
    /// Name of the source, such as `metadata service`.
    pub source_name: &'static str,
    /// Chain of causes in one line, without secrets.
    pub message: String,
    /// Advice for the operator.
    pub hint: Option<&'static str>,
    /// `Retry-After` of the source.
    pub retry_after: Option<Duration>,
}

/// Class of an identity error: what a retry can achieve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityErrorKind {
    /// A retry fails until someone changes a setting.
    Config,
    /// The identity is missing or not allowed; a new one may take minutes to appear.
    Denied,
    /// The source is starting, or cannot be reached.
    NotReady,
    /// The source limits the rate of requests.
    Throttled,
    /// A failure that may pass.
    Transient,
}

impl IdentityErrorKind {
    /// Returns the code for operators.
    pub(crate) const fn code(self) -> ErrorCode {
        match self {
            Self::Config => ErrorCode::IdentitySettings,
            Self::Denied => ErrorCode::IdentityDenied,
            Self::NotReady | Self::Transient => ErrorCode::IdentityUnavailable,
            Self::Throttled => ErrorCode::IdentityThrottled,
        }
    }
}

impl From<IdentityErrorKind> for ErrorCode {
    fn from(kind: IdentityErrorKind) -> Self {
        kind.code()
    }
}

/// Creates an error about the environment variables.
pub(super) fn config_error(message: String, hint: Option<&'static str>) -> IdentityError {
    IdentityError { kind: IdentityErrorKind::Config, source_name: "environment", message, hint, retry_after: None }
}

/// Error of one attempt at a token. Its text holds no query, no request body and no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AttemptError {
    /// Connection refused, no route, or an unknown host name.
    #[error("cannot connect to {0}")]
    Unreachable(String),
    /// The connection was not established in time, as when packets are dropped.
    #[error("no connection to {0} within the time allowed")]
    ConnectTimedOut(String),
    /// The TLS handshake failed, such as for an untrusted certificate.
    #[error("TLS failed: {0}")]
    Untrusted(String),
    /// The connection ended, or the time limit passed, before the response was complete.
    #[error("incomplete response: {0}")]
    Broken(String),
    /// The response exceeds [`MAX_RESPONSE`].
    #[error("the response is larger than {} bytes", MAX_RESPONSE)]
    TooLarge,
    /// A redirect, which is never followed.
    #[error("the response is a redirect ({0}), which is not followed")]
    Redirected(u16),
    /// An error response.
    #[error("{0}")]
    Refused(ErrorResponse),
    /// A successful response without a token.
    #[error("the response holds no token: {0}")]
    Unreadable(String),
    /// The file of the federated token is missing or unreadable.
    #[error("{0}")]
    NoAssertion(String),
    /// The file of a token proxy's CA certificates is missing or empty, as while it is replaced.
    #[error("{0}")]
    NoAuthorities(String),
    /// The token has expired or is about to.
    #[error("the token expires in less than a minute")]
    Expiring,
    /// A problem that only a change of settings can solve.
    #[error("{message}")]
    Setting {
        /// Description of the problem.
        message: String,
        /// Advice for the operator.
        hint: Option<&'static str>,
    },
}

/// Largest response that is read, in bytes.
pub(super) const MAX_RESPONSE: usize = 64 * 1024;

/// An error response of an Azure service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ErrorResponse {
    pub(super) status: u16,
    /// The `error` code of the body.
    pub(super) error: String,
    /// Description in the body, at most 300 characters; of a body that is not JSON the first 200. It ends with the proxy that
    /// the response came through.
    pub(super) text: String,
    /// True if the body is not a JSON object, as those of Azure's services are.
    pub(super) is_foreign: bool,
    /// Azure's error numbers (`AADSTS...`).
    pub(super) codes: Vec<u32>,
    /// `Retry-After` header.
    pub(super) retry_after: Option<Duration>,
    /// `WWW-Authenticate` header.
    pub(super) challenge: Option<String>,
    /// True if a token proxy answered.
    pub(super) is_token_proxy: bool,
}

impl std::fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "answered {}", self.status)?;
        if !self.error.is_empty() {
            write!(f, " {}", self.error)?;
        }
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        Ok(())
    }
}

impl AttemptError {
    pub(super) fn setting(message: impl Into<String>) -> Self {
        Self::Setting { message: message.into(), hint: None }
    }
}

/// Redacts secrets that a response may echo, in plain and in form encoding.
///
/// Call it before the message is truncated, which could leave half of a secret.
pub(super) fn redact(text: &str, secrets: &[SecretString]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().map(SecretString::expose_secret).filter(|secret| !secret.is_empty()) {
        let encoded: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        text = text.replace(secret, HIDDEN).replace(&encoded, HIDDEN);
    }
    text
}

/// Quotes untrusted text on one line: at most `max` printable characters, with tokens redacted.
pub(super) fn quote(text: &str, max: usize) -> String {
    // The truncated text may end in the start of a token, which is redacted too.
    // A control character becomes a space: without it, the halves of a secret would meet that was not recognised.
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let start: String = text.chars().take(max.saturating_mul(4)).map(printable).collect();
    let line = start.split_whitespace().map(redact_tokens).collect::<Vec<_>>().join(" ");
    line.chars().take(max).collect()
}

/// Redacts JWTs, which start as base64url of `{"`.
fn redact_tokens(word: &str) -> String {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "-_.%=".contains(c);
    let mut redacted = String::new();
    let mut rest = word;
    while let Some(at) = rest.find("eyJ") {
        let (plain, token) = rest.split_at(at);
        redacted.push_str(plain);
        redacted.push_str(HIDDEN);
        rest = token.trim_start_matches(is_token);
    }
    redacted + rest
}

const HIDDEN: &str = "[hidden]";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quoted_text_is_short_plain_and_without_tokens() {
        let check = |text: &str, expected: &str| assert_eq!(quote(text, 40), expected);
        check("<html>\n  <body>\u{7}no", "<html> <body> no");
        check("got eyJhbGciOi.eyJhdWQi.c2ln, sorry", "got [hidden], sorry");
        check("a=eyJhbGci&b=eyJhdWQi.x", "a=[hidden]&b=[hidden]");
        check(&"x".repeat(50), &"x".repeat(40));
    }

    #[test]
    fn an_echoed_secret_is_redacted_in_both_encodings() {
        let secrets = [SecretString::from("s3cr=t"), SecretString::from("")];
        assert_eq!(redact("s3cr=t and s3cr%3Dt", &secrets), "[hidden] and [hidden]");
        let split = redact("s3cr\u{10}=t", &secrets);
        assert_eq!(quote(&split, 40), "s3cr =t", "no secret is put together from its halves");
    }

    proptest! {
        #[test]
        fn quoting_accepts_any_text(text in "(eyJ|[a-z.,é \\n\u{7}]){0,500}") {
            let line = quote(&text, 100);
            prop_assert!(line.chars().count() <= 100 && !line.contains("eyJ") && !line.contains('\n'));
        }
    }
}
