//! The response cache: plain values for a bounded time, leased ones until the end of their lease.
//!
//! `entry` parses a response, `entry_table` holds and decides on all (`lru` evicts, `due_queue` orders leases, `path_index` finds
//! what a write invalidates, `token_leases` what ends with a cached token), `snapshot` is their form in a file; these are pure.
//! `singleflight` coalesces equal requests, `shared_cache` joins both for concurrent requests and invalidates; `renewer` renews
//! leases, removes what ends with the session's token, and saves.

// 0: one entry
mod key;
mod entry;

// 1: all entries, in memory and in a file
mod snapshot;
mod lru;
mod due_queue;
mod path_index;
mod token_leases;
mod entry_table;
mod singleflight;

// 2: shared by requests and the renewer
mod shared_cache;
mod renewer;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzz;

pub use shared_cache::CacheLimits;

pub(super) use entry::{CacheEntry, EntryKind};
pub(super) use entry_table::CacheHit;
pub(super) use key::{CacheKey, TokenScope};
pub(super) use renewer::{LeaseRenewer, LeaseRenewerDeps};
pub(super) use shared_cache::{Cache, Invalidate};
pub(super) use singleflight::{BufferedResponse, FlightResult, JoinOutcome, Leader, wait_for_result};
