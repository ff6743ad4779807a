//! Entry points of the fuzz targets `bearer`, `certificates` and `jwt`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use keyward_machine::clock::{Clock, TestClock};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::documents::{JwkSet, parse_object};
use super::{CaSource, FetchState, IssuerKeyOptions, IssuerKeys, KeyDocument, KeyFetcher, KeySet, MAX_KEY_AGE, fixed};

/// Counts the signature keys of a JWK set; `None` if the text is not one.
pub fn count_jwks(document: &[u8]) -> Option<usize> {
    parse_object::<JwkSet>(document).map(|set| set.signing_keys().len())
}

/// Counts the public keys of a PEM text; `None` if one is not supported.
pub fn count_pem_keys(text: &str) -> Option<usize> {
    fixed::pem_keys(text).map(|keys| keys.len()).ok()
}

/// Returns the keys of a JWK set as if they had just been fetched, so that none is fetched again; `None` if it is none.
pub fn from_jwks(document: &[u8]) -> Option<IssuerKeys> {
    let keys = parse_object::<JwkSet>(document)?.signing_keys();
    let clock = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH));
    let later = Some(clock.now() + MAX_KEY_AGE);
    let state = FetchState { keys: keys.into(), tries: 1, next: later, old: later, ..FetchState::default() };
    let source = KeyDocument::Jwks("https://issuer.invalid/keys".parse().ok()?);
    Some(IssuerKeys(KeySet::Fetched(Arc::new(KeyFetcher {
        issuer: "issuer".to_owned(),
        options: IssuerKeyOptions { source, ca_certificates: CaSource::System },
        state_tx: watch::Sender::new(state),
        in_flight: AtomicBool::new(false),
        tasks: TaskTracker::new(),
        clock,
    }))))
}
