//! One clock for everything that must end at a time: BOOTTIME, which goes on through a suspend, and the wall clock,
//! which goes on through a restart. `Instant` stops in a suspend and is used for network time-outs only.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// Where the time comes from.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The machine's clocks.
    #[default]
    System,
    /// tokio's (pausable) time, with jumps that a test makes.
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
    /// Time from `earlier` to this moment by BOOTTIME; zero if `earlier` is later.
    pub fn since(&self, earlier: Self) -> Duration {
        self.boot.saturating_sub(earlier.boot)
    }

    /// Time from this moment until `later` by BOOTTIME; zero once it has come.
    pub fn until(&self, later: Self) -> Duration {
        later.boot.saturating_sub(self.boot)
    }
}

impl std::ops::Add<Duration> for ClockReading {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self { boot: self.boot.saturating_add(span), wall: self.wall.checked_add(span).unwrap_or(self.wall) }
    }
}

/// Milliseconds since 1970; zero before.
pub fn millis(wall: SystemTime) -> u64 {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Clock {
    /// Now, by both clocks.
    pub fn now(&self) -> ClockReading {
        match self {
            Self::System => ClockReading { boot: boottime(), wall: SystemTime::now() },
            Self::Test(driven) => driven.now(),
        }
    }

    /// Whether `moment` has come, by BOOTTIME. Costs half of [`Clock::now`].
    pub fn has_reached(&self, moment: ClockReading) -> bool {
        match self {
            Self::System => boottime() >= moment.boot,
            Self::Test(driven) => driven.now().boot >= moment.boot,
        }
    }

    /// Returns once `span` has passed by BOOTTIME, a suspend counted in.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.now() + span).await;
    }

    /// Returns once BOOTTIME has reached `moment`.
    pub async fn sleep_until(&self, moment: ClockReading) {
        match self {
            Self::System => {
                // Without a timer (descriptors used up) tokio's will do: it is only wrong across a suspend.
                if sleep_boottime(moment.boot).await.is_err() {
                    tokio::time::sleep(self.now().until(moment)).await;
                }
            }
            Self::Test(driven) => driven.sleep_until(moment).await,
        }
    }

    /// Returns once BOOTTIME has reached `moment`; never, where there is none.
    pub async fn sleep_until_some(&self, moment: Option<ClockReading>) {
        match moment {
            Some(moment) => self.sleep_until(moment).await,
            None => std::future::pending().await,
        }
    }

    /// Watches for the wall clock being set, or the machine coming back from a suspend.
    pub fn changes(&self) -> ClockChanges {
        match self {
            Self::System => ClockChanges::System(wall_clock_timer().ok()),
            Self::Test(driven) => ClockChanges::Test(driven.offsets.subscribe()),
        }
    }
}

/// Tells when the clocks have moved by other than the passing of time.
#[derive(Debug)]
pub enum ClockChanges {
    /// A timer that the kernel cancels when the wall clock is set; `None` where none could be had.
    System(Option<AsyncFd<std::os::fd::OwnedFd>>),
    /// The jumps that a test makes.
    Test(watch::Receiver<TestClockOffsets>),
}

impl ClockChanges {
    /// Returns after the next jump. Never, where the system gives no such timer.
    pub async fn next(&mut self) {
        match self {
            Self::System(Some(timer)) => {
                // The read fails with ECANCELED when the clock was set; nothing else ends this wait.
                let _ = timer.async_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut [0_u8; 8])?)).await;
            }
            Self::System(None) => std::future::pending().await,
            Self::Test(offsets) => {
                if offsets.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

/// A clock that a test drives: it follows tokio's time and jumps when told to.
#[derive(Debug, Clone)]
pub struct TestClock {
    start: tokio::time::Instant,
    wall: SystemTime,
    offsets: Arc<watch::Sender<TestClockOffsets>>,
}

/// How far a driven clock has been moved, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TestClockOffsets {
    boot: Duration,
    wall_seconds: i64,
}

impl TestClock {
    /// A driven clock whose wall clock starts at `wall`.
    pub fn starting_at(wall: SystemTime) -> Self {
        Self {
            start: tokio::time::Instant::now(),
            wall,
            offsets: Arc::new(watch::Sender::new(TestClockOffsets::default())),
        }
    }

    /// Sets the wall clock forward (or back), as an administrator or a time service would.
    pub fn set_wall_by(&self, seconds: i64) {
        self.offsets.send_modify(|offsets| offsets.wall_seconds += seconds);
    }

    /// Lets `span` pass in a suspend: both clocks move, tokio's time does not.
    pub fn suspend(&self, span: Duration) {
        self.offsets.send_modify(|offsets| {
            offsets.boot += span;
            offsets.wall_seconds = offsets.wall_seconds.saturating_add_unsigned(span.as_secs());
        });
    }

    fn now(&self) -> ClockReading {
        let offsets = *self.offsets.borrow();
        let passed = self.start.elapsed();
        let wall = self.wall + passed;
        let shift = Duration::from_secs(offsets.wall_seconds.unsigned_abs());
        let wall = if offsets.wall_seconds < 0 { wall.checked_sub(shift) } else { wall.checked_add(shift) };
        ClockReading { boot: UPTIME_AT_START + passed + offsets.boot, wall: wall.unwrap_or(self.wall) }
    }

    async fn sleep_until(&self, moment: ClockReading) {
        let mut offsets = self.offsets.subscribe();
        loop {
            let left = self.now().until(moment);
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                _ = offsets.changed() => {}
            }
        }
    }
}

const UPTIME_AT_START: Duration = Duration::from_hours(1);

/// The C library's call and not rustix's: that one finds the kernel's page of clocks by itself, which crashes under
/// valgrind and passes by a preloaded clock. It cannot fail since Linux 2.6.39.
fn boottime() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

fn to_timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() }
}

async fn sleep_boottime(until: Duration) -> std::io::Result<()> {
    let timer = rustix::time::timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    // A time of zero would disarm the timer; BOOTTIME zero is long past.
    let spec =
        Itimerspec { it_interval: Timespec::default(), it_value: to_timespec(until.max(Duration::from_nanos(1))) };
    rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &spec)?;
    let timer = crate::os::readable(timer)?;
    timer.async_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut [0_u8; 8])?)).await?;
    Ok(())
}

/// A timer far in the future that the kernel cancels when the wall clock is set (`timerfd_create(2)`).
fn wall_clock_timer() -> std::io::Result<AsyncFd<std::os::fd::OwnedFd>> {
    let timer = rustix::time::timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let never = Timespec { tv_sec: i64::MAX / 2, tv_nsec: 0 };
    rustix::time::timerfd_settime(
        &timer,
        TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET,
        &Itimerspec { it_interval: Timespec::default(), it_value: never },
    )?;
    crate::os::readable(timer)
}

#[cfg(test)]
mod tests;
