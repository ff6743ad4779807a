//! Cache of an identity proof whose login the server neither accepted nor refused.

use std::sync::Arc;
use std::time::Duration;

use keyward_machine::clock::ClockReading;

use crate::identity::IdentityProof;
use crate::login::LoginError;
use crate::token::Token;

/// The last proof that the server did not verify, and when it was obtained.
#[derive(Debug, Default)]
pub(super) struct ProofCache(Option<(Arc<IdentityProof>, ClockReading)>);

impl ProofCache {
    /// Keeps the requested proof of a login that did not reach a verdict, for the next attempt; drops it after any other result.
    pub(super) fn update(
        &mut self,
        result: &Result<Token, LoginError>,
        proof: Option<Arc<IdentityProof>>,
        now: ClockReading,
    ) {
        let unverified = matches!(result, Err(LoginError::Unavailable { .. }));
        let obtained = self.0.take().map_or(now, |(_, obtained)| obtained);
        self.0 = proof.filter(|_| unverified).map(|proof| (proof, obtained));
    }

    /// Returns the proof if it is at most ten minutes old and valid for another minute.
    pub(super) fn get(&mut self, now: ClockReading) -> Option<Arc<IdentityProof>> {
        let usable = |(proof, obtained): &(Arc<IdentityProof>, ClockReading)| {
            let IdentityProof::Signed(signed) = &**proof else { return false };
            // A token of a file is read again: somebody may have replaced it.
            if signed.audience.is_none() {
                return false;
            }
            let ends = signed.claims.as_ref().and_then(|claims| claims.exp);
            let is_valid =
                ends.is_some_and(|ends| ends.duration_since(now.wall).is_ok_and(|remaining| remaining > MIN_VALIDITY));
            is_valid && now.since(*obtained) < MAX_AGE
        };
        self.0 = self.0.take().filter(usable);
        self.0.as_ref().map(|(proof, _)| Arc::clone(proof))
    }
}

const MIN_VALIDITY: Duration = Duration::from_mins(1);
const MAX_AGE: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use keyward_credentials::jwt::UnverifiedClaims;
    use keyward_machine::secret_string::SecretString;

    use super::*;
    use crate::identity::{LoginFields, RequestedAudience, SignedToken};

    #[test]
    fn a_requested_token_is_used_again_and_one_of_a_file_is_not() {
        let now = ClockReading { boot: Duration::from_secs(100), wall: SystemTime::UNIX_EPOCH };
        let proof = |audience: Option<&str>| {
            // {"exp":3600}
            let claims = UnverifiedClaims::decode("e30.eyJleHAiOjM2MDB9.x").unwrap();
            let jwt = SecretString::from("jwt".to_owned());
            let audience = audience.map(|audience| RequestedAudience::Azure(audience.to_owned()));
            let signed = SignedToken { jwt, fields: LoginFields::default(), claims: Some(claims), audience };
            Some(Arc::new(IdentityProof::Signed(Box::new(signed))))
        };
        let message = "no answer".to_owned();
        let hint = None;
        let retry_after = None;
        let code = None;
        let failed = Err(LoginError::Unavailable { message, hint, retry_after, code });
        for (audience, is_kept) in [(Some("https://management.azure.com/"), true), (None, false)] {
            let mut cache = ProofCache::default();
            cache.update(&failed, proof(audience), now);
            assert_eq!(cache.get(now).is_some(), is_kept, "{audience:?}");
        }
    }
}
