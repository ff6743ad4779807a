//! Fault injection of the emulated cloud, and request counters.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

/// Handle for injecting faults; clones share their state.
#[derive(Debug, Clone, Default)]
pub struct FaultInjector {
    settings: Arc<Mutex<Settings>>,
    /// Requested state of the listeners.
    is_refusing: Arc<watch::Sender<bool>>,
    /// Actual state of the listeners.
    listeners: Arc<watch::Sender<ListenerCounts>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct ListenerCounts {
    all: usize,
    closed: usize,
}

/// An endpoint of the emulated cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultTarget {
    /// Identity tokens of the metadata service.
    Metadata,
    /// The metadata service's instance document.
    Instance,
    /// Identity tokens of App Service.
    AppService,
    /// Identity tokens of Arc; counts the first call of each pair too.
    Arc,
    /// Token endpoint of the authority.
    Authority,
    /// Discovery and key set.
    Keys,
}

impl FaultTarget {
    const fn issues_tokens(self) -> bool {
        !matches!(self, Self::Instance | Self::Keys)
    }
}

/// An injected error response.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// HTTP status.
    pub status: u16,
    /// Body; `None` for the real service's body with that status.
    pub body: Option<Value>,
    /// `Retry-After` in seconds.
    pub retry_after: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    failures: VecDeque<Failure>,
    pub(super) delay: Duration,
    pub(super) skew_seconds: i64,
    pub(super) audience: Option<String>,
    pub(super) token_life: Option<Duration>,
    pub(super) block_instance: bool,
    requests: BTreeMap<FaultTarget, u64>,
}

impl FaultInjector {
    /// Fails the next `count` token requests, at any endpoint, with this status.
    pub fn fail_next_tokens(&self, count: usize, status: u16) {
        self.fail_next_tokens_with(count, &Failure { status, body: None, retry_after: None });
    }

    /// Fails the next `count` token requests, at any endpoint, with this response.
    pub fn fail_next_tokens_with(&self, count: usize, failure: &Failure) {
        self.settings.lock().failures.extend(std::iter::repeat_n(failure.clone(), count));
    }

    /// Delays every response.
    pub fn delay(&self, delay: Duration) {
        self.settings.lock().delay = delay;
    }

    /// Closes the metadata service and the authority, so that connections are refused; or opens them again.
    pub fn refuse(&self, on: bool) {
        self.is_refusing.send_replace(on);
    }

    /// Dates tokens by a clock this far ahead of ours (behind, if negative).
    pub fn skew(&self, seconds: i64) {
        self.settings.lock().skew_seconds = seconds;
    }

    /// Issues tokens for this audience, whatever is requested; `None` for the requested one.
    pub fn audience(&self, audience: Option<String>) {
        self.settings.lock().audience = audience;
    }

    /// Issues tokens with this lifetime from now on.
    pub fn token_life(&self, life: Duration) {
        self.settings.lock().token_life = Some(life);
    }

    /// Answers requests for the instance document with 404, as hosts that are not virtual machines do; or normally again.
    pub fn block_instance(&self, on: bool) {
        self.settings.lock().block_instance = on;
    }

    /// Returns the number of requests to an endpoint, failed ones too.
    pub fn requests(&self, target: FaultTarget) -> u64 {
        self.settings.lock().requests.get(&target).copied().unwrap_or(0)
    }

    /// Returns all counters.
    pub fn counts(&self) -> BTreeMap<FaultTarget, u64> {
        self.settings.lock().requests.clone()
    }

    /// Removes all faults; counters stay.
    pub fn reset(&self) {
        {
            let mut settings = self.settings.lock();
            let requests = std::mem::take(&mut settings.requests);
            *settings = Settings { requests, ..Settings::default() };
        }
        self.refuse(false);
    }

    /// Returns true while connections are refused.
    pub(super) fn is_refusing(&self) -> bool {
        *self.is_refusing.borrow()
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings.lock().clone()
    }

    /// Counts a request. Returns the delay, and the failure if one is due.
    pub(super) fn record_request(&self, target: FaultTarget) -> (Duration, Option<Failure>) {
        let mut settings = self.settings.lock();
        *settings.requests.entry(target).or_default() += 1;
        let failure = if target.issues_tokens() { settings.failures.pop_front() } else { None };
        (settings.delay, failure)
    }

    pub(super) fn subscribe_refusing(&self) -> watch::Receiver<bool> {
        self.is_refusing.subscribe()
    }

    /// Counts a listener, which is open.
    pub(super) fn add_listener(&self) {
        self.listeners.send_modify(|counts| counts.all += 1);
    }

    /// Counts a listener as closed or as open again.
    pub(super) fn set_closed(&self, closed: bool) {
        self.listeners.send_modify(|counts| {
            counts.closed = if closed { counts.closed + 1 } else { counts.closed.saturating_sub(1) };
        });
    }

    /// Returns once all listeners are as [`FaultInjector::refuse`] has asked.
    pub(super) async fn wait_until_settled(&self) {
        let is_refusing = *self.is_refusing.borrow();
        let settled = |counts: &ListenerCounts| counts.closed == if is_refusing { counts.all } else { 0 };
        // The sender is our own.
        let _ = self.listeners.subscribe().wait_for(settled).await;
    }
}
