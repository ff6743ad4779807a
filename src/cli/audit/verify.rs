//! `keyward audit verify`: findings with their places, and the exit code for scripts.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use keyward_telemetry::audit::{AuditFiles, Checkpoint, LinePosition, Verifier, VerifyReport};
use keyward_telemetry::wording::format_count;
use serde_json::json;

use super::{files, read, read_key, report_missing};
use crate::cli::{Exit, Format, output, print_error, print_line, print_warning};

/// Verify the records of an audit.
#[derive(Debug, Args)]
pub(in crate::cli) struct Verify {
    /// Audit file; older ones beside it are verified first. - reads standard input
    file: PathBuf,
    /// Key of the audit
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Checkpoints that were kept elsewhere, one in each line; repeatable
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,
    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
}

impl Verify {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let key = read_key(&self.key_file)?;
        let mut checkpoints = Vec::new();
        for path in &self.checkpoint {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            checkpoints.extend(Checkpoint::parse_all(&text).with_context(|| format!("{}", path.display()))?);
        }
        let mut verifier = Verifier::new(&key, checkpoints);
        let found = files(&self.file);
        for path in &found.files {
            let mut position = LinePosition { file: path.display().to_string().into(), line: 0 };
            read(path, |line| {
                position.line += 1;
                verifier.verify_line(&position, line);
            })?;
        }
        let report = verifier.finish();
        match self.format {
            Format::Json => output::json(&to_json(&report, &found)),
            Format::Text => {
                report_missing(&found);
                print(&report, &self.key_file);
            }
        }
        Ok(if is_intact(&report, &found) { Exit::Ok } else { Exit::Failed })
    }
}

/// An empty audit proves nothing.
fn is_intact(report: &VerifyReport, found: &AuditFiles) -> bool {
    report.is_intact() && report.verified > 0 && found.missing.is_empty()
}

fn print(report: &VerifyReport, key_file: &Path) {
    for note in &report.notes {
        print_line(&format!("note: {note}"));
    }
    if report.lost > 0 {
        print_warning(&format!("the writer itself counted {} records that it could not keep", report.lost));
    }
    for finding in report.findings.iter().take(MAX_FINDINGS) {
        print_error(&finding.to_string());
    }
    if report.findings.len() > MAX_FINDINGS {
        print_error(&format!("and {} more", report.findings.len() - MAX_FINDINGS));
    }
    for missing in &report.missing_checkpoints {
        print_error(&VerifyReport::describe_missing(missing));
    }
    if report.verified == 0 {
        print_error(&format!(
            "no record verifies with the key in {}; check that it is this audit's key",
            key_file.display()
        ));
    }
    let end = match &report.last {
        Some((chain, seq)) => {
            let stop = if report.stopped { ", an orderly stop" } else { "" };
            format!("; chain {chain} ends with record {seq}{stop}")
        }
        None => String::new(),
    };
    let checkpoints = match report.checkpoints {
        0 => String::new(),
        count => format!(", {} found", format_count(count, "checkpoint")),
    };
    let lines = format_count(report.lines, "line");
    let records = format_count(report.verified, "record");
    print_line(&format!("{lines}, {records} verified{checkpoints}{end}"));
}

fn to_json(report: &VerifyReport, found: &AuditFiles) -> serde_json::Value {
    let finding = |finding: &keyward_telemetry::audit::AuditFinding| json!({"file": &*finding.position.file, "line": finding.position.line, "finding": finding.to_string()});
    json!({
        "intact": is_intact(report, found),
        "missing_files": found.missing.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "lines": report.lines,
        "verified": report.verified,
        "lost": report.lost,
        "checkpoints": report.checkpoints,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "missing_checkpoints": report.missing_checkpoints.iter().map(VerifyReport::describe_missing).collect::<Vec<_>>(),
        "notes": report.notes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "chain": report.last.as_ref().map(|(chain, _)| &**chain),
        "last": report.last.as_ref().map(|(_, seq)| seq),
        "stopped": report.stopped,
    })
}

/// Findings that are printed one by one.
const MAX_FINDINGS: usize = 20;
