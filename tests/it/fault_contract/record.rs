//! Observations of a case: one file for each, from which `tests/faults` makes the report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::not_run::not_run as say_not_run;

/// A promise that holds in every case where it applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Invariant {
    ServeUntilExpiry,
    NeverServeDead,
    NoBusyLoop,
    NoLostUpdate,
    AtomicSinks,
    NoSecretOutside,
    SingleFlight,
    Bounded,
    Observable,
    Recovery,
}

impl Invariant {
    /// Name in the report.
    const fn name(self) -> &'static str {
        match self {
            Self::ServeUntilExpiry => "I1",
            Self::NeverServeDead => "I2",
            Self::NoBusyLoop => "I3",
            Self::NoLostUpdate => "I4",
            Self::AtomicSinks => "I5",
            Self::NoSecretOutside => "I6",
            Self::SingleFlight => "I7",
            Self::Bounded => "I8",
            Self::Observable => "I9",
            Self::Recovery => "I10",
        }
    }
}

/// Results of the checks of one case, and its figures.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Checked invariants, each with its violations.
    checked: BTreeMap<Invariant, Vec<String>>,
    observed: BTreeMap<String, Value>,
}

impl Record {
    /// Records that an invariant was checked; `violation` is empty where it held.
    pub(super) fn check(&mut self, invariant: Invariant, violation: impl IntoIterator<Item = String>) {
        self.checked.entry(invariant).or_default().extend(violation);
    }

    /// Checks that a figure is within its bound.
    pub(super) fn at_most<T: Copy + PartialOrd + std::fmt::Display>(
        &mut self,
        invariant: Invariant,
        what: &str,
        found: T,
        max: T,
    ) {
        self.check(invariant, (found > max).then(|| format!("{what}: {found}, and at most {max} are allowed")));
    }

    pub(super) fn observe(&mut self, name: &str, value: impl Into<Value>) {
        self.observed.insert(name.to_owned(), value.into());
    }

    /// Observes a duration, in seconds.
    pub(super) fn observe_time(&mut self, name: &str, time: Duration) {
        let milliseconds = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        self.observe(name, f64::from(milliseconds) / 1000.0);
    }

    /// All violations.
    pub(super) fn violations(&self) -> Vec<String> {
        let all = self.checked.iter();
        all.flat_map(|(invariant, found)| found.iter().map(|text| format!("{}: {text}", invariant.name()))).collect()
    }

    /// Writes the case's file for the report.
    pub(super) fn write(&self, id: &str, error: Option<&str>) {
        let invariants: BTreeMap<&str, &str> =
            self.checked.iter().map(|(invariant, found)| (invariant.name(), state(found))).collect();
        let mut violations = self.violations();
        violations.extend(error.map(str::to_owned));
        let result = if violations.is_empty() { "passed" } else { "failed" };
        let mut observed = self.observed.clone();
        if !violations.is_empty() {
            observed.insert("violations".to_owned(), violations.into());
        }
        put(id, &json!({ "invariants": invariants, "observed": observed, "result": result }));
    }
}

fn state(violations: &[String]) -> &'static str {
    if violations.is_empty() { "kept" } else { "broken" }
}

/// Returns true in a run of everything (`tests/faults`), in which cases may take minutes.
pub(super) fn is_full_run() -> bool {
    std::env::vars_os().any(|(key, _)| key == "KEYWARD_FAULTS")
}

/// Writes that a case was not run, and why; the test passes.
pub(super) fn not_run(id: &str, why: &str) {
    say_not_run(&format!("{id}: {why}"));
    put(id, &json!({ "invariants": {}, "observed": { "why": why }, "result": "not run" }));
}

fn put(id: &str, case: &Value) {
    std::fs::create_dir_all(folder()).unwrap();
    std::fs::write(folder().join(format!("{id}.json")), format!("{case:#}\n")).unwrap();
}

/// `target/faults/cases`.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("faults").join("cases")
}
