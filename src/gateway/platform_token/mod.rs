//! Platform token: a credential for HCP Terraform or Terraform Enterprise. The gateway watches it, whatever its source
//! is.

mod file;

use http::HeaderValue;
use keyward_credentials::credential_watch::{CredentialWatch, RefreshSignal};
use keyward_machine::clock::ClockReading;
use keyward_machine::file_watch::FileWatch;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;

pub use file::PlatformTokenFile;

/// Watches a token's file; logs once if the kernel has no watch left.
pub(super) fn watch_token_file() -> FileWatch {
    FileWatch::new(|error| {
        tracing::warn!(
            event = "gateway.token.watch_failed",
            error = error.to_string(),
            "the token file cannot be watched; it is read again when the platform rejects the token"
        );
    })
}

/// A token of the platform.
#[derive(Debug)]
pub struct PlatformToken {
    secret: SecretString,
    /// Value of `Authorization`, by [`secret::header_value`]. Built once per token.
    bearer: HeaderValue,
    /// Time at which it was loaded.
    pub(crate) loaded: ClockReading,
}

/// Handle of whatever provides the platform token.
#[derive(Debug, Clone)]
pub struct PlatformTokenSource {
    /// Watch of the token.
    pub watch: CredentialWatch<PlatformToken>,
    /// Requested when the platform rejects the token.
    pub refresh_signal: RefreshSignal,
    /// Description of the source for people, such as `file /run/tfe.token`.
    pub origin: String,
}

impl PlatformToken {
    /// Parses a token.
    pub fn parse(secret: SecretString, loaded: ClockReading) -> Result<Self, MalformedToken> {
        let text = secret.expose_secret();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(MalformedToken);
        }
        let bearer = secret::header_value("Bearer ", &secret).ok_or(MalformedToken)?;
        Ok(Self { secret, bearer, loaded })
    }

    /// Returns the token's text, to be handed to clients.
    pub(crate) const fn secret(&self) -> &SecretString {
        &self.secret
    }

    /// Returns the value of `Authorization`, marked sensitive.
    pub fn bearer(&self) -> HeaderValue {
        self.bearer.clone()
    }

    /// Compares two tokens in constant time.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        secret::ct_eq(&self.secret, other.secret.expose_secret().as_bytes())
    }
}

/// The text cannot be a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it contains characters that are invalid in a token")]
pub struct MalformedToken;

#[cfg(test)]
mod tests {
    use keyward_machine::clock::Clock;

    use super::*;

    #[test]
    fn tokens_are_visible_ascii_and_never_printed() {
        let parse = |text: &str| PlatformToken::parse(SecretString::from(text), Clock::System.now());
        let token = parse("abc.atlasv1.xyz").unwrap();
        assert_eq!(token.bearer().to_str().unwrap(), "Bearer abc.atlasv1.xyz");
        assert!(token.is_same(&parse("abc.atlasv1.xyz").unwrap()) && !token.is_same(&parse("abc").unwrap()));
        assert!(!format!("{token:?} {:?}", token.bearer()).contains("atlas"));
        for text in ["", "two words", "a\nb", "t\u{f6}ken"] {
            assert_eq!(parse(text).unwrap_err(), MalformedToken, "{text}");
        }
    }
}
