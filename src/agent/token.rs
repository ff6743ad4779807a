//! Tokens of Vault, OpenBao and Consul-compatible servers.

use std::time::Duration;

use keyward_credentials::credential_watch::{CredentialPublisher, CredentialWatch, RefreshSignal};
use keyward_machine::clock::ClockReading;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;

/// A token of a server, with its accessor, lease and policies.
#[derive(Debug)]
pub struct Token {
    /// Secret text that clients send.
    pub secret: ClientToken,
    /// The server's accessor of the token, which is no credential.
    pub accessor: Option<String>,
    /// Lease as of the login or the last renewal.
    pub lease: Lease,
    /// Service, batch or wrapping token.
    pub kind: TokenKind,
    /// Names of its policies.
    pub policies: Vec<String>,
    /// Time when the login or the last renewal was sent: the lease of the server starts no earlier.
    pub obtained: ClockReading,
    /// Expiry; `None` for a token without one.
    pub expires: Option<ClockReading>,
    /// Identifies the login; secrets that were read with the token are grouped by it. Renewals keep it.
    pub generation: Generation,
}

/// Write half of a session's token; only the token manager has it.
pub type TokenPublisher = CredentialPublisher<Token>;

/// Read half of a session's token, one clone per output.
pub type TokenWatch = CredentialWatch<Token>;

/// A session's token, or one derived from it, and the signal that has it checked.
#[derive(Debug, Clone)]
pub struct SessionHandle {
    /// Publishes the token.
    pub watch: TokenWatch,
    /// Requests a check, as `POST /agent/v1/check` does.
    pub refresh_signal: RefreshSignal,
}

/// Secret text of a token: 1 to 4096 visible ASCII characters, so that it fits a header and a line protocol.
#[derive(Debug, Clone)]
pub struct ClientToken(SecretString);

impl ClientToken {
    /// Parses a token; returns `None` if it contains characters that are invalid in a header.
    pub fn parse(text: SecretString) -> Option<Self> {
        let bytes = text.expose_secret().as_bytes();
        let fits = (1..=4096).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
        fits.then_some(Self(text))
    }

    /// Returns the token as a header, by [`secret::header_value`].
    pub(crate) fn header_value(&self) -> http::HeaderValue {
        // A client token is visible ASCII, so it always fits a header.
        secret::header_value("", &self.0).unwrap_or_else(|| http::HeaderValue::from_static(""))
    }

    /// Returns the secret, to be sent or written on purpose.
    pub const fn secret(&self) -> &SecretString {
        &self.0
    }
}

/// Lease of a token or secret, as granted by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Time to the expiry, which counts from the request; zero means no expiry.
    pub ttl: Duration,
    /// True if the server allows renewals.
    pub renewable: bool,
}

/// Kind of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenKind {
    /// Stored by the server: can be looked up and revoked.
    Service,
    /// Not stored by the server: valid to its end, and cannot be renewed or revoked.
    Batch,
    /// A single-use token that unwraps to the login's response; it is never renewed or looked up.
    Wrapping {
        /// Creation time by the server, RFC 3339.
        creation_time: String,
        /// API path whose response is wrapped.
        creation_path: String,
    },
}

/// Identifier of the login that a token came from. Opaque, without order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Generation(u64);

impl Generation {
    /// Creates a random generation, unlike any before it.
    pub fn new() -> Self {
        let mut bytes = [0_u8; 8];
        // If the system's random generator fails, the random seed of the standard library's hasher remains.
        if aws_lc_rs::rand::fill(&mut bytes).is_err() {
            use std::hash::{BuildHasher as _, RandomState};
            bytes = RandomState::new().hash_one(()).to_le_bytes();
        }
        Self(u64::from_le_bytes(bytes))
    }
}

impl Default for Generation {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_token_is_visible_ascii_that_fits_a_header() {
        let check = |text: &str, fits| assert_eq!(ClientToken::parse(SecretString::from(text)).is_some(), fits);
        check("hvs.CAESIJ", true);
        check(&"a".repeat(4096), true);
        check(&"a".repeat(4097), false);
        check("", false);
        check("a b", false);
        check("a\r\nb", false);
        check("é", false);
    }

    #[test]
    fn a_tokens_debug_text_does_not_hold_it() {
        let token = ClientToken::parse(SecretString::from("hvs.canary")).unwrap();
        assert!(!format!("{token:?}").contains("canary"));
    }
}
