//! The scenarios' figures, and the file that `tests/herd` reads.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::simulation::{Fleet, LoginCount};

/// Figures of one scenario.
#[derive(Debug)]
pub(super) struct Recovery {
    /// The fault, the agents with a caller, and the server's limit.
    scenario: [&'static str; 3],
    /// Seconds to a token at agents with a waiting caller, sorted.
    pub(super) with_caller: Vec<f64>,
    /// The same at agents without one.
    pub(super) without_caller: Vec<f64>,
    pub(super) peak: LoginCount,
    /// Agents that still have no token.
    pub(super) missing: usize,
    logins: Value,
}

impl Recovery {
    /// Collects the figures of a fleet; its logins per second are listed from `start` on.
    pub(super) fn new(scenario: [&'static str; 3], fleet: &Fleet, start: Duration) -> Self {
        let sorted = |has_caller: bool| {
            let agents = fleet.agents.iter().filter(|agent| agent.has_caller == has_caller);
            let mut took: Vec<f64> = agents.filter_map(|agent| agent.took).map(|took| took.as_secs_f64()).collect();
            took.sort_by(f64::total_cmp);
            took
        };
        let logins = fleet.server.logins.iter().filter(|(second, _)| **second >= start.as_secs());
        let logins = logins.map(|(second, count)| json!([second - start.as_secs(), count.attempted, count.accepted]));
        Self {
            scenario,
            with_caller: sorted(true),
            without_caller: sorted(false),
            peak: fleet.server.peak(),
            missing: fleet.agents.iter().filter(|agent| agent.took.is_none()).count(),
            logins: logins.collect(),
        }
    }

    /// Returns the 99th percentile of the seconds to a token for a waiting caller.
    pub(super) fn p99(&self) -> f64 {
        percentile(&self.with_caller, 99)
    }

    fn to_json(&self) -> Value {
        let curve = |took: &[f64]| (0..=100).map(|percent| percentile(took, percent)).collect::<Vec<_>>();
        json!({
            "scenario": self.scenario,
            "with_caller": curve(&self.with_caller),
            "without_caller": curve(&self.without_caller),
            "peak": {"attempted": self.peak.attempted, "accepted": self.peak.accepted},
            "missing": self.missing,
            "logins": self.logins,
        })
    }
}

/// Returns a percentile of sorted values; 0 if there are none.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((sorted.len() * percent / 100).min(last)).copied().unwrap_or(0.0)
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (peak, p99) = (self.peak, self.p99());
        write!(f, "{:?}: p99 {p99:.1} s, {} missing, {peak:?}", self.scenario, self.missing)
    }
}

fn file() -> Option<OsString> {
    std::env::vars_os().find(|(name, _)| name == "KEYWARD_HERD").map(|(_, file)| file)
}

/// Returns true if `tests/herd` runs the simulation.
pub(super) fn is_published() -> bool {
    file().is_some()
}

/// Writes the figures, sorted by scenario, to the file that the variable `KEYWARD_HERD` names.
pub(super) fn publish(recoveries: &mut [Recovery]) {
    recoveries.sort_by_key(|recovery| recovery.scenario);
    let scenarios: Vec<_> = recoveries.iter().map(Recovery::to_json).collect();
    std::fs::write(file().unwrap(), serde_json::to_vec(&json!({ "scenarios": scenarios })).unwrap()).unwrap();
}
