//! Dials: what the emulated cloud does wrong on purpose, and how often it was asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

/// A handle on the dials; clones turn the same ones.
#[derive(Debug, Clone, Default)]
pub struct CloudFaultInjector {
    settings: Arc<Mutex<Settings>>,
    refusing: Arc<watch::Sender<bool>>,
}

/// The things that the emulated cloud is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultTarget {
    /// Identity tokens of the metadata service.
    Metadata,
    /// The metadata service's instance document.
    Instance,
    /// Identity tokens of App Service.
    AppService,
    /// Identity tokens of Arc, the first call of each pair counted too.
    Arc,
    /// The authority's token endpoint.
    Authority,
    /// Discovery and key set.
    Keys,
}

impl FaultTarget {
    const fn issues_tokens(self) -> bool {
        !matches!(self, Self::Instance | Self::Keys)
    }
}

/// One answer that goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// HTTP status of the answer.
    pub status: u16,
    /// Its body; `None` for what the real service says with that status.
    pub body: Option<Value>,
    /// Seconds that its `Retry-After` names.
    pub retry_after: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    failures: VecDeque<Failure>,
    pub(super) retry_after: Option<u64>,
    pub(super) delay: Duration,
    pub(super) skew_seconds: i64,
    pub(super) audience: Option<String>,
    pub(super) token_life: Option<Duration>,
    pub(super) block_instance: bool,
    requests: BTreeMap<FaultTarget, u64>,
}

impl CloudFaultInjector {
    /// The next `count` requests for a token, at whichever door, fail with this status.
    pub fn fail_next_tokens(&self, count: usize, status: u16) {
        self.fail_next_tokens_with(count, &Failure { status, body: None, retry_after: None });
    }

    /// The next `count` requests for a token, at whichever door, fail like this.
    pub fn fail_next_tokens_with(&self, count: usize, failure: &Failure) {
        self.settings_mut().failures.extend(std::iter::repeat_n(failure.clone(), count));
    }

    /// Failures name this in `Retry-After`, where they name nothing themselves.
    pub fn retry_after(&self, seconds: Option<u64>) {
        self.settings_mut().retry_after = seconds;
    }

    /// Every answer waits for this long first.
    pub fn delay(&self, delay: Duration) {
        self.settings_mut().delay = delay;
    }

    /// Closes the metadata service and the authority, so that connecting is refused; or opens them again.
    pub fn refuse(&self, on: bool) {
        self.refusing.send_replace(on);
    }

    /// Dates tokens as if the cloud's clock were this far ahead of ours (behind, if negative).
    pub fn skew(&self, seconds: i64) {
        self.settings_mut().skew_seconds = seconds;
    }

    /// Issues tokens for this audience whatever is asked for; `None` issues for the one asked for.
    pub fn audience(&self, audience: Option<String>) {
        self.settings_mut().audience = audience;
    }

    /// Issues tokens that live this long from now on.
    pub fn token_life(&self, life: Duration) {
        self.settings_mut().token_life = Some(life);
    }

    /// Has the instance document answer 404, as hosts that are no virtual machine do; or answer again.
    pub fn block_instance(&self, on: bool) {
        self.settings_mut().block_instance = on;
    }

    /// How many requests came to a door, failed ones too.
    pub fn requests(&self, target: FaultTarget) -> u64 {
        self.settings_mut().requests.get(&target).copied().unwrap_or(0)
    }

    /// All counts.
    pub fn counts(&self) -> BTreeMap<FaultTarget, u64> {
        self.settings_mut().requests.clone()
    }

    /// Turns everything back; counts stay.
    pub fn reset(&self) {
        {
            let mut settings = self.settings_mut();
            let requests = std::mem::take(&mut settings.requests);
            *settings = Settings { requests, ..Settings::default() };
        }
        self.refuse(false);
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings_mut().clone()
    }

    /// Counts a request; says how long it waits, and the failure that is its turn.
    pub(super) fn record_request(&self, target: FaultTarget) -> (Duration, Option<Failure>) {
        let mut settings = self.settings_mut();
        *settings.requests.entry(target).or_default() += 1;
        let mut failure = if target.issues_tokens() { settings.failures.pop_front() } else { None };
        if let Some(failure) = &mut failure {
            failure.retry_after = failure.retry_after.or(settings.retry_after);
        }
        (settings.delay, failure)
    }

    pub(super) fn refusing(&self) -> watch::Receiver<bool> {
        self.refusing.subscribe()
    }

    fn settings_mut(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
