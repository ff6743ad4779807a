//! The token that a session has now, and what was learned about it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::schedule::{Life, still_grows};
use crate::agent::server_client::{LookedUp, Renewed};
use crate::agent::token::{Kind, Lease, Token};
use crate::clock::{Clock, ClockReading};

/// A token in hand.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) token: Arc<Token>,
    pub(super) life: Life,
    /// The longest lease that it was given.
    pub(super) granted: Duration,
    /// Whether it was renewed since its login.
    pub(super) renewed: bool,
    pub(super) looks: Looks,
    pub(super) standing: Standing,
    /// It was got by other settings than those of now: a login is to replace it.
    pub(super) outdated: bool,
}

/// Where a token stands that the server refuses without a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is good as far as anyone knows.
    Good,
    /// It may be dead: a login is to replace it, and it is served meanwhile.
    Suspect,
    /// So was the one before it, and a login changed nothing: it is served, and looked at now and then.
    Refused,
}

/// What look-ups of a token have shown, which tells what a denied one means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Looks {
    /// None since the login: if the first is denied, the policies do it.
    Untried,
    /// One went well, or it is not known: a denied one means a dead token or other policies than before.
    Allowed,
    /// The policies forbid them: a denied one means nothing.
    Forbidden,
    /// One went well and then one was denied: a login is to replace the token, which is served meanwhile.
    Doubted,
}

/// A lease below this is too short to live by: it counts as a failure, so that it cannot make a fast loop.
pub(super) const SHORTEST_LEASE: Duration = Duration::from_secs(5);

/// How far a look-up's whole seconds and its way here may be off without telling anything new.
const LOOKUP_SLACK: Duration = Duration::from_secs(3);

/// An end that is later by less than this part of what is left is no news either: the token is only renewed a little early.
/// The end of a lease that is cut to the longest that is believed would else move with each look.
const LATER_SLACK: u32 = 100;

impl Held {
    /// Takes a token that a login gave.
    pub(super) fn new(token: Token) -> Self {
        let life = Life {
            obtained: token.obtained,
            ends: token.expires,
            ttl: token.lease.ttl,
            renewable: token.lease.renewable && token.kind == Kind::Service,
        };
        Self {
            granted: token.lease.ttl,
            token: Arc::new(token),
            life,
            renewed: false,
            looks: Looks::Untried,
            standing: Standing::Good,
            outdated: false,
        }
    }

    /// What is left of its life; `None` if it never ends.
    pub(super) fn left(&self, now: ClockReading) -> Option<Duration> {
        self.life.ends.map(|ends| now.until(ends))
    }

    /// Whether it ends before it could be lived by.
    pub(super) fn too_short(&self, now: ClockReading) -> bool {
        self.left(now).is_some_and(|left| left < SHORTEST_LEASE)
    }

    /// Whether the server knows the token by name, so that a look-up tells whether it is alive.
    pub(super) fn can_be_looked_up(&self) -> bool {
        !matches!(self.token.kind, Kind::Wrapping { .. })
    }

    /// Takes what a renewal gave.
    pub(super) fn renew(&mut self, renewed: Renewed, now: ClockReading) {
        let ttl = renewed.lease.ttl;
        let ends = (!ttl.is_zero()).then(|| now + ttl);
        self.change(|token| {
            token.lease = renewed.lease;
            token.obtained = now;
            token.expires = ends;
            if !renewed.policies.is_empty() {
                token.policies = renewed.policies;
            }
        });
        let renewable = renewed.lease.renewable && still_grows(self.granted, ttl) && ttl >= SHORTEST_LEASE;
        self.life = Life { obtained: now, ends, ttl, renewable };
        self.granted = self.granted.max(ttl);
        self.renewed = true;
        self.standing = Standing::Good;
        if self.looks == Looks::Doubted {
            // It lives, so it was its policies that changed.
            self.looks = Looks::Forbidden;
        }
    }

    /// Takes what a look-up told. Says whether the token's end is another than was thought.
    pub(super) fn looked_up(&mut self, found: &LookedUp, now: ClockReading) -> bool {
        self.looks = Looks::Allowed;
        self.standing = Standing::Good;
        let ttl = found.lease.ttl;
        // Zero tells of a token that never ends, and of one in its last second.
        if ttl.is_zero() {
            return false;
        }
        let ends = now + ttl;
        let same = self.life.ends.is_some_and(|known| {
            known.until(ends) <= LOOKUP_SLACK.max(ttl / LATER_SLACK) && ends.until(known) <= LOOKUP_SLACK
        });
        if same {
            return false;
        }
        let longer = self.life.ends.is_some_and(|known| !known.until(ends).is_zero());
        self.life.ends = Some(ends);
        if longer || self.life.ttl.is_zero() {
            self.life.obtained = now;
            self.life.ttl = ttl;
            self.granted = self.granted.max(ttl);
        }
        self.change(|token| {
            token.expires = Some(ends);
            token.lease = Lease { ttl: token.lease.ttl.max(ttl), ..token.lease };
        });
        true
    }

    /// Tells the end by the wall clock anew, after that was set. Time that has passed is BOOTTIME's.
    pub(super) fn follow_wall_clock(&mut self, clock: &Clock) {
        let now = clock.now();
        let obtained_ago = now.since(self.life.obtained);
        let obtained =
            ClockReading { wall: now.wall.checked_sub(obtained_ago).unwrap_or(now.wall), ..self.life.obtained };
        let ends = self.life.ends.map(|ends| ClockReading { wall: (now + now.until(ends)).wall, ..ends });
        self.life.obtained = obtained;
        self.life.ends = ends;
        self.change(|token| {
            token.obtained = obtained;
            token.expires = ends;
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut Token)) {
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
        change(&mut token);
        self.token = Arc::new(token);
    }
}
