//! What the agent holds and hands out.

use std::time::Duration;

use secrecy::SecretString;

use crate::clock::ClockReading;
use crate::credential_watch::{CredentialPublisher, CredentialWatch};

/// A token of the secrets server, with what the server said about it.
#[derive(Debug)]
pub struct Token {
    /// What a client sends.
    pub secret: ClientToken,
    /// The server's name for the token, which cannot be used in its place.
    pub accessor: Option<String>,
    /// How long it lives.
    pub lease: Lease,
    /// What kind of token it is.
    pub kind: Kind,
    /// Names of the policies that the server gave it.
    pub policies: Vec<String>,
    /// When the login (or the last renewal) was answered.
    pub obtained: ClockReading,
    /// When it ends; `None` for one that never does.
    pub expires: Option<ClockReading>,
    /// Groups what was got with this token; a renewal keeps it, a login makes a new one.
    pub generation: Generation,
}

/// The write half of a token's watch; its maker alone has it.
pub type TokenPublisher = CredentialPublisher<Token>;

/// The read half of a token's watch, one clone an output.
pub type TokenWatch = CredentialWatch<Token>;

/// The secret text of a token: 1 to 4096 visible ASCII characters, so that it fits a header and a line protocol.
#[derive(Debug, Clone)]
pub struct ClientToken(SecretString);

impl ClientToken {
    /// Takes a token's text, or nothing if it could not stand in a header.
    pub fn parse(text: SecretString) -> Option<Self> {
        use secrecy::ExposeSecret as _;
        let bytes = text.expose_secret().as_bytes();
        let fits = (1..=4096).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
        fits.then_some(Self(text))
    }

    /// The secret, to be sent or written on purpose.
    pub const fn secret(&self) -> &SecretString {
        &self.0
    }
}

/// How long a token lives, as the server said at the login or the last renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Time from the answer to the end; zero means that the token never ends.
    pub ttl: Duration,
    /// Whether the server will renew it.
    pub renewable: bool,
}

/// What kind of token a login gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Kept by the server: can be looked up and revoked.
    Service,
    /// Not kept by the server: lives to its end, cannot be renewed or revoked.
    Batch,
    /// A single-use token that unwraps to the login's answer; never renewed or looked up.
    Wrapping {
        /// When the server made it, RFC 3339.
        creation_time: String,
        /// The path that was wrapped.
        creation_path: String,
    },
}

/// Names the login that a token came from. Opaque: equal or not, no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Generation(u64);

impl Generation {
    /// A new generation, unlike any before it.
    pub fn new() -> Self {
        let mut bytes = [0_u8; 8];
        // A failing system generator leaves the address-space seed of the standard library's hasher.
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
