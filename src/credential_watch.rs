//! What flows from a credential's one maker to its many readers, and the one word that flows back.
//!
//! Generic in what it carries: a session's token, a secret's value, a platform token.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::clock::{Clock, Moment};
use crate::demand::Demand;

/// What readers see.
#[derive(Debug)]
pub enum State<T> {
    /// There is one, and it is good as far as anyone knows.
    Serving(Arc<T>),
    /// There is none: why, in words fit for a caller, and when asking again makes sense.
    None {
        /// Why, without any secret.
        reason: Arc<str>,
        /// When to ask again.
        retry_after: Duration,
    },
}

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Serving(value) => Self::Serving(Arc::clone(value)),
            Self::None { reason, retry_after } => Self::None { reason: Arc::clone(reason), retry_after: *retry_after },
        }
    }
}

/// A state and when its maker last looked whether it still holds.
#[derive(Debug)]
pub struct Reading<T> {
    /// What is there.
    pub state: State<T>,
    /// When the maker last asked the server about it; `None` before the first answer.
    pub last_checked: Option<Moment>,
}

impl<T> Clone for Reading<T> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), last_checked: self.last_checked }
    }
}

/// Makes the two ends of a feed. It starts with nothing to serve, for the reason given.
pub fn feed<T>(reason: &str) -> (Publisher<T>, Feed<T>) {
    let state = State::None { reason: reason.into(), retry_after: Duration::from_secs(1) };
    let (sender, receiver) = watch::channel(Reading { state, last_checked: None });
    (Publisher(sender), Feed(receiver))
}

/// The write half. There is one, and what makes the credential holds it.
#[derive(Debug)]
pub struct Publisher<T>(watch::Sender<Reading<T>>);

impl<T> Publisher<T> {
    /// Replaces what readers see.
    pub fn publish(&self, state: State<T>, last_checked: Option<Moment>) {
        self.0.send_replace(Reading { state, last_checked });
    }

    /// Says that the maker has looked, and what is there stays as it is.
    pub fn checked(&self, at: Moment) {
        self.0.send_modify(|reading| reading.last_checked = Some(at));
    }
}

/// The read half: one clone for each output.
#[derive(Debug)]
pub struct Feed<T>(watch::Receiver<Reading<T>>);

impl<T> Clone for Feed<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Feed<T> {
    /// What is there now. Marks it as seen for [`Feed::changed`].
    pub fn current(&mut self) -> Reading<T> {
        self.0.borrow_and_update().clone()
    }

    /// What is there now, without marking it as seen.
    pub fn peek(&self) -> Reading<T> {
        self.0.borrow().clone()
    }

    /// Looks at what is there without copying it. `look` must not block.
    pub fn with<R>(&self, look: impl FnOnce(&Reading<T>) -> R) -> R {
        look(&self.0.borrow())
    }

    /// Returns after something was published that [`Feed::current`] has not shown yet.
    ///
    /// # Errors
    /// The maker has ended and nothing new will come. What it published last can still be read.
    pub async fn changed(&mut self) -> Result<(), Ended> {
        self.0.changed().await.map_err(|_| Ended)
    }
}

/// Returns after something was published in one of the feeds that [`Feed::current`] has not shown yet. A feed whose maker has
/// ended counts as silent; where all are, this never returns.
pub async fn any_changed<'a, T: Send + Sync + 'a>(feeds: impl IntoIterator<Item = &'a mut Feed<T>>) {
    let silent = async |feed: &mut Feed<T>| {
        if feed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let mut waits: Vec<_> = feeds.into_iter().map(|feed| Box::pin(silent(feed))).collect();
    std::future::poll_fn(|cx| {
        if waits.iter_mut().any(|wait| wait.as_mut().poll(cx).is_ready()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// The maker of a feed has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nothing more will be published")]
pub struct Ended;

/// Rings the maker of a feed: "the server says that this is no longer good; look for yourself". It carries no data.
///
/// A bucket of three rings, refilled by one a minute, keeps a caller that rings all the time inside the request budget.
#[derive(Debug, Clone)]
pub struct Nudge(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    rung: Notify,
    answered: Notify,
    bucket: Mutex<Bucket>,
    demand: Demand,
}

#[derive(Debug)]
struct Bucket {
    rings: u32,
    refilled: Moment,
    /// A ring that its maker has not answered yet; further rings join it.
    pending: bool,
}

/// What became of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// The maker will look, or is looking: wait for `last_checked` to move.
    Heard,
    /// The bucket is empty: take the last result, and ring again after this time.
    Spent {
        /// Time until the bucket holds a ring again.
        retry_after: Duration,
    },
}

impl Nudge {
    /// A full bucket.
    pub fn new(clock: Clock) -> Self {
        Self::with_demand(clock, Demand::default())
    }

    /// A full bucket, for a credential whose callers wait for `demand`'s maker.
    pub fn with_demand(clock: Clock, demand: Demand) -> Self {
        let bucket = Mutex::new(Bucket { rings: Self::RINGS, refilled: clock.now(), pending: false });
        Self(Arc::new(Inner { clock, rung: Notify::new(), answered: Notify::new(), bucket, demand }))
    }

    /// Requests of callers to the maker beyond a look.
    pub fn demand(&self) -> &Demand {
        &self.0.demand
    }

    /// Rings. However many ring while the maker has not looked yet, it looks once.
    pub fn ring(&self) -> Ring {
        let now = self.0.clock.now();
        let mut bucket = self.0.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        if bucket.pending {
            return Ring::Heard;
        }
        while bucket.rings < Self::RINGS && now.since(bucket.refilled) >= Self::REFILL {
            bucket.rings += 1;
            bucket.refilled = bucket.refilled + Self::REFILL;
        }
        if bucket.rings == 0 {
            return Ring::Spent { retry_after: Self::REFILL.saturating_sub(now.since(bucket.refilled)) };
        }
        if bucket.rings == Self::RINGS {
            bucket.refilled = now;
        }
        bucket.rings -= 1;
        bucket.pending = true;
        self.0.rung.notify_one();
        Ring::Heard
    }

    /// For the maker: returns when someone has rung.
    pub async fn rung(&self) {
        self.0.rung.notified().await;
    }

    /// For the maker: the last ring is answered, the next one counts anew.
    pub fn answered(&self) {
        self.0.bucket.lock().unwrap_or_else(PoisonError::into_inner).pending = false;
        self.0.answered.notify_waiters();
    }

    /// For the maker: there is a new credential, and at least one ring about it is heard. What makes credentials bounds how
    /// often that is.
    pub fn allow_one(&self) {
        let mut bucket = self.0.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.rings = bucket.rings.max(1);
    }

    /// For a ringer: returns when the last ring is answered, at once if none waits for its answer.
    pub async fn settled(&self) {
        let mut answered = std::pin::pin!(self.0.answered.notified());
        loop {
            answered.as_mut().enable();
            if !self.0.bucket.lock().unwrap_or_else(PoisonError::into_inner).pending {
                return;
            }
            answered.as_mut().await;
            answered.set(self.0.answered.notified());
        }
    }

    const RINGS: u32 = 3;
    const REFILL: Duration = Duration::from_mins(1);
}

#[cfg(test)]
mod tests;
