//! Tells when something changes in the folders that a file stands in (inotify(7)).

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::sys;

/// A watch on the folder that a name stands in, and on that of the file that it leads to.
#[derive(Debug)]
pub(in crate::gateway) struct Watch {
    /// `None` where the system has none to give: the file is then read when the platform refuses its token.
    events: Option<AsyncFd<OwnedFd>>,
}

impl Watch {
    pub(in crate::gateway) fn new() -> Self {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        let events = inotify::init(flags).map_err(io::Error::from).and_then(sys::readable);
        if let Err(error) = &events {
            tracing::warn!(
                event = "gateway.token.unwatched",
                %error,
                "changes of the token's file cannot be watched; it is read when the platform refuses the token"
            );
        }
        Self { events: events.ok() }
    }

    /// Watches the folders that the name leads through now: a link may lead elsewhere since the last time.
    pub(in crate::gateway) fn follow(&self, path: &Path) {
        let Some(events) = &self.events else { return };
        // A mounted secret of Kubernetes changes by a link beside its name; another's target may be written in place.
        let flags = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::CREATE
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        let real = path.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
        let folders: BTreeSet<PathBuf> = path.parent().map(Path::to_owned).into_iter().chain(real).collect();
        for folder in folders {
            // A folder that is not there yet is looked for again when the file is next read.
            let _ = inotify::add_watch(events.get_ref(), &folder, flags);
        }
    }

    /// Returns after something has changed in one of the folders; never, where nothing can be watched.
    pub(in crate::gateway) async fn changed(&self) {
        let Some(events) = &self.events else { return std::future::pending().await };
        let drain = |fd: &OwnedFd| Ok(rustix::io::read(fd, &mut [0_u8; 4096])?);
        if events.async_io(Interest::READABLE, drain).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
