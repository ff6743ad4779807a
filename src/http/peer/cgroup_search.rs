//! Searches of the cgroup tree, in threads. A user may own thousands of cgroups, and connect from each: its searches run one after
//! another, and take a fifth of the time at most, so that those of other users run beside them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::Instant;

use super::cgroup_tree::{CgroupLookup, CgroupTree};

/// Searches of all users.
#[derive(Debug)]
pub(super) struct CgroupSearches {
    tree: Arc<CgroupTree>,
    queues: Mutex<HashMap<Option<u32>, Arc<UserQueue>>>,
}

/// Earliest time of a user's next search. Whoever holds the lock may search.
type UserQueue = AsyncMutex<Instant>;

/// Pause after a search, as a multiple of its duration.
const PAUSE: u32 = 4;

/// Number of queues from which those of users without a pending search are dropped.
const MAX_QUEUES: usize = 256;

impl CgroupSearches {
    pub(super) fn new(tree: Arc<CgroupTree>) -> Self {
        Self { tree, queues: Mutex::default() }
    }

    /// Searches for the cgroup of a process of this user, once it is the user's turn.
    pub(super) async fn find(&self, id: u64, uid: Option<u32>) -> Option<Arc<str>> {
        let turn = self.queue(uid).lock_owned().await;
        // Another connection may have found it meanwhile.
        if let CgroupLookup::Known(path) = self.tree.lookup(id, None, uid) {
            return path;
        }
        tokio::time::sleep_until(*turn).await;
        self.search(turn, id, uid).await
    }

    /// Starts a search unless one of this user is pending. Its result is for later lookups.
    pub(super) fn start(&self, id: u64, uid: Option<u32>) {
        let Ok(turn) = self.queue(uid).try_lock_owned() else { return };
        if *turn <= Instant::now() && tokio::runtime::Handle::try_current().is_ok() {
            drop(self.search(turn, id, uid));
        }
    }

    /// Searches in a thread, which holds the user's turn to its end, also where nobody waits for it any more.
    fn search(
        &self,
        mut turn: OwnedMutexGuard<Instant>,
        id: u64,
        uid: Option<u32>,
    ) -> impl Future<Output = Option<Arc<str>>> + use<> {
        let tree = Arc::clone(&self.tree);
        let search = tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let path = tree.search(id, uid);
            let ended = Instant::now();
            *turn = ended + (ended - started).max(SHORTEST) * PAUSE;
            path
        });
        async { search.await.ok().flatten() }
    }

    fn queue(&self, uid: Option<u32>) -> Arc<UserQueue> {
        let mut queues = self.queues.lock();
        if queues.len() >= MAX_QUEUES {
            let now = Instant::now();
            queues.retain(|_, queue| queue.try_lock().map_or(true, |turn| *turn > now));
        }
        Arc::clone(queues.entry(uid).or_insert_with(|| Arc::new(AsyncMutex::new(Instant::now()))))
    }
}

/// Duration that a search counts as at least.
const SHORTEST: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn searches_leave_the_event_loop_to_others_and_a_user_has_one_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a.slice/b.service");
        std::fs::create_dir_all(&folder).unwrap();
        let id = std::fs::metadata(&folder).unwrap().ino();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let tree = Arc::new(CgroupTree::new(Some(root.path().to_owned())));
            let searches = Arc::new(CgroupSearches::new(tree));
            let (release, blocked) = std::sync::mpsc::channel::<()>();
            let blocker = tokio::task::spawn_blocking(move || blocked.recv());
            let mut waiting = tokio::task::JoinSet::new();
            for at in 0..10 {
                let searches = Arc::clone(&searches);
                waiting.spawn(async move { searches.find(id, Some(at % 2)).await });
            }
            // The only thread for searches is busy: were one done here, it would have ended.
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(waiting.try_join_next().is_none());
            release.send(()).unwrap();
            while let Some(path) = waiting.join_next().await {
                assert_eq!(path.unwrap().as_deref(), Some("/a.slice/b.service"));
            }
            blocker.await.unwrap().unwrap();
        });
    }

    #[tokio::test]
    async fn the_next_search_of_a_user_waits_four_times_as_long_as_the_last_took_whoever_waited_for_it() {
        let root = tempfile::tempdir().unwrap();
        let tree = Arc::new(CgroupTree::new(Some(root.path().to_owned())));
        let searches = CgroupSearches::new(tree);
        let queue = searches.queue(Some(7));
        *queue.lock().await = Instant::now() + Duration::from_hours(1);
        let mut waiting = std::pin::pin!(searches.find(1, Some(7)));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut waiting).await.is_err());
        assert_eq!(searches.find(2, Some(8)).await, None, "another user's");
        let turn = *searches.queue(Some(8)).lock().await;
        assert!(turn > Instant::now() - SHORTEST * PAUSE, "it has a pause");
        // A caller that is gone before its search ends leaves the turn with the search.
        let started = searches.search(searches.queue(Some(9)).lock_owned().await, 3, Some(9));
        drop(started);
        let before = Instant::now();
        assert!(*searches.queue(Some(9)).lock().await >= before - SHORTEST, "the turn of a search that has ended");
    }
}
