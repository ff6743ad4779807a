//! Leases of credentials and how they live. Time is passed in.

use std::collections::BTreeMap;
use std::time::Duration;

use super::tokens::random_text;
use crate::clock::Moment;

/// All leases, by id.
#[derive(Debug, Default)]
pub(super) struct Leases(BTreeMap<String, Lease>);

/// One credential that is lent.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    /// The server's token that it was read with, whose end is its own.
    owner: String,
    ttl: Duration,
    ends: Moment,
    most: Moment,
    /// What is to be taken back where it was made.
    pub(super) credential: String,
}

/// How long a role lends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// From a read or a renewal on.
    pub ttl: Duration,
    /// From the read on, whatever is renewed.
    pub max_ttl: Duration,
}

impl Leases {
    /// Lends a credential; gives the lease's id.
    pub(super) fn lend(&mut self, path: &str, owner: &str, terms: Terms, credential: &str, now: Moment) -> String {
        let id = format!("{path}/{}", random_text());
        let ttl = terms.ttl.min(terms.max_ttl);
        let lease = Lease {
            owner: owner.to_owned(),
            ttl,
            ends: now + ttl,
            most: now + terms.max_ttl,
            credential: credential.to_owned(),
        };
        self.0.insert(id.clone(), lease);
        id
    }

    /// Renews a lease; gives how long it lasts from now on. `None` if there is none of that id.
    pub(super) fn renew(&mut self, id: &str, increment: Option<Duration>, now: Moment) -> Option<Duration> {
        let lease = self.0.get_mut(id).filter(|lease| !now.until(lease.ends).is_zero())?;
        let wanted = increment.filter(|increment| !increment.is_zero()).unwrap_or(lease.ttl);
        let ttl = wanted.min(now.until(lease.most));
        lease.ends = now + ttl;
        Some(ttl)
    }

    /// Ends a lease; gives its credential.
    pub(super) fn revoke(&mut self, id: &str) -> Option<String> {
        self.0.remove(id).map(|lease| lease.credential)
    }

    /// Ends those whose time is over, and those whose owner `lives` no more; gives their credentials.
    pub(super) fn sweep(&mut self, now: Moment, lives: impl Fn(&str) -> bool) -> Vec<String> {
        let over = |lease: &Lease| now.until(lease.ends).is_zero() || !lives(&lease.owner);
        let ended: Vec<_> = self.0.iter().filter(|(_, lease)| over(lease)).map(|(id, _)| id.clone()).collect();
        ended.iter().filter_map(|id| self.revoke(id)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
