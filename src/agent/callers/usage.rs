//! Use of the limits of callers: requests and connections of all processes that are one caller, on all listeners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use keyward_credentials::token_bucket::TokenBucket;
use keyward_http::peer::PeerKernel;
use keyward_machine::clock::ClockReading;
use keyward_telemetry::status::{CallerEntry, CallersEntry};
use parking_lot::Mutex;

use super::grants::CallerTokenScope;
use super::policy::CallerPolicy;

/// Use of each caller's limits, over reloads too, and the kernel that identifies callers. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CallerRegistry(Arc<Mutex<RegistryState>>);

#[derive(Debug, Default)]
struct RegistryState {
    usages: BTreeMap<String, Arc<CallerUsage>>,
    /// Processes that no rule matches.
    unmatched: Arc<CallerUsage>,
    kernel: Option<Arc<PeerKernel>>,
}

/// Use of one caller's limits.
#[derive(Debug, Default)]
pub(super) struct CallerUsage {
    pub(super) open: Arc<AtomicUsize>,
    /// Live caller tokens.
    tokens: Arc<AtomicUsize>,
    pub(super) admitted: AtomicU64,
    pub(super) refused: AtomicU64,
    bucket: Mutex<Option<TokenBucket>>,
}

impl CallerUsage {
    /// Takes one request of `per_second`; as many are allowed at once.
    ///
    /// # Errors
    /// None is left; the value is the time until the next one is.
    pub(super) fn take_request(&self, per_second: u32, now: ClockReading) -> Result<(), Duration> {
        let full = TokenBucket::full(per_second.max(1), Duration::from_secs(1) / per_second.max(1));
        let mut bucket = self.bucket.lock();
        match &mut *bucket {
            Some(bucket) if bucket.has_rate_of(&full) => bucket.try_take(now),
            // New, or of another rate since a reload.
            other => other.insert(full).try_take(now),
        }
    }
}

impl CallerRegistry {
    /// Returns the kernel that identifies callers; `probe` is called once.
    pub fn kernel(&self, probe: impl FnOnce() -> PeerKernel) -> Arc<PeerKernel> {
        Arc::clone(self.0.lock().kernel.get_or_insert_with(|| Arc::new(probe())))
    }

    pub(super) fn usage(&self, caller: &str) -> Arc<CallerUsage> {
        Arc::clone(self.0.lock().usages.entry(caller.to_owned()).or_default())
    }

    /// Returns the count of a caller's live tokens, which their owners change.
    pub(crate) fn token_count(&self, caller: &str) -> Arc<AtomicUsize> {
        Arc::clone(&self.usage(caller).tokens)
    }

    pub(super) fn unmatched(&self) -> Arc<CallerUsage> {
        Arc::clone(&self.0.lock().unmatched)
    }

    /// Returns the status of the callers of a policy.
    pub(super) fn status(&self, policy: &CallerPolicy) -> CallersEntry {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let callers = policy.rules().iter().map(|rule| {
            let usage = self.usage(&rule.name);
            let scope = rule.grants.derived_token.as_ref().map(|options| options.scope);
            CallerEntry {
                name: rule.name.clone(),
                matches: rule.matches.to_string(),
                routes: rule.grants.route_names().into_iter().map(str::to_owned).collect(),
                connections: usage.open.load(Ordering::Relaxed),
                admitted: load(&usage.admitted),
                refused: load(&usage.refused),
                token_scope: scope.map(|scope| scope.name().to_owned()),
                tokens: (scope == Some(CallerTokenScope::Process)).then(|| usage.tokens.load(Ordering::Relaxed)),
            }
        });
        let callers = callers.collect();
        let state = self.0.lock();
        let kernel = state.kernel.iter().flat_map(|kernel| kernel.support().features());
        let kernel = kernel.map(|(feature, has)| (feature.to_owned(), has)).collect();
        CallersEntry { kernel, callers, unmatched: load(&state.unmatched.refused) }
    }
}

#[cfg(test)]
mod tests {
    use keyward_machine::clock::Clock;

    use super::*;

    #[test]
    fn requests_are_limited_by_the_rate_that_counts_now() {
        let usage = CallerUsage::default();
        let now = Clock::default().now();
        let take = |per_second, after| (0..10).filter(|_| usage.take_request(per_second, now + after).is_ok()).count();
        assert_eq!(take(4, Duration::ZERO), 4);
        assert_eq!(take(4, Duration::from_millis(500)), 2);
        assert_eq!(take(2, Duration::from_millis(500)), 2, "a reload has changed the rate");
        let wait = usage.take_request(2, now + Duration::from_millis(500)).unwrap_err();
        assert!(wait <= Duration::from_millis(500) && !wait.is_zero(), "{wait:?}");
    }
}
