//! Leases of credentials and how they live. Time is passed in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::tokens::{random_text, rfc3339};
use crate::clock::ClockReading;

/// All leases, by id.
#[derive(Debug, Default)]
pub(super) struct Leases {
    leases: BTreeMap<String, Lease>,
    ever: u64,
}

/// What is to be taken back when a lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LeasedCredential {
    /// A token of the provisioning platform, by its id there.
    PlatformToken(String),
    /// What nobody but this server knows.
    Nothing,
}

/// One credential that is lent.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    /// The server's token that it was read with, whose end is its own.
    owner: String,
    issued: ClockReading,
    renewed: Option<ClockReading>,
    ttl: Duration,
    ends: ClockReading,
    max_end: ClockReading,
    renewable: bool,
    lent: LeasedCredential,
}

/// How long a role lends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTerms {
    /// From a read or a renewal on.
    pub ttl: Duration,
    /// From the read on, whatever is renewed.
    pub max_ttl: Duration,
    /// Whether it may be renewed.
    pub renewable: bool,
}

impl Leases {
    /// Lends a credential; gives the lease's id.
    pub(super) fn issue_lease(
        &mut self,
        path: &str,
        owner: &str,
        terms: LeaseTerms,
        lent: LeasedCredential,
        now: ClockReading,
    ) -> String {
        let id = format!("{path}/{}", random_text());
        let ttl = terms.ttl.min(terms.max_ttl);
        let lease = Lease {
            owner: owner.to_owned(),
            issued: now,
            renewed: None,
            ttl,
            ends: now + ttl,
            max_end: now + terms.max_ttl,
            renewable: terms.renewable,
            lent,
        };
        self.leases.insert(id.clone(), lease);
        self.ever += 1;
        id
    }

    /// Renews a lease; gives how long it lasts from now on.
    pub(super) fn renew(
        &mut self,
        id: &str,
        increment: Option<Duration>,
        now: ClockReading,
    ) -> Result<Duration, &'static str> {
        let lease =
            self.leases.get_mut(id).filter(|lease| !now.until(lease.ends).is_zero()).ok_or("lease not found")?;
        if !lease.renewable {
            return Err("lease is not renewable");
        }
        let wanted = increment.filter(|increment| !increment.is_zero()).unwrap_or(lease.ttl);
        let ttl = wanted.min(now.until(lease.max_end));
        lease.ends = now + ttl;
        lease.renewed = Some(now);
        Ok(ttl)
    }

    /// What is known of a lease; the `data` part of the answer.
    pub(super) fn look_up(&self, id: &str, now: ClockReading) -> Option<Value> {
        let lease = self.leases.get(id)?;
        Some(json!({
            "id": id, "issue_time": rfc3339(lease.issued.wall),
            "expire_time": rfc3339(now.wall + now.until(lease.ends)),
            "last_renewal": lease.renewed.map(|at| rfc3339(at.wall)), "renewable": lease.renewable,
            "ttl": now.until(lease.ends).as_secs(),
        }))
    }

    /// The ids below a path, or the folders there.
    pub(super) fn list(&self, path: &str) -> BTreeSet<String> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let below = self.leases.keys().filter_map(|id| id.strip_prefix(&prefix));
        below
            .map(|rest| rest.split_once('/').map_or_else(|| rest.to_owned(), |(first, _)| format!("{first}/")))
            .collect()
    }

    /// Ends a lease; gives what it lent.
    pub(super) fn revoke(&mut self, id: &str) -> Option<LeasedCredential> {
        self.leases.remove(id).map(|lease| lease.lent)
    }

    /// Ends all leases whose id starts so; gives what they lent.
    pub(super) fn revoke_below(&mut self, prefix: &str) -> Vec<LeasedCredential> {
        self.end(|id, _| id.starts_with(prefix))
    }

    /// Ends those whose time is over, and those whose owner `lives` no more; gives what they lent.
    pub(super) fn sweep(&mut self, now: ClockReading, lives: impl Fn(&str) -> bool) -> Vec<LeasedCredential> {
        self.end(|_, lease| now.until(lease.ends).is_zero() || !lives(&lease.owner))
    }

    pub(super) fn len(&self) -> usize {
        self.leases.len()
    }

    pub(super) const fn ever(&self) -> u64 {
        self.ever
    }

    fn end(&mut self, over: impl Fn(&str, &Lease) -> bool) -> Vec<LeasedCredential> {
        let ended: Vec<_> =
            self.leases.iter().filter(|(id, lease)| over(id, lease)).map(|(id, _)| id.clone()).collect();
        ended.iter().filter_map(|id| self.revoke(id)).collect()
    }
}
