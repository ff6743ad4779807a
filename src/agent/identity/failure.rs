//! One attempt at a token that failed: what happened, before anyone judges what to do about it.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

/// Why one attempt gave no token. Its text names no query, no body of a request and no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// Nobody listens there, there is no way there, or its name is not known.
    #[error("cannot connect to {0}")]
    Unreachable(String),
    /// The connection was not there in time: something drops the packets.
    #[error("no connection to {0} within the time allowed")]
    ConnectTimedOut(String),
    /// The other end is not who it should be.
    #[error("TLS failed: {0}")]
    Untrusted(String),
    /// The connection ended, or the time was up, before the answer was whole.
    #[error("no whole answer: {0}")]
    Broken(String),
    /// More than a token answer ever is.
    #[error("the answer is larger than {} bytes", MAX_ANSWER)]
    TooLarge,
    /// A redirect, which is never followed.
    #[error("the answer is a redirect ({0}), which is not followed")]
    Redirected(u16),
    /// An answer that says no.
    #[error("{0}")]
    Refused(Refusal),
    /// An answer that says yes and holds no token.
    #[error("the answer holds no token: {0}")]
    Unreadable(String),
    /// The federated token's file gave nothing.
    #[error("{0}")]
    NoAssertion(String),
    /// The token that came has ended, or is about to.
    #[error("the token that came ends in less than a minute")]
    Stale,
    /// Something that only a change of settings mends.
    #[error("{message}")]
    Setting {
        /// What is wrong.
        message: String,
        /// What mends it.
        hint: Option<&'static str>,
    },
}

/// The largest answer that is read, in bytes.
pub(super) const MAX_ANSWER: usize = 64 * 1024;

/// What an answer other than 2xx said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// The `error` word of its body.
    pub(super) error: String,
    /// The description in its body, at most 300 characters; of a body that is no JSON the first 200.
    pub(super) text: String,
    /// The provider's error numbers (`AADSTS...`).
    pub(super) codes: Vec<u32>,
    /// How long it asks to wait.
    pub(super) retry_after: Option<Duration>,
    /// An authentication challenge.
    pub(super) challenge: Option<String>,
}

impl std::fmt::Display for Refusal {
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

impl Failure {
    pub(super) fn setting(message: impl Into<String>) -> Self {
        Self::Setting { message: message.into(), hint: None }
    }
}

/// A text without secrets that the other end may have repeated, as written and as a form writes them. To be done before
/// the text is cut: the cut could leave half of one.
pub(super) fn hide(text: &str, secrets: &[SecretString]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().map(ExposeSecret::expose_secret).filter(|secret| !secret.is_empty()) {
        let encoded: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        text = text.replace(secret, HIDDEN).replace(&encoded, HIDDEN);
    }
    text
}

/// A text of someone else's making on one line: at most `most` printable characters, tokens in it hidden.
pub(super) fn quoted(text: &str, most: usize) -> String {
    // A text that is cut here starts a token at most, and its start is hidden too.
    let start: String = text.chars().take(most.saturating_mul(4)).collect();
    let line = start.split_whitespace().map(hide_tokens).collect::<Vec<_>>().join(" ");
    line.chars().filter(|letter| !letter.is_control()).take(most).collect()
}

/// Replaces what looks like a JWT, which starts as base64url of `{"`.
fn hide_tokens(word: &str) -> String {
    let is_token = |letter: char| letter.is_ascii_alphanumeric() || "-_.%=".contains(letter);
    let mut shown = String::new();
    let mut rest = word;
    while let Some(at) = rest.find("eyJ") {
        let (before, token) = rest.split_at(at);
        shown.push_str(before);
        shown.push_str(HIDDEN);
        rest = token.trim_start_matches(is_token);
    }
    shown + rest
}

const HIDDEN: &str = "[hidden]";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quoted_text_is_short_plain_and_without_tokens() {
        let check = |text: &str, wanted: &str| assert_eq!(quoted(text, 40), wanted);
        check("<html>\n  <body>\u{7}no", "<html> <body>no");
        check("got eyJhbGciOi.eyJhdWQi.c2ln, sorry", "got [hidden], sorry");
        check("a=eyJhbGci&b=eyJhdWQi.x", "a=[hidden]&b=[hidden]");
        check(&"x".repeat(50), &"x".repeat(40));
    }

    #[test]
    fn a_secret_that_was_echoed_is_hidden_in_both_its_forms() {
        let secrets = [SecretString::from("s3cr=t"), SecretString::from("")];
        assert_eq!(hide("s3cr=t and s3cr%3Dt", &secrets), "[hidden] and [hidden]");
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_quoting(text in "(eyJ|[a-z.,é \\n\u{7}]){0,500}") {
            let line = quoted(&text, 100);
            prop_assert!(line.chars().count() <= 100 && !line.contains("eyJ") && !line.contains('\n'));
        }
    }
}
