//! Cache of an identity proof whose login the server neither accepted nor refused.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::identity::IdentityProof;
use crate::agent::login::LoginError;
use crate::agent::token::Token;
use crate::clock::ClockReading;

/// The last proof that the server did not verify, and when it was obtained.
#[derive(Debug, Default)]
pub(super) struct ProofCache(Option<(Arc<IdentityProof>, ClockReading)>);

impl ProofCache {
    /// Keeps the proof of a login that did not reach a verdict, for the next attempt; drops it after any other result.
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
