//! Leases and their lifetimes. Time is passed in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keyward_machine::clock::ClockReading;
use serde_json::{Value, json};

use super::tokens::{random_text, rfc3339};

/// All leases, by id.
#[derive(Debug, Default)]
pub(super) struct Leases {
    leases: BTreeMap<String, Lease>,
    total_issued: u64,
}

/// Credential to revoke when a lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LeasedCredential {
    /// A token of HCP Terraform or Terraform Enterprise, by its id there.
    PlatformToken(String),
    /// A credential that only this server knows.
    Nothing,
}

/// A lease of one credential.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    /// Token that the credential was read with; the lease ends with it.
    owner: String,
    issued: ClockReading,
    renewed: Option<ClockReading>,
    ttl: Duration,
    ends: ClockReading,
    max_end: ClockReading,
    renewable: bool,
    credential: LeasedCredential,
}

/// Lifetimes of a role's leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTerms {
    /// Lifetime from a read or a renewal.
    pub ttl: Duration,
    /// Maximum lifetime from the read, whatever is renewed.
    pub max_ttl: Duration,
    /// True if leases may be renewed.
    pub renewable: bool,
}

impl LeaseTerms {
    /// Lifetime of a new lease.
    pub(super) fn first_ttl(&self) -> Duration {
        self.ttl.min(self.max_ttl)
    }
}

impl Leases {
    /// Issues a lease; returns its id.
    pub(super) fn issue_lease(
        &mut self,
        path: &str,
        owner: &str,
        terms: LeaseTerms,
        credential: LeasedCredential,
        now: ClockReading,
    ) -> String {
        let id = format!("{path}/{}", random_text());
        let ttl = terms.first_ttl();
        let lease = Lease {
            owner: owner.to_owned(),
            issued: now,
            renewed: None,
            ttl,
            ends: now + ttl,
            max_end: now + terms.max_ttl,
            renewable: terms.renewable,
            credential,
        };
        self.leases.insert(id.clone(), lease);
        self.total_issued += 1;
        id
    }

    /// Renews a lease; returns its remaining lifetime.
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
        let requested = increment.filter(|increment| !increment.is_zero()).unwrap_or(lease.ttl);
        let ttl = requested.min(now.until(lease.max_end));
        lease.ends = now + ttl;
        lease.renewed = Some(now);
        Ok(ttl)
    }

    /// Returns the properties of a lease: the `data` part of the response.
    pub(super) fn look_up(&self, id: &str, now: ClockReading) -> Option<Value> {
        let lease = self.leases.get(id)?;
        Some(json!({
            "id": id, "path": id.rsplit_once('/').map_or(id, |(path, _)| path), "issue_time": rfc3339(lease.issued.wall),
            "expire_time": rfc3339(now.wall + now.until(lease.ends)),
            "last_renewal": lease.renewed.map(|at| rfc3339(at.wall)), "renewable": lease.renewable,
            "ttl": now.until(lease.ends).as_secs(),
        }))
    }

    /// Lists the ids and folders below a path.
    pub(super) fn list(&self, path: &str) -> BTreeSet<String> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let below = self.leases.keys().filter_map(|id| id.strip_prefix(&prefix));
        below
            .map(|rest| rest.split_once('/').map_or_else(|| rest.to_owned(), |(first, _)| format!("{first}/")))
            .collect()
    }

    /// Ends a lease; returns its credential.
    pub(super) fn revoke(&mut self, id: &str) -> Option<LeasedCredential> {
        self.leases.remove(id).map(|lease| lease.credential)
    }

    /// Ends all leases whose id has a prefix; returns their credentials.
    pub(super) fn revoke_below(&mut self, prefix: &str) -> Vec<LeasedCredential> {
        self.end(|id, _| id.starts_with(prefix))
    }

    /// Ends expired leases, and those whose owner is not valid; returns their credentials.
    pub(super) fn sweep(&mut self, now: ClockReading, lives: impl Fn(&str) -> bool) -> Vec<LeasedCredential> {
        self.end(|_, lease| now.until(lease.ends).is_zero() || !lives(&lease.owner))
    }

    pub(super) fn len(&self) -> usize {
        self.leases.len()
    }

    pub(super) const fn total_issued(&self) -> u64 {
        self.total_issued
    }

    fn end(&mut self, is_over: impl Fn(&str, &Lease) -> bool) -> Vec<LeasedCredential> {
        let ended: Vec<_> =
            self.leases.iter().filter(|(id, lease)| is_over(id, lease)).map(|(id, _)| id.clone()).collect();
        ended.iter().filter_map(|id| self.revoke(id)).collect()
    }
}
