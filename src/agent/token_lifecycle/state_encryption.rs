//! A token as the state file holds it under its seal.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::current_token::{Held, Looks, Standing};
use super::schedule::Life;
use crate::agent::token::{ClientToken, Generation, Kind, Lease, Token};
use crate::clock::{ClockReading, millis};

/// The shape of what is sealed. Spans are in seconds, times in milliseconds since 1970 by the wall clock.
#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    secret: Cow<'a, str>,
    accessor: Option<String>,
    batch: bool,
    wrapping: Option<(String, String)>,
    policies: Vec<String>,
    renewable: bool,
    may_renew: bool,
    renewed: bool,
    ttl: u64,
    granted: u64,
    obtained: u64,
    expires: Option<u64>,
    #[serde(default)]
    looks: Option<Looks>,
}

/// A token as it is sealed; nothing if that cannot be written.
pub(super) fn plain(held: &Held) -> Option<Zeroizing<Vec<u8>>> {
    let token = &held.token;
    let wrapping = match &token.kind {
        Kind::Wrapping { creation_time, creation_path } => Some((creation_time.clone(), creation_path.clone())),
        Kind::Service | Kind::Batch => None,
    };
    let sealed = Sealed {
        secret: token.secret.secret().expose_secret().into(),
        accessor: token.accessor.clone(),
        batch: token.kind == Kind::Batch,
        wrapping,
        policies: token.policies.clone(),
        renewable: token.lease.renewable,
        may_renew: held.life.renewable,
        renewed: held.renewed,
        ttl: held.life.ttl.as_secs(),
        granted: held.granted.as_secs(),
        obtained: millis(held.life.obtained.wall),
        expires: held.life.ends.map(|ends| millis(ends.wall)),
        looks: Some(held.looks),
    };
    let mut bytes = Zeroizing::new(Vec::with_capacity(16 * 1024));
    serde_json::to_writer(&mut *bytes, &sealed).ok()?;
    Some(bytes)
}

/// The token as it was sealed; nothing if its end has passed.
pub(super) fn held(plain: &[u8], now: ClockReading) -> Result<Option<Held>, Why> {
    let sealed: Sealed<'_> = serde_json::from_slice(plain).map_err(|_| Why::Shape)?;
    let secret = SecretString::from(sealed.secret.into_owned());
    let secret = ClientToken::parse(secret).ok_or(Why::Shape)?;
    let wall = millis(now.wall);
    // Without the time since the login nobody knows how much of the token's life is left.
    let Some(age) = wall.saturating_add(CLOCK_SLACK).checked_sub(sealed.obtained) else { return Err(Why::Clock) };
    let age = Duration::from_millis(age.saturating_sub(CLOCK_SLACK));
    let (ttl, granted) = (Duration::from_secs(sealed.ttl), Duration::from_secs(sealed.granted));
    let left = sealed.expires.map(|ends| Duration::from_millis(ends.saturating_sub(wall)).min(granted.max(ttl)));
    if left.is_some_and(|left| left.is_zero()) {
        return Ok(None);
    }
    // A machine that was started since then has no BOOTTIME for the login: the lease begins now, with what is left.
    let (obtained, ttl) = match (now.boot.checked_sub(age), now.wall.checked_sub(age)) {
        (Some(boot), Some(wall)) => (ClockReading { boot, wall }, ttl),
        _ => (now, left.unwrap_or(ttl)),
    };
    let ends = left.map(|left| now + left);
    let kind = match sealed.wrapping {
        Some((creation_time, creation_path)) => Kind::Wrapping { creation_time, creation_path },
        None if sealed.batch => Kind::Batch,
        None => Kind::Service,
    };
    let token = Token {
        secret,
        accessor: sealed.accessor,
        lease: Lease { ttl, renewable: sealed.renewable },
        kind,
        policies: sealed.policies,
        obtained,
        expires: ends,
        generation: Generation::new(),
    };
    let life = Life { obtained, ends, ttl, renewable: sealed.may_renew };
    // What happened to the token since it was saved is not known, so that a denied look-up is a reason to doubt.
    let looks = sealed.looks.filter(|looks| *looks == Looks::Forbidden).unwrap_or(Looks::Allowed);
    let renewed = sealed.renewed;
    Ok(Some(Held { token: Arc::new(token), life, granted, renewed, looks, standing: Standing::Good, outdated: false }))
}

/// How far the wall clock may be behind the login, in milliseconds.
const CLOCK_SLACK: u64 = 60_000;

/// Why a state file was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Why {
    /// It cannot be read.
    #[error("it cannot be read")]
    Unreadable(#[source] std::io::Error),
    /// It is not what this program writes.
    #[error("its content is damaged")]
    Shape,
    /// It belongs to another session, or another version of the program wrote it.
    #[error("it is another session's, or of another version")]
    Foreign,
    /// The sealed token does not open.
    #[error("its token was sealed with another key or for another server or role, or was changed")]
    Seal,
    /// The wall clock is behind the time of the login.
    #[error("the clock is behind the time of the login that it tells of")]
    Clock,
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(boot: u64, wall: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(boot), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(wall) }
    }

    fn token(obtained: ClockReading) -> Held {
        let ttl = Duration::from_hours(1);
        Held::new(Token {
            secret: ClientToken::parse(SecretString::from("hvs.a")).unwrap(),
            accessor: None,
            lease: Lease { ttl, renewable: true },
            kind: Kind::Service,
            policies: Vec::new(),
            obtained,
            expires: Some(obtained + ttl),
            generation: Generation::new(),
        })
    }

    #[test]
    fn a_token_is_taken_up_with_what_is_left_of_it() {
        let kept = plain(&token(at(5000, 100_000))).unwrap();
        let check = |now: ClockReading, wanted: Option<(u64, u64)>| {
            let found = held(&kept, now).unwrap().map(|held| held.life);
            let found = found.map(|life| (life.obtained.boot.as_secs(), life.ends.unwrap().boot.as_secs()));
            assert_eq!(found, wanted, "{now:?}");
        };
        check(at(5600, 100_600), Some((5000, 8600)));
        check(at(30, 100_600), Some((30, 3030)));
        check(at(8599, 103_599), Some((5000, 8600)));
        check(at(8600, 103_600), None);
        check(at(30, 200_000), None);
        check(at(5000, 99_970), Some((5000, 8600)));
        assert!(matches!(held(&kept, at(5000, 99_000)), Err(Why::Clock)));
        assert!(matches!(held(b"{}", at(5000, 100_000)), Err(Why::Shape)));
    }
}
