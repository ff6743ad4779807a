//! Decides when a changed file is written, and writes it in the background.

use std::time::Duration;

use keyward_machine::clock::{Clock, ClockReading};
use tokio::task::JoinSet;

use super::file_encryption::{EncryptedFile, FileRejected};

/// Extent of the changes since the last write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChangeLevel {
    #[default]
    None,
    /// Entries were confirmed: they are younger than in the file, but the same.
    AgeOnly,
    /// Entries were added, replaced or removed.
    Content,
}

/// Schedules writes: soon after a change, but the less often the larger the file is.
#[derive(Debug, Default)]
struct WriteScheduler {
    not_before: Option<ClockReading>,
    due: Option<ClockReading>,
}

impl WriteScheduler {
    const fn due(&self) -> Option<ClockReading> {
        self.due
    }

    fn schedule(&mut self, now: ClockReading, changes: ChangeLevel) {
        let wait = match changes {
            ChangeLevel::None => return,
            ChangeLevel::AgeOnly => AGE_DELAY,
            ChangeLevel::Content => CONTENT_DELAY,
        };
        let wait = self.not_before.map_or(wait, |at| wait.max(now.until(at)));
        let at = now + wait;
        if self.due.is_none_or(|due| at.boot < due.boot) {
            self.due = Some(at);
        }
    }

    const fn record_start(&mut self) {
        self.due = None;
    }

    /// Records the size of the written file; `None` after a failure, which schedules another write.
    fn record_end(&mut self, now: ClockReading, bytes: Option<usize>) {
        let pause = bytes.map_or(RETRY_DELAY, |bytes| Duration::from_secs(bytes as u64 / MAX_BYTES_PER_SECOND));
        self.not_before = Some(now + pause);
        if bytes.is_none() {
            self.schedule(now, ChangeLevel::Content);
        } else if let Some(due) = self.due.take() {
            let wait = now.until(due).max(pause);
            self.due = Some(now + wait);
        }
    }
}

/// Writes a file in the background, one write at a time.
#[derive(Debug)]
pub(crate) struct BackgroundWriter {
    file: EncryptedFile,
    scheduler: WriteScheduler,
    /// Returns the size of the file.
    write: JoinSet<Option<usize>>,
}

impl BackgroundWriter {
    pub(crate) fn new(file: EncryptedFile) -> Self {
        Self { file, scheduler: WriteScheduler::default(), write: JoinSet::new() }
    }

    /// Reads and parses the file of the previous process ([`EncryptedFile::load`]).
    pub(crate) async fn load<T: Send + 'static>(
        &self,
        parse: impl FnOnce(&[u8]) -> Result<T, FileRejected> + Send + 'static,
    ) -> Option<T> {
        self.file.load(parse).await
    }

    /// Schedules a write after a change.
    pub(crate) fn schedule(&mut self, now: ClockReading, changes: ChangeLevel) {
        self.scheduler.schedule(now, changes);
    }

    /// Waits until a write is due.
    pub(crate) async fn wait_until_due(&mut self, clock: &Clock) {
        loop {
            let due = self.scheduler.due().filter(|_| self.write.is_empty());
            tokio::select! {
                Some(written) = self.write.join_next() => self.scheduler.record_end(clock.now(), written.ok().flatten()),
                () = clock.sleep_until_some(due) => return,
            }
        }
    }

    /// Starts writing the bytes that `plain` builds.
    pub(crate) fn write(&mut self, plain: impl FnOnce() -> Option<Vec<u8>> + Send + 'static) {
        self.scheduler.record_start();
        self.write.spawn(self.file.clone().save(plain));
    }

    /// Writes the changes that are not written yet; `plain` returns the closure that builds the content.
    pub(crate) async fn finish<P>(&mut self, clock: &Clock, changes: ChangeLevel, plain: impl FnOnce() -> P)
    where
        P: FnOnce() -> Option<Vec<u8>> + Send + 'static,
    {
        self.schedule(clock.now(), changes);
        self.wait_for_write(clock).await;
        if self.scheduler.due().is_some() {
            self.write(plain());
            self.wait_for_write(clock).await;
        }
    }

    async fn wait_for_write(&mut self, clock: &Clock) {
        while let Some(written) = self.write.join_next().await {
            self.scheduler.record_end(clock.now(), written.ok().flatten());
        }
    }
}

const CONTENT_DELAY: Duration = Duration::from_secs(1);
/// A lost write of ages makes entries only seem older than they are.
const AGE_DELAY: Duration = Duration::from_mins(1);
const RETRY_DELAY: Duration = Duration::from_mins(1);

/// Bounds the average rate of writes.
const MAX_BYTES_PER_SECOND: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(boot: u64, wall: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(boot), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(wall) }
    }

    #[test]
    fn a_write_follows_a_change_soon_and_large_files_are_written_less_often() {
        let mut scheduler = WriteScheduler::default();
        scheduler.schedule(at(100, 100), ChangeLevel::None);
        assert_eq!(scheduler.due(), None);
        scheduler.schedule(at(100, 100), ChangeLevel::AgeOnly);
        assert_eq!(scheduler.due(), Some(at(160, 160)));
        scheduler.schedule(at(110, 110), ChangeLevel::Content);
        assert_eq!(scheduler.due(), Some(at(111, 111)));
        scheduler.record_start();
        scheduler.schedule(at(111, 111), ChangeLevel::Content);
        scheduler.record_end(at(112, 112), Some(16 * 1024 * 1024));
        assert_eq!(scheduler.due(), Some(at(176, 176)), "16 MiB take a minute of the rate");
        scheduler.record_start();
        scheduler.record_end(at(177, 177), None);
        assert_eq!(scheduler.due(), Some(at(237, 237)), "a failed write is retried");
    }
}
