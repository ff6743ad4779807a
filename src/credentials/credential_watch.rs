//! Carries a credential from its single publisher to many readers, and refresh requests from the readers back to it.
//!
//! The credential is a session's token, a secret's value or a platform token.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::error_code::ErrorCode;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::demand::Demand;
use crate::token_bucket::TokenBucket;

/// A credential, or the reason why there is none.
#[derive(Debug)]
pub enum Availability<T> {
    /// The current credential; the server has not reported it as invalid.
    Available(Arc<T>),
    /// There is no credential now.
    Unavailable {
        /// The reason, fit for a caller's eyes: it holds no secret.
        reason: Arc<str>,
        /// Time after which a caller should ask again.
        retry_after: Duration,
    },
}

impl<T> Availability<T> {
    /// Returns true if both are the same published credential.
    pub fn is_same(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Available(one), Self::Available(other)) if Arc::ptr_eq(one, other))
    }

    /// Returns the credential, if there is one.
    pub fn available(self) -> Option<Arc<T>> {
        match self {
            Self::Available(value) => Some(value),
            Self::Unavailable { .. } => None,
        }
    }
}

impl<T> Clone for Availability<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Available(value) => Self::Available(Arc::clone(value)),
            Self::Unavailable { reason, retry_after } => {
                Self::Unavailable { reason: Arc::clone(reason), retry_after: *retry_after }
            }
        }
    }
}

/// A credential's availability and the time of its last check.
#[derive(Debug)]
pub struct CredentialState<T> {
    /// The credential, or the reason why there is none.
    pub availability: Availability<T>,
    /// Time of the server's last response about it; `None` before the first one.
    pub last_checked: Option<ClockReading>,
    /// Error of the last update of a credential that is available all the same.
    pub update_error: Option<UpdateError>,
    /// Set while the server refuses an available credential and its replacement is not there yet.
    pub awaited: Option<AwaitedReplacement>,
    /// Time from which `retry_after` counts; `None` if the publisher has no clock.
    counted_from: Option<ClockReading>,
}

impl<T> CredentialState<T> {
    /// Returns what is left of `retry_after` at `now`, and at least a second.
    pub fn remaining_wait(&self, retry_after: Duration, now: ClockReading) -> Duration {
        let Some(since) = self.counted_from else { return retry_after };
        retry_after.saturating_sub(now.since(since)).max(Duration::from_secs(1))
    }
}

/// Replacement of a credential that the server refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedReplacement {
    /// Reason why the credential is refused, fit for a caller's eyes: it holds no secret.
    pub reason: Arc<str>,
    /// Time after which a caller should ask again.
    pub retry_after: Duration,
}

/// Error of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateError {
    /// Code of the error.
    pub code: Option<ErrorCode>,
    /// Text of the error; holds no secret.
    pub text: Arc<str>,
}

impl<T> Clone for CredentialState<T> {
    fn clone(&self) -> Self {
        Self {
            availability: self.availability.clone(),
            last_checked: self.last_checked,
            update_error: self.update_error.clone(),
            awaited: self.awaited.clone(),
            counted_from: self.counted_from,
        }
    }
}

/// Creates a publisher and a watch on it. The credential is unavailable for `reason` until the first publication.
pub fn credential_channel<T>(reason: &str) -> (CredentialPublisher<T>, CredentialWatch<T>) {
    let availability = Availability::Unavailable { reason: reason.into(), retry_after: Duration::from_secs(1) };
    let state =
        CredentialState { availability, last_checked: None, update_error: None, awaited: None, counted_from: None };
    let (sender, receiver) = watch::channel(state);
    (CredentialPublisher(sender), CredentialWatch(receiver))
}

/// Write half of a credential channel. It cannot be cloned: each credential has one publisher.
#[derive(Debug)]
pub struct CredentialPublisher<T>(watch::Sender<CredentialState<T>>);

impl<T> CredentialPublisher<T> {
    /// Publishes a new state to all readers.
    pub fn publish(&self, availability: Availability<T>, last_checked: Option<ClockReading>) {
        self.replace(availability, last_checked, None, None);
    }

    /// Publishes at `now` a credential that the server refuses, and that its replacement is awaited.
    pub fn publish_refused(
        &self,
        value: Arc<T>,
        awaited: AwaitedReplacement,
        now: ClockReading,
        last_checked: Option<ClockReading>,
    ) {
        self.replace(Availability::Available(value), last_checked, Some(awaited), Some(now));
    }

    /// Publishes at `now` that there is no credential, and that a caller should ask again `retry_after` from now.
    pub fn publish_unavailable(
        &self,
        reason: impl Into<Arc<str>>,
        retry_after: Duration,
        now: ClockReading,
        last_checked: Option<ClockReading>,
    ) {
        self.replace(Availability::Unavailable { reason: reason.into(), retry_after }, last_checked, None, Some(now));
    }

    fn replace(
        &self,
        availability: Availability<T>,
        last_checked: Option<ClockReading>,
        awaited: Option<AwaitedReplacement>,
        counted_from: Option<ClockReading>,
    ) {
        self.0.send_replace(CredentialState { availability, last_checked, update_error: None, awaited, counted_from });
    }

    /// Records a check that left the credential as it is, and wakes readers.
    pub fn record_check(&self, at: ClockReading) {
        self.0.send_modify(|state| (state.last_checked, state.update_error) = (Some(at), None));
    }

    /// Records that an available credential could not be updated, and wakes readers if that is new.
    pub fn record_update_error(&self, code: Option<ErrorCode>, text: &str) {
        self.0.send_if_modified(|state| {
            let is_new = state.update_error.as_ref().is_none_or(|error| (error.code, &*error.text) != (code, text));
            let is_changed = is_new && matches!(state.availability, Availability::Available(_));
            if is_changed {
                state.update_error = Some(UpdateError { code, text: text.into() });
            }
            is_changed
        });
    }
}

/// Read half of a credential channel; each output has its own clone.
#[derive(Debug)]
pub struct CredentialWatch<T>(watch::Receiver<CredentialState<T>>);

impl<T> Clone for CredentialWatch<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> CredentialWatch<T> {
    /// Returns the current state and marks it as seen for [`CredentialWatch::changed`].
    pub fn current(&mut self) -> CredentialState<T> {
        self.0.borrow_and_update().clone()
    }

    /// Returns the current state without marking it as seen.
    pub fn peek(&self) -> CredentialState<T> {
        self.0.borrow().clone()
    }

    /// Reads the current state without cloning it. `read` must not block: publishing waits for it.
    pub fn read<R>(&self, read: impl FnOnce(&CredentialState<T>) -> R) -> R {
        read(&self.0.borrow())
    }

    /// Returns true if the publisher was dropped: no more states follow.
    pub fn is_closed(&self) -> bool {
        self.0.has_changed().is_err()
    }

    /// Waits for a publication that [`CredentialWatch::current`] has not returned yet.
    ///
    /// # Errors
    /// The publisher was dropped. Its last state can still be read.
    pub async fn changed(&mut self) -> Result<(), PublisherClosed> {
        self.0.changed().await.map_err(|_| PublisherClosed)
    }
}

/// Waits for a publication in any of the watches that its [`CredentialWatch::current`] has not returned yet. A watch whose
/// publisher was dropped is ignored; if all were, this never returns.
pub async fn any_changed<'a, T: Send + Sync + 'a>(watches: impl IntoIterator<Item = &'a mut CredentialWatch<T>>) {
    let next_change = async |watch: &mut CredentialWatch<T>| {
        if watch.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let mut waits: Vec<_> = watches.into_iter().map(|watch| Box::pin(next_change(watch))).collect();
    std::future::poll_fn(|cx| {
        if waits.iter_mut().any(|wait| wait.as_mut().poll(cx).is_ready()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// The publisher of a watched credential was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the publisher has closed")]
pub struct PublisherClosed;

/// Asks a credential's publisher to check it with the server, because the server refused it. It carries no data.
///
/// A token bucket of three requests, refilled by one a minute, keeps a caller that asks all the time inside the request
/// budget.
#[derive(Debug, Clone)]
pub struct RefreshSignal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    requested: Notify,
    completed: Notify,
    state: Mutex<SignalState>,
    demand: Demand,
}

#[derive(Debug)]
struct SignalState {
    bucket: TokenBucket,
    /// A request is not completed yet; further requests join it.
    pending: bool,
}

/// Outcome of [`RefreshSignal::request`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefreshRequest {
    /// The publisher will check the credential, or is checking it: wait for `last_checked` to change.
    Accepted,
    /// The bucket is empty: use the last result.
    RateLimited {
        /// Time until the bucket holds a token again.
        retry_after: Duration,
    },
}

impl RefreshSignal {
    /// Creates a signal with a full bucket.
    pub fn new(clock: Clock) -> Self {
        Self::with_demand(clock, Demand::default())
    }

    /// Creates a signal with a full bucket that shares `demand`, for a credential derived from another one.
    pub fn with_demand(clock: Clock, demand: Demand) -> Self {
        let state = Mutex::new(SignalState { bucket: Self::REQUESTS, pending: false });
        Self(Arc::new(Inner { clock, requested: Notify::new(), completed: Notify::new(), state, demand }))
    }

    /// Returns the callers' demand: waiting callers and requests to retry.
    pub fn demand(&self) -> &Demand {
        &self.0.demand
    }

    /// Requests a check. Requests made before the check is complete join it.
    pub fn request(&self) -> RefreshRequest {
        let now = self.0.clock.now();
        let mut state = self.0.state.lock();
        if state.pending {
            return RefreshRequest::Accepted;
        }
        if let Err(retry_after) = state.bucket.try_take(now) {
            return RefreshRequest::RateLimited { retry_after };
        }
        state.pending = true;
        self.0.requested.notify_one();
        RefreshRequest::Accepted
    }

    /// Returns true while a request is not complete.
    pub fn is_pending(&self) -> bool {
        self.0.state.lock().pending
    }

    /// Waits for a request; for the publisher.
    pub async fn requested(&self) {
        self.0.requested.notified().await;
    }

    /// Completes the pending request and wakes its callers; for the publisher.
    pub fn complete(&self) {
        self.0.state.lock().pending = false;
        self.0.completed.notify_waiters();
    }

    /// Accepts at least one more request, after a new credential was published; for the publisher. The caller bounds how
    /// often that happens.
    pub fn allow_one(&self) {
        self.0.state.lock().bucket.allow_one();
    }

    /// Waits until the pending request is complete; returns at once if there is none.
    pub async fn wait(&self) {
        let mut completed = std::pin::pin!(self.0.completed.notified());
        loop {
            completed.as_mut().enable();
            if !self.0.state.lock().pending {
                return;
            }
            completed.as_mut().await;
            completed.set(self.0.completed.notified());
        }
    }

    const REQUESTS: TokenBucket = TokenBucket::full(3, Duration::from_mins(1));
}

#[cfg(test)]
mod tests;
