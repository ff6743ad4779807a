//! Reaps orphans while this process is process 1, as the entry point of a container: the kernel makes each process whose parent
//! has ended a child of process 1, and it stays a zombie until that waits for it.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::time::Duration;

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};

/// Children that this process has started itself. Somebody waits for each, and needs its exit status.
#[derive(Debug)]
struct OwnChildren {
    /// Number of starts under way, whose children are not in `ids` yet.
    starting: usize,
    ids: BTreeSet<u32>,
}

static OWN_CHILDREN: Mutex<OwnChildren> = Mutex::new(OwnChildren { starting: 0, ids: BTreeSet::new() });

/// Starts a child, which is not reaped as an orphan until [`forget`]. `id` returns the id of a started child.
pub(super) fn start_own<T>(start: impl FnOnce() -> io::Result<T>, id: impl FnOnce(&T) -> Option<u32>) -> io::Result<T> {
    // Not locked during the start, which may wait for a file system: others start children meanwhile.
    OWN_CHILDREN.lock().starting += 1;
    let started = start();
    let mut children = OWN_CHILDREN.lock();
    children.starting -= 1;
    children.ids.extend(started.as_ref().ok().and_then(id));
    started
}

/// Ends the registration of a child that was waited for, or that nobody waits for any more.
pub(super) fn forget(id: u32) {
    OWN_CHILDREN.lock().ids.remove(&id);
}

/// Reaps orphans for ever if this process is process 1; otherwise it only waits.
///
/// # Errors
/// The handler of SIGCHLD cannot be installed.
pub async fn reap_orphans() -> io::Result<Infallible> {
    if rustix::process::getpid() != rustix::process::Pid::INIT {
        return std::future::pending().await;
    }
    let mut child_ended = signal(SignalKind::child())?;
    loop {
        while !try_reap() {
            tokio::time::sleep(RETRY).await;
        }
        child_ended.recv().await;
    }
}

/// Reaps the orphans that have ended. Returns false if some may be left behind a child of this process's own.
fn try_reap() -> bool {
    // Locked throughout, so that no start begins whose child would be taken for an orphan.
    let children = OWN_CHILDREN.lock();
    if children.starting > 0 {
        return false;
    }
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Some(ended) = waitid(Id::All, peek).ok().and_then(|status| status.pid()) {
        if u32::try_from(ended.as_raw()).is_ok_and(|id| children.ids.contains(&id)) {
            return false;
        }
        if waitid(Id::Pid(ended), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG).is_err() {
            return true;
        }
    }
    true
}

/// The kernel names one ended child at a time. One of this process's own is waited for within moments.
const RETRY: Duration = Duration::from_millis(250);
