//! The response cache: plain values for a bounded time, leased ones until the end of their lease.
//!
//! `entry` parses a response, `entries` holds and decides on them (`lru` evicts, `due_queue` orders leases, `path_index` finds
//! what a write invalidates, `token_leases` what ends with a cached token), `invalidate` names what ends, `snapshot` is their form
//! in a file; these are pure. `singleflight` coalesces equal requests; `renewer` renews leases, removes what ends with the session's
//! token, and saves.

// 0: one entry
mod key;
mod entry;
mod invalidate;

// 1: all entries, in memory and in a file
mod snapshot;
mod lru;
mod due_queue;
mod path_index;
mod token_leases;
mod entries;
mod singleflight;

// 2: shared by requests and the renewer
mod store;
mod renewer;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzz;

pub use store::CacheLimits;

pub(super) use entries::CacheHit;
pub(super) use entry::{CacheEntry, EntryKind};
pub(super) use invalidate::Invalidate;
pub(super) use key::{CacheKey, TokenScope};
pub(super) use renewer::{LeaseRenewer, LeaseRenewerDeps};
pub(super) use singleflight::{BufferedResponse, FlightResult, JoinOutcome, Leader, wait_for_result};
pub(super) use store::Cache;
