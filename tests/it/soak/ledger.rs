//! Counts of responses, by kind, and everything that was wrong.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::fault::Tolerance;
use super::plan::RESPONSE;

/// Most wrong responses of which the text is kept.
const KEPT: usize = 50;

/// Faults that are over and may still explain an error: a run of seconds has one every four.
const PAST: usize = 4;

/// State of the world as callers may notice it.
#[derive(Debug, Clone, Default)]
struct Phase {
    /// Name of the fault, and when it is over and recovered from: `None` while it lasts.
    fault: String,
    tolerance: Tolerance,
    calm_since: Option<Instant>,
}

impl Phase {
    /// Returns true if the fault lasted until `after` before a request was sent, or lasts still.
    fn lasts(&self, requested_at: Instant, after: Duration) -> bool {
        !self.fault.is_empty() && self.calm_since.is_none_or(|since| requested_at <= since + after)
    }

    fn explains(&self, kind: &str, requested_at: Instant) -> bool {
        // A request that joins an equal one gets its response: the timeout of a request sent during the fault.
        let joined = if kind == "504" { RESPONSE } else { Duration::ZERO };
        self.lasts(requested_at, joined) && self.tolerance.allows(kind)
    }
}

#[derive(Debug, Default)]
struct Inner {
    good: BTreeMap<&'static str, u64>,
    errors: BTreeMap<String, u64>,
    wrong: Vec<String>,
    wrongs: u64,
    phase: Phase,
    /// The ones before, the latest first: a timeout ends after its fault, and after the next ones have begun.
    past: VecDeque<Phase>,
    /// Since the last sample.
    requests: u64,
    recent_errors: BTreeMap<String, u64>,
    stall: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<Inner>);

/// Totals at the end of a run.
#[derive(Debug, Clone)]
pub(super) struct Totals {
    pub(super) good: BTreeMap<&'static str, u64>,
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) wrong: Vec<String>,
    pub(super) wrongs: u64,
}

impl Ledger {
    /// Counts a correct response of a kind of caller.
    pub(super) fn good(&self, class: &'static str) {
        let mut inner = self.0.lock();
        *inner.good.entry(class).or_default() += 1;
        inner.requests += 1;
    }

    /// Counts an error that says why, such as `proxy 503`; it is wrong if no fault explains it.
    pub(super) fn error(&self, class: &str, kind: &str, requested_at: Instant, detail: &str) {
        let mut inner = self.0.lock();
        let name = format!("{class} {kind}");
        *inner.errors.entry(name.clone()).or_default() += 1;
        *inner.recent_errors.entry(name.clone()).or_default() += 1;
        inner.requests += 1;
        let phase = inner.phase.clone();
        if !phase.explains(kind, requested_at) && !inner.past.iter().any(|past| past.explains(kind, requested_at)) {
            let fault = if phase.fault.is_empty() { "none" } else { &phase.fault };
            let when =
                if phase.lasts(requested_at, Duration::ZERO) { "a fault that does not explain it" } else { "no fault" };
            let detail: String = detail.chars().take(300).collect();
            inner.wrong(format!("{name} during {when} (the last one: {fault}): {detail}"));
        }
    }

    /// Counts a wrong response.
    pub(super) fn wrong(&self, text: String) {
        let mut inner = self.0.lock();
        inner.requests += 1;
        let fault = inner.phase.fault.clone();
        inner.wrong(format!("{text} (the last fault: {fault})"));
    }

    /// Begins a fault.
    pub(super) fn begin(&self, fault: &str, tolerance: Tolerance) {
        let mut inner = self.0.lock();
        let next = Phase { fault: fault.to_owned(), tolerance, calm_since: None };
        let ended = std::mem::replace(&mut inner.phase, next);
        inner.past.push_front(ended);
        inner.past.truncate(PAST);
    }

    /// Ends it: from now on each error is a wrong response.
    pub(super) fn end_tolerance(&self, now: Instant) {
        self.0.lock().phase.calm_since = Some(now);
    }

    /// Records a delay of the test's own timers, which decays.
    pub(super) fn stalled(&self, delay: Duration) {
        let mut inner = self.0.lock();
        inner.stall = delay.max(inner.stall.mul_f64(0.9));
    }

    /// Time by which limits are extended: the machine itself was late.
    pub(super) fn slack(&self) -> Duration {
        self.0.lock().stall * 3
    }

    /// Requests and errors since the last call.
    pub(super) fn recent(&self) -> (u64, BTreeMap<String, u64>) {
        let mut inner = self.0.lock();
        (std::mem::take(&mut inner.requests), std::mem::take(&mut inner.recent_errors))
    }

    pub(super) fn totals(&self) -> Totals {
        let inner = self.0.lock();
        let (good, errors, wrong) = (inner.good.clone(), inner.errors.clone(), inner.wrong.clone());
        Totals { good, errors, wrong, wrongs: inner.wrongs }
    }
}

impl Inner {
    fn wrong(&mut self, text: String) {
        self.wrongs += 1;
        if self.wrong.len() < KEPT {
            self.wrong.push(text);
        }
    }
}

#[test]
fn an_error_that_no_fault_explains_is_a_wrong_answer() {
    use super::client::now;
    use super::fault::Disturbance;
    let ledger = Ledger::default();
    let wrongs = |kind: &str, requested_at: Instant| {
        let before = ledger.totals().wrongs;
        ledger.error("proxy", kind, requested_at, "a reason");
        ledger.totals().wrongs - before
    };
    assert_eq!(wrongs("503", now()), 1, "before the first fault");
    ledger.begin("an outage", Disturbance::Outage.tolerance());
    let during = now();
    assert_eq!(
        (wrongs("503", during), wrongs("cut off", during), wrongs("unreachable", during), wrongs("403", during)),
        (0, 0, 1, 1)
    );
    ledger.end_tolerance(now());
    assert_eq!((wrongs("503", during), wrongs("503", now())), (0, 1), "asked during the outage, and after it");
    ledger.begin("another child", Disturbance::ChildKilled.tolerance());
    assert_eq!(wrongs("503", now()), 1, "which is no reason for it");
    assert_eq!(wrongs("503", during), 0, "asked during the outage, and answered after the next fault began");
    ledger.end_tolerance(now());
    ledger.begin("no descriptors", Disturbance::ChildKilled.tolerance());
    assert_eq!((wrongs("504", now()), wrongs("504", now() + 2 * RESPONSE)), (0, 1), "joined a request of the outage");
    let totals = ledger.totals();
    assert_eq!((totals.errors["proxy 503"], totals.wrongs, totals.wrong.len()), (6, 6, 6));
}
