//! Serialized form of a token, which the state file holds encrypted.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use keyward_machine::clock::{ClockReading, millis};
use keyward_machine::secret_string::SecretString;
use serde::{Deserialize, Serialize};

use super::current_token::{CurrentToken, LookupStatus, TokenHealth};
use super::schedule::TokenLifetime;
use crate::encrypted_file::{FileRejected, check_clock};
use crate::token::{ClientToken, Generation, Lease, Token, TokenKind};

/// JSON document that is encrypted. Spans are in seconds, times in milliseconds since 1970 by the wall clock.
#[derive(Serialize, Deserialize)]
struct TokenRecord<'a> {
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
    lookup_status: LookupStatus,
    outdated: bool,
}

/// Serializes a token; returns `None` if that fails.
pub(super) fn serialize_token(current: &CurrentToken) -> Option<Vec<u8>> {
    let token = &current.token;
    let wrapping = match &token.kind {
        TokenKind::Wrapping { creation_time, creation_path } => Some((creation_time.clone(), creation_path.clone())),
        TokenKind::Service | TokenKind::Batch => None,
    };
    let record = TokenRecord {
        secret: token.secret.secret().expose_secret().into(),
        accessor: token.accessor.clone(),
        batch: token.kind == TokenKind::Batch,
        wrapping,
        policies: token.policies.clone(),
        renewable: token.lease.renewable,
        may_renew: current.lifetime.renewable,
        renewed: current.renewed,
        ttl: whole_seconds(current.lifetime.ttl),
        granted: whole_seconds(current.granted),
        obtained: millis(current.lifetime.obtained.wall),
        expires: current.lifetime.ends.map(|ends| millis(ends.wall)),
        lookup_status: current.lookup_status,
        outdated: current.outdated,
    };
    serde_json::to_vec(&record).ok()
}

/// Returns seconds, rounded up: the reader bounds the saved end by them, so that fewer would bring it forward.
fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

/// Reads a serialized token; returns `None` if it has expired.
pub(super) fn deserialize_token(plain: &[u8], now: ClockReading) -> Result<Option<CurrentToken>, FileRejected> {
    let record: TokenRecord<'_> = serde_json::from_slice(plain).map_err(|_| FileRejected::Format)?;
    let secret = SecretString::from(record.secret.into_owned());
    let secret = ClientToken::parse(secret).ok_or(FileRejected::Format)?;
    check_clock(record.obtained, now)?;
    let wall = millis(now.wall);
    let age = Duration::from_millis(wall.saturating_sub(record.obtained));
    let ttl = Duration::from_secs(record.ttl);
    let granted = Duration::from_secs(record.granted);
    // Bounded by the granted lease: the wall clock may have been set back since the token was saved.
    let remaining = record.expires.map(|ends| Duration::from_millis(ends.saturating_sub(wall)).min(granted.max(ttl)));
    if remaining.is_some_and(|remaining| remaining.is_zero()) {
        return Ok(None);
    }
    // After a reboot no BOOTTIME exists for the login: the lease begins now, with the time that is left.
    let (obtained, ttl) = match (now.boot.checked_sub(age), now.wall.checked_sub(age)) {
        (Some(boot), Some(wall)) => (ClockReading { boot, wall }, ttl),
        _ => (now, remaining.unwrap_or(ttl)),
    };
    let ends = remaining.map(|remaining| now + remaining);
    let kind = match record.wrapping {
        Some((creation_time, creation_path)) => TokenKind::Wrapping { creation_time, creation_path },
        None if record.batch => TokenKind::Batch,
        None => TokenKind::Service,
    };
    let token = Token {
        secret,
        accessor: record.accessor,
        lease: Lease { ttl, renewable: record.renewable },
        kind,
        policies: record.policies,
        obtained,
        expires: ends,
        generation: Generation::new(),
    };
    let lifetime = TokenLifetime { obtained, ends, ttl, renewable: record.may_renew };
    // The token may have been revoked since it was saved, so a denied look-up makes it suspect.
    let lookup_status = match record.lookup_status {
        LookupStatus::Forbidden => LookupStatus::Forbidden,
        LookupStatus::Untried | LookupStatus::Allowed | LookupStatus::Suspect => LookupStatus::Allowed,
    };
    let renewed = record.renewed;
    Ok(Some(CurrentToken {
        token: Arc::new(token),
        lifetime,
        granted,
        renewed,
        lookup_status,
        health: TokenHealth::Good,
        outdated: record.outdated,
    }))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::token_lifecycle::current_token::test_token as token;

    fn at(boot: u64, wall: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(boot), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(wall) }
    }

    #[test]
    fn a_token_is_restored_with_the_rest_of_its_lease() {
        let loaded = serialize_token(&token(at(5000, 100_000))).unwrap();
        let check = |now: ClockReading, expected: Option<(u64, u64)>| {
            let found = deserialize_token(&loaded, now).unwrap().map(|current| current.lifetime);
            let found = found.map(|lifetime| (lifetime.obtained.boot.as_secs(), lifetime.ends.unwrap().boot.as_secs()));
            assert_eq!(found, expected, "{now:?}");
        };
        check(at(5600, 100_600), Some((5000, 8600)));
        check(at(30, 100_600), Some((30, 3030)));
        check(at(8599, 103_599), Some((5000, 8600)));
        check(at(8600, 103_600), None);
        check(at(30, 200_000), None);
        check(at(5000, 99_970), Some((5000, 8600)));
        assert!(matches!(deserialize_token(&loaded, at(5000, 99_000)), Err(FileRejected::Clock)));
        assert!(matches!(deserialize_token(b"{}", at(5000, 100_000)), Err(FileRejected::Format)));
    }

    #[test]
    fn the_end_of_a_lease_stays_when_it_is_restored_after_a_reboot_and_saved_again() {
        let mut current = token(at(5000, 100_000));
        current.granted = Duration::ZERO;
        let mut loaded = serialize_token(&current).unwrap();
        let half = Duration::from_millis(500);
        let now = ClockReading { boot: Duration::from_secs(30), wall: at(0, 100_600).wall + half };
        for _ in 0..3 {
            let restored = deserialize_token(&loaded, now).unwrap().unwrap();
            assert_eq!(restored.remaining(now), Some(Duration::from_secs(2999) + half));
            loaded = serialize_token(&restored).unwrap();
        }
    }
}
