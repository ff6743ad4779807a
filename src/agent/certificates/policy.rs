//! Decides when a certificate is replaced: a pure function of its life, of the configuration and of the time.

use std::time::{Duration, SystemTime};

use keyward_credentials::backoff::time_to_renewal;

/// Times at which a certificate is replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RenewalPolicy {
    /// Time from which it is due; `None` for 63 to 70 % of its life.
    pub renew_at: Option<RenewAt>,
    /// Part of each day in which it is replaced; `None` for any time.
    pub window: Option<Window>,
}

/// Time from which a certificate is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewAt {
    /// After this part of its life, in percent: 1 to 95.
    Percent(u8),
    /// This long before its end; at half of its life at the earliest.
    BeforeEnd(Duration),
}

/// Part of each day, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Time after midnight at which it begins, below a day.
    pub start: Duration,
    /// Its length, below a day.
    pub length: Duration,
}

/// Time in which a certificate is valid, by its own dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) begins: SystemTime,
    pub(super) ends: SystemTime,
}

impl RenewalPolicy {
    /// Returns the time of the next request of a certificate that takes this one's place.
    ///
    /// `not_before` is the earliest time of another try after a failure, and `unit` a random number in `0.0..1.0` that stays the
    /// same for one certificate. A window is waited for during the first half of the time from the due date to the end; if none
    /// begins by then, or all of them have failed, the certificate is requested outside of it.
    pub(super) fn next_request(self, life: Life, not_before: SystemTime, now: SystemTime, unit: f64) -> SystemTime {
        let due = self.due(life, unit);
        let earliest = due.max(not_before);
        let Some(window) = self.window else { return earliest };
        let latest = due + life.ends.duration_since(due).unwrap_or_default() / 2;
        let mut at = window.next(earliest, unit);
        if at.closes <= now {
            // A window that has passed, as during a suspend, is not used late.
            at = window.next(earliest.max(now), unit);
        }
        if at.opens <= latest { at.time.min(latest.max(earliest)) } else { earliest }
    }

    /// Returns the time from which a certificate is due. `unit` spreads those that were issued together.
    pub(super) fn due(self, life: Life, unit: f64) -> SystemTime {
        let whole = life.ends.duration_since(life.begins).unwrap_or_default();
        let age = match self.renew_at {
            None => time_to_renewal(whole, unit),
            // Up to a twentieth of the life earlier.
            Some(RenewAt::Percent(percent)) => {
                let share = f64::from(percent) / 100.0;
                whole.mul_f64((share - 0.05 * unit).max(share / 2.0))
            }
            Some(RenewAt::BeforeEnd(span)) => whole.saturating_sub(span).max(whole / 2),
        };
        life.begins + age
    }
}

/// A time in one occurrence of a window.
#[derive(Debug, Clone, Copy)]
struct Occurrence {
    opens: SystemTime,
    time: SystemTime,
    closes: SystemTime,
}

impl Window {
    /// Returns the occurrence that is open at `earliest`, or the next one after it, with a random time in it.
    fn next(self, earliest: SystemTime, unit: f64) -> Occurrence {
        let since_epoch = earliest.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // The day before: its window may last beyond midnight.
        let mut day = (since_epoch.as_secs() / DAY.as_secs()).saturating_sub(1);
        loop {
            let opens = SystemTime::UNIX_EPOCH + Duration::from_secs(day * DAY.as_secs()) + self.start;
            let closes = opens + self.length;
            if earliest < closes {
                // The due date of each certificate is random already.
                let time = if opens <= earliest { earliest } else { opens + self.length.mul_f64(unit) };
                return Occurrence { opens, time, closes };
            }
            day += 1;
        }
    }
}

const DAY: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests;
