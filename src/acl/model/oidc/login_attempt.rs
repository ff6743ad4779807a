//! A login that has begun: content of the `state` that travels through browser and provider, sealed.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::error::{MAX_CLIENT_NONCE, MIN_CLIENT_NONCE, OidcError};
use crate::model::id::Id;
use crate::model::timestamp::Timestamp;

/// A login that has begun. The server keeps none: whoever finishes the login sends it back.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoginAttempt {
    /// URI to which the provider sends the browser back.
    pub(crate) redirect_uri: String,
    /// Hash of the nonce of the client, which only the client has.
    client: String,
    /// Secret that the code is bound to (RFC 7636, 4.1).
    verifier: String,
    /// Nonce that the ID token must have.
    pub(crate) nonce: String,
    /// Metadata for the description of the token.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) meta: BTreeMap<String, String>,
    /// Time until which the login must be finished.
    end: Timestamp,
}

impl std::fmt::Debug for LoginAttempt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LoginAttempt").field("redirect_uri", &self.redirect_uri).finish_non_exhaustive()
    }
}

/// Most bytes of metadata, as JSON: providers refuse URLs beyond a few KiB.
const MAX_META: usize = 1024;

/// Time for a person to log in at the provider.
const TIME_LIMIT: Duration = Duration::from_mins(5);

impl LoginAttempt {
    /// Begins a login at `now`, with new random values.
    pub(crate) fn begin(
        redirect_uri: String,
        client_nonce: &str,
        meta: BTreeMap<String, String>,
        now: Timestamp,
    ) -> Result<Self, OidcError> {
        if !(MIN_CLIENT_NONCE..=MAX_CLIENT_NONCE).contains(&client_nonce.len()) {
            return Err(OidcError::ClientNonce);
        }
        if serde_json::to_vec(&meta).map_or(usize::MAX, |text| text.len()) > MAX_META {
            return Err(OidcError::Meta(MAX_META));
        }
        // 244 random bits in characters that need no escape. RFC 7636, 7.1 wants 256, of which guessing knows no difference.
        let verifier = format!("{}-{}", Id::random(), Id::random());
        let nonce = Id::random().to_string();
        Ok(Self { redirect_uri, client: hash(client_nonce), verifier, nonce, meta, end: now.after(TIME_LIMIT) })
    }

    /// Verifies that the client that began the login finishes it, in time.
    pub(crate) fn verify(&self, client_nonce: &str, now: Timestamp) -> Result<(), OidcError> {
        if now > self.end {
            return Err(OidcError::TooLate);
        }
        verify_slices_are_equal(hash(client_nonce).as_bytes(), self.client.as_bytes())
            .map_err(|_| OidcError::OtherClient)
    }

    /// Returns the secret that the code is bound to, for the token endpoint alone.
    pub(crate) fn verifier(&self) -> &str {
        &self.verifier
    }

    /// Returns the code challenge: the hash of the verifier (RFC 7636, 4.2).
    pub(super) fn challenge(&self) -> String {
        hash(&self.verifier)
    }
}

fn hash(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const CLIENT: &str = "0123456789abcdef";

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_system_time(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    fn begin(client_nonce: &str, meta: &[(&str, &str)]) -> Result<LoginAttempt, OidcError> {
        let meta = meta.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        LoginAttempt::begin("http://localhost:8550/oidc/callback".to_owned(), client_nonce, meta, at(1000))
    }

    #[test]
    fn a_login_is_finished_by_the_client_that_began_it_within_five_minutes() {
        let attempt = begin(CLIENT, &[]).unwrap();
        assert_eq!(attempt.verify(CLIENT, at(1000)), Ok(()));
        assert_eq!(attempt.verify(CLIENT, at(1300)), Ok(()));
        assert_eq!(attempt.verify(CLIENT, at(1301)), Err(OidcError::TooLate));
        for other in ["", "0123456789abcdeF", "0123456789abcdef0"] {
            assert_eq!(attempt.verify(other, at(1000)), Err(OidcError::OtherClient), "{other}");
        }
        let other = begin(CLIENT, &[]).unwrap();
        assert!(attempt.verifier != other.verifier && attempt.nonce != other.nonce);
        assert!((43..=128).contains(&attempt.verifier().len()), "RFC 7636, 4.1: {}", attempt.verifier());
        let shown = format!("{attempt:?}");
        assert!(!shown.contains(attempt.verifier()) && !shown.contains(&attempt.nonce), "{shown}");
    }

    #[test]
    fn client_nonces_and_metadata_have_bounds() {
        assert_eq!(begin(&CLIENT[1..], &[]), Err(OidcError::ClientNonce));
        assert_eq!(begin(&"x".repeat(257), &[]), Err(OidcError::ClientNonce));
        assert!(begin(&"x".repeat(256), &[("a", &"b".repeat(1000))]).is_ok());
        assert_eq!(begin(CLIENT, &[("a", &"b".repeat(1024))]), Err(OidcError::Meta(1024)));
    }

    /// The example of RFC 7636, appendix B.
    #[test]
    fn a_challenge_is_the_hash_of_its_verifier() {
        let mut attempt = begin(CLIENT, &[]).unwrap();
        attempt.verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        assert_eq!(attempt.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
