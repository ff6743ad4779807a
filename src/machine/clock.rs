//! Reads BOOTTIME, which continues through a suspend, and the wall clock, which continues through a restart. `Instant`
//! stops during a suspend and is used for network timeouts only.

use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::sync::watch;

/// Source of the time.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The machine's clocks.
    #[default]
    System,
    /// tokio's pausable time, plus the offsets that a test sets.
    Test(TestClock),
}

/// A reading of both clocks at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// Time since the machine started, suspends included.
    pub boot: Duration,
    /// The wall clock, which may be set forward or back at any time.
    pub wall: SystemTime,
}

impl ClockReading {
    /// Returns the BOOTTIME from `earlier` to this reading; zero if `earlier` is later.
    pub fn since(&self, earlier: Self) -> Duration {
        self.boot.saturating_sub(earlier.boot)
    }

    /// Returns the BOOTTIME from this reading until `later`; zero if that has passed.
    pub fn until(&self, later: Self) -> Duration {
        later.boot.saturating_sub(self.boot)
    }

    /// Returns the later of two readings by BOOTTIME.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        std::cmp::max_by_key(self, other, |reading| reading.boot)
    }

    /// Returns `other` by the wall clock of this reading, which may have been set since or before.
    pub fn wall_time_of(&self, other: Self) -> SystemTime {
        let shifted = if other.boot > self.boot {
            self.wall.checked_add(self.until(other))
        } else {
            self.wall.checked_sub(self.since(other))
        };
        shifted.unwrap_or(other.wall)
    }

    /// Returns `other` with its wall-clock time by this reading: the wall clock may have been set between the two.
    #[must_use]
    pub fn rebase(&self, other: Self) -> Self {
        Self { wall: self.wall_time_of(other), ..other }
    }
}

impl std::ops::Add<Duration> for ClockReading {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self { boot: self.boot.saturating_add(span), wall: self.wall.checked_add(span).unwrap_or(self.wall) }
    }
}

/// Converts a time to milliseconds since 1970; zero for earlier times.
pub fn millis(wall: SystemTime) -> u64 {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Clock {
    /// Reads both clocks.
    pub fn now(&self) -> ClockReading {
        match self {
            Self::System => ClockReading { boot: boottime(), wall: SystemTime::now() },
            Self::Test(driven) => driven.now(),
        }
    }

    /// Returns true once BOOTTIME has reached `reading`. Costs half of [`Clock::now`].
    pub fn has_reached(&self, moment: ClockReading) -> bool {
        match self {
            Self::System => boottime() >= moment.boot,
            Self::Test(driven) => driven.now().boot >= moment.boot,
        }
    }

    /// Sleeps for `span` by BOOTTIME, suspends included.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.now() + span).await;
    }

    /// Sleeps until BOOTTIME reaches `reading`. tokio's time stops during a suspend, whose end is a change of the clock.
    pub async fn sleep_until(&self, moment: ClockReading) {
        let mut changes = self.changes();
        loop {
            let remaining = self.now().until(moment);
            if remaining.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(remaining) => {}
                () = changes.next() => {}
            }
        }
    }

    /// Sleeps until BOOTTIME reaches `reading`; forever for `None`.
    pub async fn sleep_until_some(&self, moment: Option<ClockReading>) {
        match moment {
            Some(moment) => self.sleep_until(moment).await,
            None => std::future::pending().await,
        }
    }

    /// Watches for changes of the wall clock and for resumes from a suspend.
    pub fn changes(&self) -> ClockChanges {
        ClockChanges(match self {
            Self::System => SYSTEM_CHANGES.subscribe(),
            Self::Test(driven) => driven.offsets.subscribe(),
        })
    }
}

/// Notifies of clock changes other than the passing of time.
#[derive(Debug)]
pub struct ClockChanges(watch::Receiver<ClockOffsets>);

impl ClockChanges {
    /// Waits for the next change; forever if the system does not tell of them.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A clock for tests: it follows tokio's time and moves by offsets that the test sets.
#[derive(Debug, Clone)]
pub struct TestClock {
    start: tokio::time::Instant,
    wall: SystemTime,
    offsets: Arc<watch::Sender<ClockOffsets>>,
}

/// Offsets of a test clock; those of the system stay zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockOffsets {
    boot: Duration,
    wall_seconds: i64,
}

impl TestClock {
    /// Creates a test clock whose wall clock starts at `wall`.
    pub fn starting_at(wall: SystemTime) -> Self {
        Self {
            start: tokio::time::Instant::now(),
            wall,
            offsets: Arc::new(watch::Sender::new(ClockOffsets::default())),
        }
    }

    /// Moves the wall clock by `seconds`, as an administrator or a time service would.
    pub fn set_wall_by(&self, seconds: i64) {
        self.offsets.send_modify(|offsets| offsets.wall_seconds += seconds);
    }

    /// Simulates a suspend of `span`: both clocks move, tokio's time does not.
    pub fn suspend(&self, span: Duration) {
        self.offsets.send_modify(|offsets| {
            offsets.boot += span;
            offsets.wall_seconds = offsets.wall_seconds.saturating_add_unsigned(span.as_secs());
        });
    }

    fn now(&self) -> ClockReading {
        let offsets = *self.offsets.borrow();
        let elapsed = self.start.elapsed();
        let wall = self.wall + elapsed;
        let shift = Duration::from_secs(offsets.wall_seconds.unsigned_abs());
        let wall = if offsets.wall_seconds < 0 { wall.checked_sub(shift) } else { wall.checked_add(shift) };
        ClockReading { boot: UPTIME_AT_START + elapsed + offsets.boot, wall: wall.unwrap_or(self.wall) }
    }
}

const UPTIME_AT_START: Duration = Duration::from_hours(1);

/// Reads BOOTTIME through the C library: rustix locates the vDSO itself, which crashes under valgrind and bypasses a
/// preloaded clock. The call cannot fail since Linux 2.6.39.
fn boottime() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

/// Returns the seconds since 1970 by the kernel's coarse clock, whose reading costs least. Read as BOOTTIME is, for the same reason.
pub fn coarse_unix_seconds() -> u64 {
    clock_gettime(ClockId::CLOCK_REALTIME_COARSE).map_or(0, |now| u64::try_from(now.tv_sec()).unwrap_or(0))
}

/// Tells of each change of the machine's clocks. One timer serves the process, and a thread waits for it: there may be several runtimes.
static SYSTEM_CHANGES: LazyLock<watch::Sender<ClockOffsets>> = LazyLock::new(|| {
    let watching = wall_clock_timer().map_err(std::io::Error::from).and_then(|timer| {
        let watch = move || {
            // The read fails with ECANCELED when the clock is set; nothing else ends it.
            while rustix::io::read(&timer, &mut [0_u8; 8]) == Err(Errno::CANCELED) {
                SYSTEM_CHANGES.send_replace(ClockOffsets::default());
            }
        };
        std::thread::Builder::new().name("clock".to_owned()).stack_size(THREAD_STACK).spawn(watch)
    });
    // Without it, sleeps are wrong across a suspend only.
    if let Err(error) = watching {
        tracing::debug!(error = error.to_string(), "changes of the clock are not seen");
    }
    watch::Sender::default()
});

/// Stack of the thread, which makes two kinds of calls.
const THREAD_STACK: usize = 64 << 10;

/// Creates a timer far in the future that the kernel cancels when the wall clock is set, also by the end of a suspend
/// (`timerfd_create(2)`).
fn wall_clock_timer() -> Result<OwnedFd, Errno> {
    let timer = rustix::time::timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::CLOEXEC)?;
    let never = Timespec { tv_sec: i64::MAX / 2, tv_nsec: 0 };
    rustix::time::timerfd_settime(
        &timer,
        TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET,
        &Itimerspec { it_interval: Timespec::default(), it_value: never },
    )?;
    Ok(timer)
}

#[cfg(test)]
mod tests;
