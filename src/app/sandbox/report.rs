//! Reports the sandbox to operators: log, status, metric.

use std::collections::BTreeSet;

use keyward_config::SandboxMode;
use keyward_telemetry::metrics::{Metrics, metric_set};
use keyward_telemetry::status::SandboxEntry;
use keyward_telemetry::status_registry::StatusRegistry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// The sandbox of this process.
#[derive(Debug, Clone)]
pub struct SandboxReport {
    /// Setting `agent.sandbox`.
    pub(super) mode: &'static str,
    /// ABI of the kernel's Landlock; 0 without it.
    pub(super) landlock_abi: u32,
    /// Parts in force.
    pub(super) parts: BTreeSet<Part>,
    /// Reasons why parts are not in force.
    pub(super) missing: Vec<String>,
    /// Files of the configuration whose replacements by rename cannot be read: their folders hold much else.
    pub(super) denied_replacements: Vec<String>,
    /// Capabilities that are kept.
    pub(super) capabilities: Vec<&'static str>,
}

/// Part of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    NoNewPrivileges,
    Capabilities,
    Files,
    Ports,
    Scopes,
}

impl Part {
    const ALL: [Self; 5] = [Self::NoNewPrivileges, Self::Capabilities, Self::Files, Self::Ports, Self::Scopes];

    const fn name(self) -> &'static str {
        match self {
            Self::NoNewPrivileges => "no_new_privileges",
            Self::Capabilities => "capabilities",
            Self::Files => "files",
            Self::Ports => "ports",
            Self::Scopes => "scopes",
        }
    }
}

impl Default for SandboxReport {
    fn default() -> Self {
        Self::new(SandboxMode::Off)
    }
}

impl SandboxReport {
    pub(super) const fn new(mode: SandboxMode) -> Self {
        Self {
            mode: mode.name(),
            landlock_abi: 0,
            parts: BTreeSet::new(),
            missing: Vec::new(),
            denied_replacements: Vec::new(),
            capabilities: Vec::new(),
        }
    }

    /// Logs the sandbox, once.
    pub fn log(&self) {
        let parts: Vec<_> = self.parts.iter().map(|part| part.name()).collect();
        let parts = parts.join(",");
        let landlock_abi = self.landlock_abi;
        let mode = self.mode;
        if self.missing.is_empty() {
            tracing::info!(event = "sandbox.applied", mode, parts, landlock_abi, "applied the sandbox");
        } else {
            let missing = self.missing.join("; ");
            tracing::warn!(
                event = "sandbox.incomplete",
                mode,
                parts,
                landlock_abi,
                missing,
                "parts of the sandbox are missing; a kernel that has them, or agent.sandbox = \"off\" (--sandbox off), ends this warning"
            );
        }
        if !self.denied_replacements.is_empty() {
            let files = self.denied_replacements.join(", ");
            tracing::warn!(
                event = "sandbox.replacements.denied",
                files,
                "the sandbox prevents reading a replacement of these files, because it does not allow their shared folders; move each to its own folder to replace it at run time"
            );
        }
    }
}

metric_set! {
    /// Metrics of the sandbox.
    pub(crate) struct SandboxMetrics {
        /// 1 if a part of the process's sandbox is in force, else 0. `part` is `no_new_privileges`, `capabilities`, `files`, `ports` or
        /// `scopes`.
        pub(super) parts: Family<PartLabels, Gauge> = "keyward_sandbox";
    }
}

/// Labels of a part.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PartLabels {
    /// Name of the part.
    pub(super) part: &'static str,
}

/// Publishes the sandbox in status and metrics.
pub(crate) fn publish(report: &SandboxReport, status: &StatusRegistry, metrics: &Metrics) {
    let entry = SandboxEntry {
        mode: report.mode.to_owned(),
        landlock_abi: report.landlock_abi,
        parts: report.parts.iter().map(|part| part.name().to_owned()).collect(),
        missing: report.missing.clone(),
        denied_replacements: report.denied_replacements.clone(),
        capabilities: report.capabilities.iter().map(|&name| name.to_owned()).collect(),
    };
    status.update(|status| status.sandbox = Some(entry));
    for part in Part::ALL {
        let gauge = metrics.get::<SandboxMetrics>().parts.get_or_create(&PartLabels { part: part.name() }).clone();
        gauge.set(i64::from(report.parts.contains(&part)));
    }
}
