//! One attempt at a token that failed: what happened, before anyone judges what to do about it.

use std::time::Duration;

/// Why one attempt gave no token. Its text names no query, no body of a request and no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// Nobody listens there, there is no way there, or its name is not known.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// The connection was not there in time: something drops the packets.
    #[error("no connection within the time allowed")]
    ConnectTimedOut,
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

    /// The same without a secret that the other end may have repeated, as written and as a form writes it.
    pub(super) fn without(self, secret: &str) -> Self {
        let encoded: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        let clean = |text: String| {
            if secret.is_empty() { text } else { text.replace(secret, HIDDEN).replace(&encoded, HIDDEN) }
        };
        match self {
            Self::Refused(refusal) => {
                Self::Refused(Refusal { error: clean(refusal.error), text: clean(refusal.text), ..refusal })
            }
            Self::Unreadable(text) => Self::Unreadable(clean(text)),
            Self::Broken(text) => Self::Broken(clean(text)),
            Self::Setting { message, hint } => Self::Setting { message: clean(message), hint },
            other => other,
        }
    }
}

/// A text of someone else's making on one line: at most `most` printable characters, tokens in it hidden.
pub(super) fn quoted(text: &str, most: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&hide_tokens(word));
    }
    line.chars().filter(|letter| !letter.is_control()).take(most).collect()
}

/// Replaces what looks like a JWT: base64url of `{"`, then two dots.
fn hide_tokens(word: &str) -> String {
    let Some((before, token)) = word.find("eyJ").map(|at| word.split_at(at)) else { return word.to_owned() };
    let is_token = |letter: char| letter.is_ascii_alphanumeric() || "-_.%=".contains(letter);
    let end = token.find(|letter| !is_token(letter)).unwrap_or(token.len());
    format!("{before}{HIDDEN}{}", hide_tokens(&token[end..]))
}

const HIDDEN: &str = "[hidden]";

#[cfg(test)]
mod tests {
    use super::*;

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
        let refusal = Refusal { status: 400, text: "s3cr=t and s3cr%3Dt".to_owned(), ..Refusal::default() };
        let told = Failure::Refused(refusal).without("s3cr=t").to_string();
        assert_eq!(told, "answered 400: [hidden] and [hidden]");
    }
}
