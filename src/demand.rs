//! Requests of callers to a credential's maker: to hurry, since they wait, or to try once more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

/// Counts who waits, and carries requests to try again. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Demand(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    waiting: AtomicUsize,
    changed: Notify,
    retries: Mutex<Vec<oneshot::Sender<Retried>>>,
}

/// A caller that waits for a credential, until this is dropped.
#[derive(Debug)]
#[must_use = "the maker hurries only while this is held"]
pub struct Waiting(Demand);

/// The outcome of a request to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retried {
    /// A try was made; what there is now tells how it went.
    Tried,
    /// Nothing fails that a try could mend.
    NotNeeded,
    /// No try may be made yet: the server asked to wait, or the tries for callers are used up.
    Later {
        /// Time until one may be made.
        after: Duration,
    },
}

impl Demand {
    /// Counts a caller that waits.
    pub fn wait(&self) -> Waiting {
        if self.0.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
            self.0.changed.notify_one();
        }
        Waiting(self.clone())
    }

    /// True while a caller waits.
    pub fn is_waited_for(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }

    /// Asks for a try at once. The receiver fails where the maker has ended.
    pub fn retry(&self) -> oneshot::Receiver<Retried> {
        let (sender, receiver) = oneshot::channel();
        self.0.retries.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        self.0.changed.notify_one();
        receiver
    }

    /// For the maker: returns after a caller has begun to wait, or has asked for a try.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// For the maker: takes the requests to try again.
    pub fn take_retries(&self) -> Vec<oneshot::Sender<Retried>> {
        std::mem::take(&mut self.0.retries.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_maker_is_told_of_who_waits_and_of_who_asks() {
        let demand = Demand::default();
        assert!(!demand.is_waited_for());
        let (one, other) = (demand.wait(), demand.wait());
        demand.changed().await;
        drop(one);
        assert!(demand.is_waited_for());
        drop(other);
        assert!(!demand.is_waited_for());
        let asked = demand.retry();
        demand.changed().await;
        for sender in demand.take_retries() {
            sender.send(Retried::Tried).unwrap();
        }
        assert_eq!(asked.await, Ok(Retried::Tried));
        assert!(demand.take_retries().is_empty());
    }
}
