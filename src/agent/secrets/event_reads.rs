//! Decides when the secrets of events are read: at once, and in a flood of events at a limited pace. Pure: time is passed in.

use std::collections::BTreeMap;
use std::time::Duration;

use keyward_credentials::token_bucket::TokenBucket;
use keyward_machine::clock::ClockReading;

use super::SecretRequest;

/// Reads that events ask for. A read later than its event covers all events before it, so that a secret has one at most.
#[derive(Debug)]
pub(super) struct EventReads {
    secrets: BTreeMap<SecretRequest, Wanted>,
    session: TokenBucket,
}

/// State of one secret.
#[derive(Debug)]
struct Wanted {
    pace: TokenBucket,
    /// Time of the next read; `None` for none.
    due: Option<ClockReading>,
    /// Latest version that an event told.
    version: Option<u64>,
    /// Reads since the last event.
    reads: u32,
}

/// Reads of one secret: two at once, and then one in two seconds, as often as a poll of every two seconds finds a change.
const PACE: TokenBucket = TokenBucket::full(2, Duration::from_secs(2));

/// Reads of a session: at most ten a second, as for the poll.
const SESSION: TokenBucket = TokenBucket::full(10, Duration::from_millis(100));

/// Times that a secret is read until it has the version of an event: 1 s, 2 s, 4 s, 8 s and 16 s after each other. Events come from the
/// active node, and a standby may lag behind it. Later the poll or the interval finds the change.
const MAX_READS: u32 = 6;

impl EventReads {
    pub(super) const fn new() -> Self {
        Self { secrets: BTreeMap::new(), session: SESSION }
    }

    /// Records an event about a secret, and the version that it told.
    pub(super) fn record(&mut self, request: &SecretRequest, version: Option<u64>, now: ClockReading) {
        let new = || Wanted { pace: PACE, due: None, version: None, reads: 0 };
        let wanted = self.secrets.entry(request.clone()).or_insert_with(new);
        // The version of an event that changes none, as of metadata, is that of the last one.
        wanted.version = version.or(wanted.version);
        // A read that waits for its pace stays; one that repeats another comes at once.
        if wanted.reads > 0 || wanted.due.is_none() {
            wanted.due = Some(wanted.pace.available_at(now, 1));
        }
        wanted.reads = 0;
    }

    /// Returns the time of the next read; `None` for none.
    pub(super) fn next(&mut self, now: ClockReading) -> Option<ClockReading> {
        let due = self.secrets.values().filter_map(|wanted| wanted.due).min_by_key(|due| due.boot)?;
        Some(due.later(self.session.available_at(now, 1)))
    }

    /// Takes the reads that are due. `known` returns the version of a secret that was read.
    pub(super) fn take(
        &mut self,
        now: ClockReading,
        known: impl Fn(&SecretRequest) -> Option<u64>,
    ) -> Vec<SecretRequest> {
        let is_due = |due: &ClockReading| now.until(*due).is_zero();
        let due = self.secrets.iter().filter_map(|(request, wanted)| Some((wanted.due.filter(is_due)?, request)));
        let mut due: Vec<_> = due.map(|(due, request)| (due.boot, request.clone())).collect();
        // The longest wait first, so that no secret waits for ever in a flood of events about others.
        due.sort();
        let mut taken = Vec::new();
        for (_, request) in due {
            let Some(wanted) = self.secrets.get_mut(&request) else { continue };
            if wanted.reads > 0 && known(&request) >= wanted.version {
                wanted.due = None;
                continue;
            }
            if self.session.try_take(now).is_err() {
                break;
            }
            wanted.pace.take(now, 1);
            wanted.due = wanted.due_again(now);
            wanted.reads += 1;
            taken.push(request);
        }
        self.forget_idle(now);
        taken
    }

    /// Forgets secrets without a read to come whose pace allows all again.
    fn forget_idle(&mut self, now: ClockReading) {
        self.secrets.retain(|_, wanted| wanted.due.is_some() || wanted.pace.available(now) < PACE.size());
    }
}

impl Wanted {
    /// Returns the time at which it is checked whether the read gave the version that was told.
    fn due_again(&mut self, now: ClockReading) -> Option<ClockReading> {
        let is_last = self.version.is_none() || self.reads + 1 >= MAX_READS;
        let wait = Duration::from_secs(1 << self.reads.min(MAX_READS));
        (!is_last).then(|| (now + wait).later(self.pace.available_at(now, 1)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(seconds: f64) -> ClockReading {
        let start =
            ClockReading { boot: Duration::from_hours(1), wall: SystemTime::UNIX_EPOCH + Duration::from_hours(1) };
        start + Duration::from_secs_f64(seconds)
    }

    /// Takes reads at their times until `end`, with an event about each of `secrets` every `gap`; returns the times of reads.
    fn reads(secrets: usize, gap: f64, end: f64, known: Option<u64>, told: Option<u64>) -> Vec<f64> {
        let mut all = EventReads::new();
        let (mut now, mut event, mut times) = (0.0, 0.0, Vec::new());
        while now < end {
            if event <= now {
                for number in 0..secrets {
                    all.record(&SecretRequest::read(format!("secret/data/{number}")), told, at(now));
                }
                event += gap;
            }
            times.extend(all.take(at(now), |_| known).iter().map(|_| now));
            now = ((now * 1000.0).round() + 10.0) / 1000.0;
        }
        times
    }

    #[test]
    fn the_first_event_is_followed_at_once_and_a_flood_at_its_pace() {
        assert_eq!(reads(1, 1e9, 60.0, None, None), [0.0]);
        let flood = reads(1, 0.01, 60.0, None, None);
        assert!(flood[0] < 0.001, "{flood:?}");
        assert!((30..=33).contains(&flood.len()), "{flood:?}");
        // The last event of a flood is followed, too.
        let mut all = EventReads::new();
        let request = SecretRequest::read("secret/data/app");
        for number in 0..10 {
            all.record(&request, None, at(f64::from(number) / 100.0));
            all.take(at(f64::from(number) / 100.0), |_| None);
        }
        let next = all.next(at(0.1)).unwrap();
        assert_eq!(all.take(next, |_| None).len(), 1);
        assert_eq!(all.next(next), None);
    }

    #[test]
    fn many_secrets_are_read_ten_times_a_second_at_most() {
        let times = reads(200, 1e9, 60.0, None, None);
        assert_eq!(times.len(), 200, "each is read");
        assert!(times[199] > 18.0 && times[199] < 21.0, "{}", times[199]);
    }

    #[test]
    fn in_a_flood_of_events_about_many_secrets_each_is_read() {
        let mut all = EventReads::new();
        let mut read = std::collections::BTreeSet::new();
        for step in 0..6000 {
            let now = at(f64::from(step) / 100.0);
            for number in 0..100 {
                all.record(&SecretRequest::read(format!("secret/data/{number}")), None, now);
            }
            read.extend(all.take(now, |_| None).into_iter().map(|request| request.path));
        }
        assert_eq!(read.len(), 100);
    }

    #[test]
    fn a_version_that_is_not_there_yet_is_read_again_ever_more_rarely() {
        let times = reads(1, 1e9, 600.0, Some(6), Some(7));
        assert_eq!(times.len(), 6, "{times:?}");
        assert!(times[5] > 30.0 && times[5] < 40.0, "{times:?}");
        assert_eq!(reads(1, 1e9, 600.0, Some(7), Some(7)), [0.0], "it is there");
        assert_eq!(reads(1, 1e9, 600.0, Some(8), Some(7)), [0.0], "a newer one is there");
    }

    #[test]
    fn nothing_is_kept_of_secrets_that_are_read() {
        let mut all = EventReads::new();
        for number in 0..5 {
            all.record(&SecretRequest::read(format!("secret/data/{number}")), Some(1), at(0.0));
        }
        assert_eq!(all.take(at(0.0), |_| Some(1)).len(), 5);
        all.take(at(3.0), |_| Some(1));
        all.take(at(6.0), |_| Some(1));
        assert!(all.secrets.is_empty(), "{all:?}");
    }
}
