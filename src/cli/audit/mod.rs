//! `keyward audit`: verifies, shows and follows the files of an audit.

mod follow;
mod verify;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use keyward_machine::secret;
use keyward_telemetry::audit::{
    AuditFiles, AuditKey, DisplayedRecord, LinePosition, Verifier, is_cut_line, list_files, read_lines,
};

use super::output::strip_control_chars;
use super::{Exit, Format, print_error, print_line};

/// Verify, show and follow audits.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum Audit {
    /// Verify that no record was changed, removed or inserted
    #[command(
        after_help = "Examples:\n  keyward audit verify /var/log/keyward/audit.jsonl --key-file /etc/keyward/audit.key\n  journalctl -o cat -t keyward-audit | keyward audit verify - --key-file audit.key --checkpoint checkpoint.json"
    )]
    Verify(verify::Verify),
    /// Show records, oldest first
    #[command(after_help = "Example:\n  keyward audit show /var/log/keyward/audit.jsonl --decision refused")]
    Show {
        #[command(flatten)]
        records: Records,
    },
    /// Show records as they are written
    #[command(after_help = "Example:\n  keyward audit follow /var/log/keyward/audit.jsonl")]
    Follow {
        #[command(flatten)]
        records: Records,
    },
}

/// The records that are shown.
#[derive(Debug, Args)]
pub(super) struct Records {
    /// Audit file; older ones beside it are read first. - reads standard input
    file: PathBuf,
    /// Show only granted or refused requests
    #[arg(long, value_parser = ["granted", "refused"])]
    decision: Option<String>,
    /// Show only this session
    #[arg(long)]
    session: Option<String>,
    /// Show only this route
    #[arg(long, value_parser = ROUTES)]
    route: Option<String>,
    /// Show only the token of this accessor; needs --key-file
    #[arg(long, requires = "key_file")]
    accessor: Option<String>,
    /// Key of the audit
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Output format; json is the lines as they are
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
}

/// Routes of records.
const ROUTES: [&str; 12] = [
    "token",
    "check",
    "retry",
    "refresh",
    "rotate",
    "status",
    "proxy",
    "identity",
    "systemd_credential",
    "acl",
    "gateway",
    "other",
];

impl Audit {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Verify(verify) => verify.run(),
            Self::Show { records } => show(&records),
            Self::Follow { records } => follow::follow(&records.file, &records.filter()?),
        }
    }
}

/// Shows the records of all files. Fails where a file is missing, or a line is neither a record nor the beginning of one; with
/// the key also where the chain was changed.
fn show(records: &Records) -> anyhow::Result<Exit> {
    let filter = records.filter()?;
    let key = records.key_file.as_deref().map(read_key).transpose()?;
    let mut verifier = key.as_ref().map(|key| Verifier::new(key, Vec::new()));
    let found = files(&records.file);
    let (mut record_count, mut other_count, mut forged) = (0_u64, 0_u64, Vec::new());
    for file in &found.files {
        let mut position = LinePosition { file: file.display().to_string().into(), line: 0 };
        read(file, |line| {
            position.line += 1;
            let is_record = filter.show(line);
            record_count += u64::from(is_record);
            if !is_record && !line.is_empty() {
                other_count += 1;
                if !is_cut_line(line) && forged.len() < MAX_FORGED {
                    forged.push(position.clone());
                }
            }
            if let Some(verifier) = &mut verifier {
                verifier.verify_line(&position, line);
            }
        })?;
    }
    let is_audit = record_count > 0 || other_count == 0;
    anyhow::ensure!(is_audit, "{} holds no record of an audit", records.file.display());
    let is_complete = !report_missing(&found);
    for position in &forged {
        print_error(&format!("{position}: the line is not a record, and no part of one: it was inserted or changed"));
    }
    let is_changed = verifier.is_some_and(|verifier| !verifier.finish().is_intact());
    if is_changed {
        print_error("records were changed, removed or inserted; keyward audit verify shows where");
    }
    Ok(if forged.is_empty() && is_complete && !is_changed { Exit::Ok } else { Exit::Failed })
}

/// Places of lines that are printed one by one.
const MAX_FORGED: usize = 20;

/// Prints an error for each missing file; returns true if there is one.
fn report_missing(found: &AuditFiles) -> bool {
    for path in &found.missing {
        print_error(&format!("{}: the file is missing, although an older one is there", path.display()));
    }
    !found.missing.is_empty()
}

impl Records {
    fn filter(&self) -> anyhow::Result<Filter<'_>> {
        let key = self.key_file.as_deref().map(read_key).transpose()?;
        let accessor = self.accessor.as_ref().zip(key).map(|(accessor, key)| key.hash(accessor));
        Ok(Filter { records: self, accessor })
    }
}

/// Conditions for a shown record, and its form.
#[derive(Debug)]
struct Filter<'a> {
    records: &'a Records,
    /// The accessor as records have it.
    accessor: Option<String>,
}

impl Filter<'_> {
    /// Prints a line if it fits. Returns whether it is a record.
    fn show(&self, line: &[u8]) -> bool {
        let Some(record) = DisplayedRecord::parse(line) else {
            if !line.is_empty() {
                print_line("(a line that is not a record)");
            }
            return false;
        };
        let Records { decision, session, route, format, .. } = self.records;
        let fits = |filter: &Option<String>, value: &str| filter.as_ref().is_none_or(|filter| filter == value);
        if fits(decision, &record.decision)
            && fits(session, &record.session)
            && fits(route, &record.route)
            && fits(&self.accessor, &record.accessor)
        {
            match format {
                Format::Text => print_line(&strip_control_chars(&record.format()).replace(['\n', '\t'], " ")),
                Format::Json => print_line(&String::from_utf8_lossy(line)),
            }
        }
        true
    }
}

/// The files to read; `-` is standard input.
fn files(path: &Path) -> AuditFiles {
    if path == Path::new("-") {
        return AuditFiles { files: vec![path.to_owned()], missing: Vec::new() };
    }
    list_files(path)
}

/// Reads the lines of a file, or of standard input.
fn read(path: &Path, take: impl FnMut(&[u8])) -> anyhow::Result<()> {
    let failed = || format!("cannot read {}", path.display());
    if path == Path::new("-") {
        return read_lines(&mut std::io::stdin().lock(), take).context("cannot read standard input");
    }
    let file = File::open(path).with_context(failed)?;
    read_lines(&mut BufReader::new(file), take).with_context(failed)
}

fn read_key(path: &Path) -> anyhow::Result<AuditKey> {
    Ok(AuditKey::new(&secret::read_file(path)?))
}
