//! An identity source of several sessions: those that want a proof at the same time share one request.
//!
//! A hundred sessions that start together would otherwise ask the machine's metadata service a hundred times, which Azure throttles.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, WeakShared};
use parking_lot::Mutex;

use super::{IdentityError, IdentityProof, IdentitySource};

/// An identity source whose clones share their requests. A proof is fresh: it was requested while the caller waited, or just before.
#[derive(Debug, Clone)]
pub struct SharedSource(Arc<Inner>);

/// A request that runs. It is cancelled when no session waits for it any more.
type RunningRequest = WeakShared<BoxFuture<'static, Result<IdentityProof, IdentityError>>>;

#[derive(Debug)]
struct Inner {
    source: Arc<dyn IdentitySource>,
    running: Mutex<Option<RunningRequest>>,
}

impl SharedSource {
    /// Creates a source that gets its proofs from another one.
    pub fn new(source: Box<dyn IdentitySource>) -> Self {
        Self(Arc::new(Inner { source: Arc::from(source), running: Mutex::new(None) }))
    }
}

#[async_trait]
impl IdentitySource for SharedSource {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let request = {
            let mut running = self.0.running.lock();
            let joined = running.as_ref().and_then(WeakShared::upgrade).filter(|request| request.peek().is_none());
            joined.unwrap_or_else(|| {
                let source = Arc::clone(&self.0.source);
                let request = async move { source.prove().await }.boxed().shared();
                *running = request.downgrade();
                request
            })
        };
        request.await
    }

    fn describe(&self) -> String {
        self.0.source.describe()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.0.source.files()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::future::join_all;

    use super::*;

    #[derive(Debug, Default)]
    struct SlowSource(Arc<AtomicUsize>);

    #[async_trait]
    impl IdentitySource for SlowSource {
        async fn prove(&self) -> Result<IdentityProof, IdentityError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(IdentityProof::Certificate)
        }

        fn describe(&self) -> String {
            "slow".to_owned()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_that_wait_at_the_same_time_share_one_request_and_later_ones_make_their_own() {
        let requests = Arc::new(AtomicUsize::new(0));
        let source = SharedSource::new(Box::new(SlowSource(Arc::clone(&requests))));
        let sessions: Vec<_> = (0..100).map(|_| source.clone()).collect();
        let proofs = join_all(sessions.iter().map(IdentitySource::prove)).await;
        assert!(proofs.iter().all(Result::is_ok));
        assert_eq!(requests.load(Ordering::SeqCst), 1);

        assert!(source.prove().await.is_ok());
        assert_eq!(requests.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_gives_up_does_not_end_the_request_of_another() {
        let requests = Arc::new(AtomicUsize::new(0));
        let source = SharedSource::new(Box::new(SlowSource(Arc::clone(&requests))));
        let gives_up = tokio::time::timeout(Duration::from_millis(500), source.prove());
        let (waited, gave_up) = tokio::join!(source.prove(), gives_up);
        assert!(gave_up.is_err());
        assert!(waited.is_ok());
        assert_eq!(requests.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_nobody_waits_for_is_cancelled() {
        let requests = Arc::new(AtomicUsize::new(0));
        let source = SharedSource::new(Box::new(SlowSource(Arc::clone(&requests))));
        assert!(tokio::time::timeout(Duration::from_millis(500), source.prove()).await.is_err());
        assert!(source.prove().await.is_ok());
        assert_eq!(requests.load(Ordering::SeqCst), 2);
    }
}
