//! Leases of secrets and tokens, whether a template or a cached response uses them: when each is renewed or replaced, what a
//! renewal's response means for it, and what the next process restores. Pure: time is passed in.

mod active_lease;
mod snapshot;

pub(super) use active_lease::{ActiveLease, RenewalFailure, Step};
pub(super) use snapshot::{SavedLease, Snapshot, TokenFingerprint, age_of, time_of_age};
