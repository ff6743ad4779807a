//! Health, metrics and log of one audit device.

use keyward_machine::clock::Clock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::device::DeviceError;
use super::metrics::{AuditLabels, AuditMetrics, AuditOutcomeLabels};
use super::options::{AuditOptions, OnFailure};
use crate::health::HealthHandle;
use crate::metrics::Metrics;
use crate::outage::Outage;

/// Reports failures of a device to operators, and counts its records.
#[derive(Debug)]
pub(super) struct DeviceReport {
    name: String,
    on_failure: OnFailure,
    health: HealthHandle,
    clock: Clock,
    outage: Outage,
    kept_records: Counter,
    lost_records: Counter,
    failing: Gauge,
    state: DeviceState,
}

/// Outcome of the last write or sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeviceState {
    /// Nothing was written yet.
    Untried,
    Works,
    Fails,
}

impl DeviceReport {
    pub(super) fn new(options: &AuditOptions, health: HealthHandle, metrics: &Metrics, clock: Clock) -> Self {
        let metrics = metrics.get::<AuditMetrics>();
        // Each look-up ends before the next: it holds a lock.
        let counter = |outcome| {
            let labels = AuditOutcomeLabels { audit: options.name.clone(), outcome };
            metrics.records.get_or_create(&labels).clone()
        };
        let failing = metrics.failing.get_or_create(&AuditLabels { audit: options.name.clone() }).clone();
        let name = options.name.clone();
        let on_failure = options.on_failure;
        let outage = Outage::default();
        let kept_records = counter("kept");
        let lost_records = counter("lost");
        failing.set(0);
        Self {
            name,
            on_failure,
            health,
            clock,
            outage,
            kept_records,
            lost_records,
            failing,
            state: DeviceState::Untried,
        }
    }

    /// Returns true from a failure to the next success.
    pub(super) fn is_failing(&self) -> bool {
        self.state == DeviceState::Fails
    }

    pub(super) fn count_kept(&self, records: u64) {
        self.kept_records.inc_by(records);
    }

    pub(super) fn count_lost(&self, records: u64) {
        self.lost_records.inc_by(records);
    }

    /// Reports a failure; only the first of an outage is logged.
    pub(super) fn fail(&mut self, error: &DeviceError) {
        self.health.set_failed(error.code, error.text.as_str());
        if !self.outage.record_failure(self.clock.now()) {
            return;
        }
        self.state = DeviceState::Fails;
        self.failing.set(1);
        let audit = &self.name;
        let error = &error.text;
        match self.on_failure {
            OnFailure::Closed => {
                tracing::error!(event = "audit.failed", audit, error, "records cannot be kept; requests are refused");
            }
            OnFailure::Open => {
                tracing::error!(event = "audit.failed", audit, error, "records cannot be kept; requests are served");
            }
        }
    }

    /// Reports that the device works. Costs nothing while it does.
    pub(super) fn succeed(&mut self) {
        if self.state == DeviceState::Works {
            return;
        }
        self.state = DeviceState::Works;
        if let Some(lasted_seconds) = self.outage.record_success(self.clock.now()) {
            self.failing.set(0);
            tracing::info!(event = "audit.recovered", audit = self.name, lasted_seconds, "records are kept again");
        }
        self.health.set_ready();
    }
}
