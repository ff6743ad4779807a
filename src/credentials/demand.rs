//! Carries requests from callers to a credential's publisher: to log in sooner because callers wait, or to retry now.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// Counts waiting callers and carries requests to retry. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Demand(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    waiting: AtomicUsize,
    changed: Notify,
    retries: Mutex<Vec<RetryRequest>>,
}

/// Marks a caller as waiting for a credential until it is dropped.
#[derive(Debug)]
#[must_use = "the caller counts as waiting only while this is held"]
pub struct WaitingGuard(Demand);

/// Request to log in now.
#[derive(Debug)]
pub struct RetryRequest {
    /// Receives the outcome.
    pub answer: oneshot::Sender<RetryOutcome>,
    /// Log in also if the credential is good, which stays in use until the new one is there.
    pub replaces: bool,
}

/// Outcome of a request to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryOutcome {
    /// A retry was made; the current state shows its result.
    Attempted,
    /// There is no failure that a retry could fix.
    NotNeeded,
    /// No retry is allowed yet: the server asked to wait, or the callers' retry budget is used up.
    TooEarly {
        /// Time until a retry is allowed.
        after: Duration,
    },
}

impl Demand {
    /// Counts a waiting caller until the guard is dropped.
    pub fn wait(&self) -> WaitingGuard {
        if self.0.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
            self.0.changed.notify_one();
        }
        WaitingGuard(self.clone())
    }

    /// Returns true while a caller waits.
    pub fn is_waited_for(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }

    /// Requests a retry now. The receiver fails if the publisher was dropped.
    pub fn retry(&self) -> oneshot::Receiver<RetryOutcome> {
        self.request(false)
    }

    /// Requests a login now, also if the credential is good. The receiver fails if the publisher was dropped.
    pub fn replace(&self) -> oneshot::Receiver<RetryOutcome> {
        self.request(true)
    }

    fn request(&self, replaces: bool) -> oneshot::Receiver<RetryOutcome> {
        let (answer, receiver) = oneshot::channel();
        self.0.retries.lock().push(RetryRequest { answer, replaces });
        self.0.changed.notify_one();
        receiver
    }

    /// Waits until a caller begins to wait or requests a retry; for the publisher.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Takes all pending requests to retry; for the publisher.
    pub fn take_retries(&self) -> Vec<RetryRequest> {
        std::mem::take(&mut self.0.retries.lock())
    }
}

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_publisher_is_notified_of_waiting_callers_and_retries() {
        let demand = Demand::default();
        assert!(!demand.is_waited_for());
        let first = demand.wait();
        let second = demand.wait();
        demand.changed().await;
        drop(first);
        assert!(demand.is_waited_for());
        drop(second);
        assert!(!demand.is_waited_for());
        let requests = [demand.retry(), demand.replace()];
        demand.changed().await;
        let taken = demand.take_retries();
        assert_eq!(taken.iter().map(|request| request.replaces).collect::<Vec<_>>(), [false, true]);
        for request in taken {
            request.answer.send(RetryOutcome::Attempted).unwrap();
        }
        for request in requests {
            assert_eq!(request.await, Ok(RetryOutcome::Attempted));
        }
        assert!(demand.take_retries().is_empty());
    }
}
