//! The current token of a session with its lease, health and look-up results.

use std::sync::Arc;
use std::time::Duration;

use keyward_machine::clock::{Clock, ClockReading};
use serde::{Deserialize, Serialize};

use super::replacement_limit::ReplacementLimiter;
use super::schedule::{TokenLifetime, still_grows};
use crate::server_client::{LookupResponse, RenewResponse};
use crate::token::{Lease, Token, TokenKind};

/// The current token of a session.
#[derive(Debug, Clone)]
pub(super) struct CurrentToken {
    pub(super) token: Arc<Token>,
    pub(super) lifetime: TokenLifetime,
    /// Longest lease that it was granted.
    pub(super) granted: Duration,
    /// True if it was renewed since its login.
    pub(super) renewed: bool,
    pub(super) lookup_status: LookupStatus,
    pub(super) health: TokenHealth,
    /// True if it was obtained with earlier settings, so that a login has to replace it.
    pub(super) outdated: bool,
}

/// Health of a token that the server may refuse without a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenHealth {
    /// Nothing speaks against it.
    Good,
    /// It may be dead: a login replaces it, and it is served meanwhile.
    Suspect,
    /// The server refuses it like the token before it: it is served, and looked up from time to time.
    Refused,
}

/// Consequence of a refusal without a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suspicion {
    /// A login has to replace the token.
    Replace,
    /// The token before was refused too, so that no login would help.
    Refused,
    /// Nothing is new: a login is to replace the token already, or the refusal is known.
    AlreadyHandled,
}

/// Results of earlier look-ups of a token, which decide the meaning of a denied one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LookupStatus {
    /// No look-up since the login: if the first is denied, the policies forbid it.
    Untried,
    /// A look-up succeeded, or it is not known: a denied one means a dead token or changed policies.
    Allowed,
    /// The policies forbid look-ups: a denied one means nothing.
    Forbidden,
    /// A look-up succeeded and a later one was denied: a login replaces the token, which is served meanwhile.
    Suspect,
}

/// Shortest usable lease. A shorter one is a failure, so that it cannot make a fast loop.
pub(super) const MIN_LEASE: Duration = Duration::from_secs(5);

/// Tolerated difference of a look-up's expiry, which has whole seconds.
const LOOKUP_SLACK: Duration = Duration::from_secs(3);

/// An expiry that is later by less than this part of the rest is ignored: the token is only renewed a little early.
/// Otherwise the end of a lease that is capped to the maximum would move with each look-up.
const LATER_SLACK: u32 = 100;

impl CurrentToken {
    /// Creates the current token from a login's token.
    pub(super) fn new(token: Token) -> Self {
        let lifetime = TokenLifetime {
            obtained: token.obtained,
            ends: token.expires,
            ttl: token.lease.ttl,
            renewable: token.lease.renewable && token.kind == TokenKind::Service,
        };
        Self {
            granted: token.lease.ttl,
            token: Arc::new(token),
            lifetime,
            renewed: false,
            lookup_status: LookupStatus::Untried,
            health: TokenHealth::Good,
            outdated: false,
        }
    }

    /// Returns the rest of the lease; `None` for a token without expiry.
    pub(super) fn remaining(&self, now: ClockReading) -> Option<Duration> {
        self.lifetime.ends.map(|ends| now.until(ends))
    }

    /// Returns true if the rest of the lease is shorter than [`MIN_LEASE`].
    pub(super) fn is_too_short(&self, now: ClockReading) -> bool {
        self.remaining(now).is_some_and(|remaining| remaining < MIN_LEASE)
    }

    /// Returns true if a login has to replace the token, as the server may no longer know it.
    pub(super) const fn is_suspect(&self) -> bool {
        matches!(self.health, TokenHealth::Suspect)
    }

    /// Returns true if a look-up says whether the token is alive; a wrapping token has none.
    pub(super) fn supports_lookup(&self) -> bool {
        !matches!(self.token.kind, TokenKind::Wrapping { .. })
    }

    /// Applies the response to a renewal that was sent at `sent`.
    pub(super) fn renew(&mut self, renewed: RenewResponse, sent: ClockReading) {
        let ttl = renewed.lease.ttl;
        // Zero means no expiry.
        let ends = (!ttl.is_zero()).then(|| sent + ttl);
        self.modify_token(|token| {
            token.lease = renewed.lease;
            token.obtained = sent;
            token.expires = ends;
            if !renewed.policies.is_empty() {
                token.policies = renewed.policies;
            }
        });
        // Near the maximum TTL each renewal grants less, ever sooner: a login replaces the token instead.
        let renewable = renewed.lease.renewable && still_grows(self.granted, ttl) && ttl >= MIN_LEASE;
        self.lifetime = TokenLifetime { obtained: sent, ends, ttl, renewable };
        self.granted = self.granted.max(ttl);
        self.renewed = true;
        self.health = TokenHealth::Good;
        if self.lookup_status == LookupStatus::Suspect {
            // The token is alive, so its policies have changed.
            self.lookup_status = LookupStatus::Forbidden;
        }
    }

    /// Applies the response at `now` to a look-up that was sent at `sent`; returns true if it changed the token's expiry.
    pub(super) fn apply_lookup(&mut self, lookup: &LookupResponse, sent: ClockReading, now: ClockReading) -> bool {
        self.lookup_status = LookupStatus::Allowed;
        self.health = TokenHealth::Good;
        let ttl = lookup.lease.ttl;
        // Zero means no expiry, or the last second.
        if ttl.is_zero() {
            return false;
        }
        // The server has counted the rest between the request and the response.
        let ends = sent + ttl;
        let latest = now + ttl;
        let is_unchanged = self.lifetime.ends.is_some_and(|expiry| {
            expiry.until(ends) <= LOOKUP_SLACK.max(ttl / LATER_SLACK) && latest.until(expiry) <= LOOKUP_SLACK
        });
        if is_unchanged {
            return false;
        }
        let longer = self.lifetime.ends.is_some_and(|expiry| !expiry.until(ends).is_zero());
        self.lifetime.ends = Some(ends);
        // A later end means that somebody else has renewed the token: its lease begins anew.
        if longer || self.lifetime.ttl.is_zero() {
            self.lifetime.obtained = sent;
            self.lifetime.ttl = ttl;
            self.granted = self.granted.max(ttl);
        }
        self.modify_token(|token| {
            token.expires = Some(ends);
            token.lease = Lease { ttl: token.lease.ttl.max(ttl), ..token.lease };
        });
        true
    }

    /// Records that the server refused the token without a reason: it is dead, or used from an address that it is not bound to.
    pub(super) fn record_refusal(&mut self, limiter: &mut ReplacementLimiter, now: ClockReading) -> Suspicion {
        let (health, suspicion) = match self.health {
            TokenHealth::Suspect => return Suspicion::AlreadyHandled,
            _ if limiter.allow(now) => (TokenHealth::Suspect, Suspicion::Replace),
            TokenHealth::Good => (TokenHealth::Refused, Suspicion::Refused),
            TokenHealth::Refused => (TokenHealth::Refused, Suspicion::AlreadyHandled),
        };
        self.health = health;
        suspicion
    }

    /// Returns the reason why the token is unusable after so many failed logins; `None` if it is usable.
    pub(super) const fn problem(&self, failed_logins: u32) -> Option<&'static str> {
        match self.health {
            TokenHealth::Good => None,
            // The replacing login takes a moment, which is not worth reporting.
            TokenHealth::Suspect if failed_logins == 0 => None,
            TokenHealth::Suspect => Some("the server may no longer know the token, and no login has replaced it yet"),
            TokenHealth::Refused => Some("the server refuses the token"),
        }
    }

    /// Recomputes the wall-clock times after the clock was set. BOOTTIME measures the time that has passed.
    pub(super) fn apply_wall_clock_change(&mut self, clock: &Clock) {
        let now = clock.now();
        let obtained_ago = now.since(self.lifetime.obtained);
        let obtained =
            ClockReading { wall: now.wall.checked_sub(obtained_ago).unwrap_or(now.wall), ..self.lifetime.obtained };
        let ends = self.lifetime.ends.map(|ends| ClockReading { wall: (now + now.until(ends)).wall, ..ends });
        self.lifetime.obtained = obtained;
        self.lifetime.ends = ends;
        self.modify_token(|token| {
            token.obtained = obtained;
            token.expires = ends;
        });
    }

    fn modify_token(&mut self, modify: impl FnOnce(&mut Token)) {
        let old = &self.token;
        let mut token = Token {
            secret: old.secret.clone(),
            accessor: old.accessor.clone(),
            lease: old.lease,
            kind: old.kind.clone(),
            policies: old.policies.clone(),
            obtained: old.obtained,
            expires: old.expires,
            generation: old.generation,
        };
        modify(&mut token);
        self.token = Arc::new(token);
    }
}

/// Creates a renewable token of one hour for tests.
#[cfg(test)]
pub(super) fn test_token(obtained: ClockReading) -> CurrentToken {
    let ttl = Duration::from_hours(1);
    CurrentToken::new(Token {
        secret: crate::token::ClientToken::parse(keyward_machine::secret_string::SecretString::from("hvs.a")).unwrap(),
        accessor: None,
        lease: Lease { ttl, renewable: true },
        kind: TokenKind::Service,
        policies: Vec::new(),
        obtained,
        expires: Some(obtained + ttl),
        generation: crate::token::Generation::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::test_token as token;
    use super::*;

    fn at(seconds: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    #[test]
    fn a_refused_token_is_replaced_unless_its_replacement_is_refused_too() {
        let mut limiter = ReplacementLimiter::default();
        let mut refuse =
            |current: &mut CurrentToken, now| (current.record_refusal(&mut limiter, at(now)), current.health);
        let mut first = token(at(0));
        assert_eq!(refuse(&mut first, 100), (Suspicion::Replace, TokenHealth::Suspect));
        assert_eq!(refuse(&mut first, 101), (Suspicion::AlreadyHandled, TokenHealth::Suspect));
        assert_eq!((first.problem(0), first.problem(1).is_some()), (None, true), "the login takes a moment");
        let mut second = token(at(102));
        assert_eq!(refuse(&mut second, 103), (Suspicion::Refused, TokenHealth::Refused));
        assert_eq!(refuse(&mut second, 104), (Suspicion::AlreadyHandled, TokenHealth::Refused));
        assert_eq!(second.problem(0), Some("the server refuses the token"));
        assert_eq!(
            refuse(&mut second, 110),
            (Suspicion::Replace, TokenHealth::Suspect),
            "ten seconds after the last login"
        );
    }
}
