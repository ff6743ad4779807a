//! The platform's token: what it is, and who makes it. The gateway takes a feed of it and does not know from where.

mod file;

use http::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use crate::clock::ClockReading;
use crate::credential_watch::{CredentialWatch, RefreshSignal};
use crate::file_watch::FileWatch;
use crate::secret;

pub use file::PlatformTokenFile;

/// A watch on the file of a token; one line is logged where the system has none to give.
pub(super) fn watch_token_file() -> FileWatch {
    FileWatch::new(|error| {
        tracing::warn!(
            event = "gateway.token.unwatched",
            %error,
            "changes of the token's file cannot be watched; it is read when the platform refuses the token"
        );
    })
}

/// A token of the platform.
#[derive(Debug)]
pub struct PlatformToken {
    secret: SecretString,
    /// What is put into `Authorization`, sensitive, so that nothing shows it. Made once for each token.
    bearer: HeaderValue,
    /// When it was taken over here.
    pub loaded: ClockReading,
}

/// Where the gateway has its platform token from.
#[derive(Debug, Clone)]
pub struct PlatformTokenSource {
    /// The token.
    pub watch: CredentialWatch<PlatformToken>,
    /// Rung when the platform says that it is no longer good.
    pub refresh_signal: RefreshSignal,
    /// Where it comes from, in words for people, such as `file /run/tfe.token`.
    pub origin: String,
}

impl PlatformToken {
    /// A token as the platform gave it.
    ///
    /// # Errors
    /// It is empty or holds what no header may (RFC 6750, 2.1: visible ASCII).
    pub fn parse(secret: SecretString, loaded: ClockReading) -> Result<Self, MalformedToken> {
        let text = secret.expose_secret();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(MalformedToken);
        }
        let mut bearer = Zeroizing::new(String::with_capacity(text.len() + 7));
        bearer.push_str("Bearer ");
        bearer.push_str(text);
        let mut bearer = HeaderValue::from_str(&bearer).map_err(|_| MalformedToken)?;
        bearer.set_sensitive(true);
        Ok(Self { secret, bearer, loaded })
    }

    /// The token itself, for those that it is handed to.
    pub const fn secret(&self) -> &SecretString {
        &self.secret
    }

    /// What is put into `Authorization`; it is marked as sensitive.
    pub fn bearer(&self) -> HeaderValue {
        self.bearer.clone()
    }

    /// Whether both are the same token.
    pub fn is_same(&self, other: &Self) -> bool {
        secret::ct_eq(&self.secret, other.secret.expose_secret().as_bytes())
    }
}

/// What was taken for a token is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it holds characters that no token has")]
pub struct MalformedToken;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_token_is_visible_ascii_and_its_header_is_not_shown() {
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
