//! Detects that another process deleted or changed a file that the agent has written (inotify(7)).
//!
//! One descriptor serves all outputs of the process: a user may have few of them (`fs.inotify.max_user_instances`, 128).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::Interest;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use keyward_credentials::backoff::Backoff;
use keyward_machine::clock::{Clock, ClockReading};
use keyward_machine::os;
use keyward_telemetry::metrics::metric_set;

/// Reaction to an output that another process deleted or changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// Write it again.
    #[default]
    Restore,
    /// Leave it until there is new content.
    Leave,
}

/// Watches the folders of outputs. Clones share one inotify descriptor.
#[derive(Debug, Clone)]
pub struct OutputWatch(Arc<WatchState>);

#[derive(Debug)]
struct WatchState {
    /// `None` if inotify is unavailable.
    events: Option<OwnedFd>,
    folders: Mutex<BTreeMap<i32, Folder>>,
}

/// Watched files of one folder, each with the notification of its watcher.
type Folder = Vec<(OsString, Arc<Notify>)>;

impl Default for OutputWatch {
    fn default() -> Self {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        if let Err(error) = &events {
            tracing::warn!(
                event = "output.watch.failed",
                error = error.to_string(),
                "outputs that other processes delete or change are not detected; raise fs.inotify.max_user_instances"
            );
        }
        Self(Arc::new(WatchState { events: events.ok(), folders: Mutex::default() }))
    }
}

impl OutputWatch {
    /// Creates a watch that never reports a change.
    pub fn disabled() -> Self {
        Self(Arc::new(WatchState { events: None, folders: Mutex::default() }))
    }

    /// Notifies watchers of changes in the folders, until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let events = self.0.events.as_ref().map(|events| events.try_clone().and_then(os::readable));
        let Some(Ok(events)) = events else { return stop.cancelled().await };
        let read = async {
            // The closure never returns a value, so this ends only with an error of the descriptor.
            let result: io::Result<()> = events.async_io(Interest::READABLE, |events| self.0.read(events)).await;
            if let Err(error) = result {
                tracing::warn!(
                    event = "output.watch.failed",
                    error = error.to_string(),
                    "outputs that other processes delete or change are not detected"
                );
            }
            std::future::pending::<()>().await;
        };
        let _: Option<()> = stop.run_until_cancelled(read).await;
    }

    /// Creates a watch of a file, which reports nothing before [`WatchedOutput::renew`].
    pub(crate) fn file(&self, path: &Path) -> WatchedOutput {
        let changed = Arc::new(Notify::new());
        WatchedOutput { watch: self.clone(), path: path.to_owned(), changed, folder: None, fingerprint: None }
    }
}

impl WatchState {
    /// Adds a file's folder and its watcher; returns the inotify watch.
    fn add(&self, path: &Path, changed: &Arc<Notify>) -> Option<i32> {
        let events = self.events.as_ref()?;
        let folder = path.parent()?;
        let name = path.file_name()?;
        let mut folders = self.folders.lock();
        let descriptor = inotify::add_watch(events, folder, WATCH_FLAGS).ok()?;
        let files = folders.entry(descriptor).or_default();
        if !files.iter().any(|(_, watcher)| Arc::ptr_eq(watcher, changed)) {
            files.push((name.to_owned(), Arc::clone(changed)));
        }
        Some(descriptor)
    }

    /// Reads events until none are left, which is the error that it returns.
    fn read(&self, events: &OwnedFd) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(events, &mut buffer);
        loop {
            let event = reader.next()?;
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            self.notify(event.wd(), name, event.events());
        }
    }

    fn notify(&self, folder: i32, name: Option<&OsStr>, events: ReadFlags) {
        let mut folders = self.folders.lock();
        // Events were lost (inotify(7)): any of the files may have changed.
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            folders.values().flatten().for_each(|(_, changed)| changed.notify_one());
        } else if events.contains(ReadFlags::IGNORED) {
            // The folder was deleted, and its watch with it.
            folders.remove(&folder).into_iter().flatten().for_each(|(_, changed)| changed.notify_one());
        } else if let Some(files) = folders.get(&folder) {
            // An event without a name concerns the folder itself.
            let watchers = files.iter().filter(|(watched, _)| name.is_none_or(|name| name == watched));
            watchers.for_each(|(_, changed)| changed.notify_one());
        }
    }

    fn remove(&self, folder: i32, changed: &Arc<Notify>) {
        let mut folders = self.folders.lock();
        let Some(files) = folders.get_mut(&folder) else { return };
        files.retain(|(_, watcher)| !Arc::ptr_eq(watcher, changed));
        if files.is_empty() {
            folders.remove(&folder);
            if let Some(events) = &self.events {
                let _ = inotify::remove_watch(events, folder);
            }
        }
    }
}

/// A watched output.
#[derive(Debug)]
pub(crate) struct WatchedOutput {
    watch: OutputWatch,
    path: PathBuf,
    changed: Arc<Notify>,
    folder: Option<i32>,
    /// State of the file after the last write; `None` if it was deleted at once.
    fingerprint: Option<FileFingerprint>,
}

/// Fingerprint of a file's state: device, inode, size, and ctime.
type FileFingerprint = (u64, u64, u64, i64, i64);

fn fingerprint(path: &Path) -> Option<FileFingerprint> {
    let file = std::fs::symlink_metadata(path).ok()?;
    // Not by mtime, which a writer can set to any time; ctime it cannot.
    Some((file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec()))
}

impl WatchedOutput {
    /// Watches the file's current state and folder. Call it after each write.
    pub(crate) async fn renew(&mut self) {
        let watch = self.watch.clone();
        let path = self.path.clone();
        let changed = Arc::clone(&self.changed);
        let renew = move || (watch.0.add(&path, &changed), fingerprint(&path));
        // A disk that hangs must not block the runtime.
        let Ok((folder, fingerprint)) = tokio::task::spawn_blocking(renew).await else { return };
        self.fingerprint = fingerprint;
        if let (Some(folder), Some(before)) = (folder, self.folder)
            && before != folder
        {
            self.watch.0.remove(before, &self.changed);
        }
        self.folder = folder.or(self.folder);
    }

    /// Waits for a change of the file, by this or another process.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns true if the file was replaced, changed or deleted since the last write.
    pub(crate) async fn is_changed(&self) -> bool {
        let path = self.path.clone();
        let now = tokio::task::spawn_blocking(move || fingerprint(&path)).await.ok().flatten();
        now.is_none() || now != self.fingerprint
    }
}

/// Outputs that one task writes, watched together.
#[derive(Debug)]
pub(crate) struct WatchedOutputs {
    watch: OutputWatch,
    outputs: Vec<WatchedOutput>,
}

impl WatchedOutputs {
    /// Creates a watch of no file.
    pub(crate) const fn new(watch: OutputWatch) -> Self {
        Self { watch, outputs: Vec::new() }
    }

    /// Watches these files as they are now, and no others. Call it after each write.
    pub(crate) async fn renew(&mut self, paths: &[PathBuf]) {
        self.outputs.retain(|output| paths.contains(&output.path));
        for path in paths {
            if !self.outputs.iter().any(|output| output.path == *path) {
                self.outputs.push(self.watch.file(path));
            }
        }
        for output in &mut self.outputs {
            output.renew().await;
        }
    }

    /// Watches nothing until the next write.
    pub(crate) fn clear(&mut self) {
        self.outputs.clear();
    }

    /// Returns true if one of them differs from what was written.
    pub(crate) async fn is_changed(&self) -> bool {
        let mut is_changed = false;
        for output in &self.outputs {
            is_changed |= output.is_changed().await;
        }
        is_changed
    }

    /// Waits for a change of one of them, by this or another process.
    pub(crate) async fn changed(&self) {
        let mut changes: Vec<_> = self.outputs.iter().map(|output| Box::pin(output.changed())).collect();
        poll_fn(|context| {
            let is_changed = changes.iter_mut().any(|change| change.as_mut().poll(context).is_ready());
            if is_changed { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Drop for WatchedOutput {
    fn drop(&mut self) {
        if let Some(folder) = self.folder {
            self.watch.0.remove(folder, &self.changed);
        }
    }
}

const WATCH_FLAGS: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Backoff of restorations, so that a process that always changes a file cannot make a loop.
#[derive(Debug)]
pub(crate) struct RestoreBackoff {
    /// The last restoration, and the wait after it.
    last: Option<(ClockReading, Duration)>,
    backoff: Backoff,
}

impl Default for RestoreBackoff {
    fn default() -> Self {
        Self { last: None, backoff: Backoff::new(Duration::from_secs(1), Duration::from_mins(1)) }
    }
}

impl RestoreBackoff {
    /// Returns the time to check a change that was detected now: at once, or 1 s, 2 s, 4 s ... 1 min after the last
    /// restoration if there were any in the last ten minutes.
    pub(crate) fn check_at(&mut self, clock: &Clock) -> ClockReading {
        let now = clock.now();
        let Some((last, wait)) = self.last.filter(|(last, _)| now.since(*last) < RESET_AFTER) else {
            self.backoff.reset();
            return now;
        };
        last + wait.max(now.since(last))
    }

    /// Records a restoration.
    pub(crate) fn record_restored(&mut self, clock: &Clock) {
        self.last = Some((clock.now(), self.backoff.next(1.0)));
    }
}

const RESET_AFTER: Duration = Duration::from_mins(10);

metric_set! {
    /// Metrics of outputs that others delete or change.
    pub struct OutputMetrics {
        /// Outputs (`sink/NAME`, `template/NAME`, `certificate/NAME`) that others deleted or changed. `outcome` is `restored` or `left`.
        pub(crate) changes: Family<OutputChangeLabels, Counter> = "keyward_output_changes";
    }
}

/// Labels of an output that others deleted or changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OutputChangeLabels {
    /// Such as `sink/NAME` or `template/NAME`.
    pub output: String,
    /// `restored` or `left`.
    pub outcome: &'static str,
}

#[cfg(test)]
mod tests;
