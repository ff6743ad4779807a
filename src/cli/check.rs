//! `keyward check`: lists the errors of a configuration, or describes what the agent does with it.

use std::path::PathBuf;

use clap::Args;
use keyward_app::check_result::{CheckResult, CheckStatus, Progress};
#[cfg(feature = "gateway")]
use keyward_app::probes::check_gateway;
use keyward_app::probes::{Limits, check_session, check_tool_identity};
use keyward_config::{Config, Purpose};
use keyward_telemetry::wording::format_count;
use serde_json::json;

use super::progress::{ProgressLine, show_progress};
use super::{ConfigFiles, Exit, Format, command_config, print_line};

/// Check a configuration.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// Configuration file, or folder of *.toml files, like --config; repeatable
    #[arg(value_name = "FILE", conflicts_with = "config")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    files: ConfigFiles,
    /// Test DNS, TLS, the identity source and a login (revoked afterwards); for a gateway, the platform and the owner of its token
    #[arg(long)]
    online: bool,
    /// Require the files, users and variables of this machine, as `run` and a reload do; not systemd's credentials
    #[arg(long)]
    host: bool,
    /// Print only errors and warnings
    #[arg(short, long)]
    quiet: bool,
    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
}

impl Check {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let purpose = match (self.online, self.host) {
            (true, _) => Purpose::Run,
            (false, true) => Purpose::CheckHost,
            (false, false) => Purpose::Check,
        };
        let files = if self.paths.is_empty() { &self.files.config } else { &self.paths };
        let outcome = command_config::load(files, purpose)?;
        let steps = match &outcome.config {
            Some(config) if self.online => try_online(config)?,
            _ => Vec::new(),
        };
        match self.format {
            Format::Json => {
                let mut report = serde_json::to_value(outcome.report())?;
                report["online"] = steps.iter().map(online_step).collect();
                report["ok"] = (outcome.config.is_some() && steps.iter().all(CheckResult::is_ok)).into();
                print_line(&serde_json::to_string_pretty(&report)?);
            }
            Format::Text => {
                if self.online && outcome.config.is_some() {
                    print_line(&summarize(&steps));
                }
                for (kind, diagnostics) in
                    [("error", &outcome.errors), ("warning", &outcome.warnings), ("note", &outcome.notes)]
                {
                    for diagnostic in diagnostics.iter().filter(|_| !(self.quiet && kind == "note")) {
                        print_line(&format!("{diagnostic} ({kind})"));
                    }
                }
                if let Some(description) = outcome.description().filter(|_| !self.quiet) {
                    print_line(description.to_string().trim_end());
                }
                for step in steps.iter().filter(|step| !self.quiet || step.status > CheckStatus::Skipped) {
                    let outcome = match step.status {
                        CheckStatus::Ok | CheckStatus::Skipped => "ok",
                        CheckStatus::Warning => "warning",
                        CheckStatus::Failed => "FAILED",
                    };
                    print_line(&format!("{}: {} {outcome}: {}", step.subject(), step.step, step.describe()));
                }
            }
        }
        Ok(match () {
            () if outcome.config.is_none() => Exit::ConfigInvalid,
            () if steps.iter().all(CheckResult::is_ok) => Exit::Ok,
            () => Exit::Remote,
        })
    }
}

/// Formats the result of all steps in one line, the first failures with their reasons.
fn summarize(steps: &[CheckResult]) -> String {
    let failed: Vec<&CheckResult> = steps.iter().filter(|step| !step.is_ok()).collect();
    let warnings = steps.iter().filter(|step| step.status == CheckStatus::Warning).count();
    let Some(first) = failed.first() else {
        let warned = if warnings == 0 {
            String::new()
        } else {
            format!(", {} to read", format_count(warnings as u64, "warning"))
        };
        return format!("online: ok, {}{warned}", format_count(steps.len() as u64, "step"));
    };
    let more = if failed.len() == 1 { String::new() } else { format!("; and {} more", failed.len() - 1) };
    format!("online: FAILED: {}: {}: {}{more}", first.subject(), first.step, first.describe())
}

/// A step in the JSON of `check`.
fn online_step(step: &CheckResult) -> serde_json::Value {
    let mut value = json!({ "part": step.part, "step": step.step, "ok": step.is_ok(), "found": step.describe() });
    if let Some(name) = &step.name {
        let key = if step.part == "identity" { "identity" } else { "session" };
        value[key] = name.as_str().into();
    }
    value
}

fn try_online(config: &Config) -> anyhow::Result<Vec<CheckResult>> {
    keyward_machine::os::forbid_core_dumps()?;
    let limits = Limits::default();
    let _line = ProgressLine::start("waiting for the first answer");
    let progress = Progress::new(|step| show_progress(&format!("{step} is done; waiting for the next answer")));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        let mut results = Vec::new();
        for session in &config.sessions {
            results.extend(check_session(config, session, limits, &progress).await);
        }
        for identity in &config.identities {
            results.extend(check_tool_identity(identity, limits, &progress).await);
        }
        #[cfg(feature = "gateway")]
        if let Some(gateway) = &config.gateway {
            results.extend(Box::pin(check_gateway(gateway, &config.sessions, limits, &progress)).await);
        }
        results
    }))
}
