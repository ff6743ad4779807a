//! `keyward doctor`: checks everything on this machine and around it, a line a check, with what mends each failure.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use keyward_app::check_result::{CheckResult, CheckStatus, Progress};
use keyward_app::doctor::{self, Diagnosis, create_bundle, diagnose, write_bundle};
use keyward_config::Environment;
use keyward_telemetry::error_code::ErrorCode;
use serde_json::json;
use tokio::time::Instant;

use super::agent_listener::find_contact;
use super::output::strip_control_chars;
use super::progress::{clear_progress, show_progress};
use super::{ConfigFiles, Exit, Format, command_config, print, print_line};

/// Check configuration, machine and servers, and name the remedies.
#[derive(Debug, Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    files: ConfigFiles,
    /// Check file rights for this user, by name or id [default: `User=` of the unit if run as root, else the current user]
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,
    /// Name of the service's unit, or path of its file; its drop-ins are read too
    #[arg(long, value_name = "UNIT", default_value = "keyward.service")]
    unit: String,
    /// Write a new tar file with redacted configuration, results, status, metrics, units, log and system facts
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
}

impl Doctor {
    pub(super) fn run(mut self) -> anyhow::Result<Exit> {
        keyward_machine::os::forbid_core_dumps()?;
        // Remedies are run in other folders, and the unit names whole paths.
        for path in &mut self.files.config {
            *path = std::path::absolute(&*path).with_context(|| format!("cannot resolve {}", path.display()))?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcome = runtime.block_on(self.diagnose());
        // A resolver that hangs is not waited for.
        runtime.shutdown_background();
        outcome
    }

    async fn diagnose(&self) -> anyhow::Result<Exit> {
        let begun = Instant::now();
        let environment = Environment::current();
        let cannot = |path: &PathBuf| format!("cannot write the bundle {}", path.display());
        let bundle = match &self.bundle {
            None => None,
            Some(path) => Some((path, create_bundle(path).with_context(|| cannot(path))?)),
        };
        let options = doctor::Options {
            files: self.files.config.clone(),
            environment: environment.clone(),
            unit: self.unit.clone(),
            user: self.user.clone(),
            load: &|environment, purpose| command_config::load_in(&self.files.config, environment, purpose),
            contact: &find_contact,
            is_demo: command_config::is_demo(&self.files.config, &environment),
            progress: progress(),
        };
        let diagnosis = diagnose(&options).await;
        clear_progress();
        let diagnosis = diagnosis?;
        let seconds = begun.elapsed().as_secs_f32();
        let report = format_report(&diagnosis, seconds);
        let bundle = match bundle {
            None => None,
            Some((path, file)) => {
                let written = write_bundle(file, &self.files.config, &environment, &diagnosis, &report).await;
                Some((path, written.with_context(|| cannot(path))?))
            }
        };
        match self.format {
            Format::Json => {
                let mut value = json!({
                    "ok": diagnosis.worst() != CheckStatus::Failed,
                    "user": diagnosis.user,
                    "unit": diagnosis.unit.name,
                    "checks": diagnosis.results,
                });
                if let Some((path, contents)) = &bundle {
                    value["bundle"] = json!({ "file": path, "contents": contents });
                }
                print_line(&serde_json::to_string_pretty(&value)?);
            }
            Format::Text => {
                print(report.as_bytes());
                if let Some((path, contents)) = &bundle {
                    print_line(&format!("\nbundle {} (mode 0600):", path.display()));
                    for entry in contents {
                        print_line(&format!("  {:>8}  {}", entry.bytes, entry.name));
                    }
                }
            }
        }
        Ok(exit(&diagnosis.results))
    }
}

/// The exit code of the first failure: of the configuration, of this machine, or of what answers elsewhere.
fn exit(results: &[CheckResult]) -> Exit {
    let failed = |parts: &[&str]| results.iter().any(|result| !result.is_ok() && parts.contains(&result.part));
    if results.iter().all(CheckResult::is_ok) {
        Exit::Ok
    } else if failed(&["configuration"]) {
        Exit::ConfigInvalid
    } else if failed(&["session", "gateway", "acl"]) {
        Exit::Remote
    } else {
        Exit::Failed
    }
}

fn format_report(diagnosis: &Diagnosis, seconds: f32) -> String {
    let mut text = String::new();
    for result in &diagnosis.results {
        let word = match result.status {
            CheckStatus::Ok => "ok",
            CheckStatus::Skipped => "skipped",
            CheckStatus::Warning => "warning",
            CheckStatus::Failed => "FAILED",
        };
        let line = ErrorCode::tag(result.code, &format!("{}: {}: {}", result.subject(), result.step, result.message));
        let _ = writeln!(text, "{word:8}{}", strip_control_chars(&line).replace(['\n', '\t'], " "));
        if let Some(fix) = &result.fix {
            // A further line is a line of a unit's file.
            let _ = writeln!(
                text,
                "        fix: {}",
                strip_control_chars(fix).replace('\t', " ").replace('\n', "\n             ")
            );
        }
    }
    let count = |status| diagnosis.results.iter().filter(|result| result.status == status).count();
    let [ok, skipped, warning, failed] =
        [CheckStatus::Ok, CheckStatus::Skipped, CheckStatus::Warning, CheckStatus::Failed].map(count);
    let _ = writeln!(
        text,
        "\n{} checks as user {} in {seconds:.1} s: {ok} ok, {failed} failed, {warning} with a warning, {skipped} skipped",
        diagnosis.results.len(),
        diagnosis.user
    );
    text
}

/// Shows on a terminal which check has ended last.
fn progress() -> Progress {
    let count = std::sync::atomic::AtomicUsize::new(0);
    Progress::new(move |step| {
        let count = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        show_progress(&format!("{count} checks; {step}"));
    })
}
