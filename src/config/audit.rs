//! `[audit.NAME]`: a device that records the requests that keyward serves and refuses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyward_machine::atomic_file::Attributes;
use keyward_telemetry::audit::{AuditFileOptions, AuditOptions, AuditTarget, Fsync, OnFailure};
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::format_duration;

use super::diagnostic::Location;
use super::reader::Reader;
use super::sink::file_path;

/// Default mode of an audit file.
const DEFAULT_FILE_MODE: u32 = 0o600;

/// Minimum length of the key, in bytes.
const MIN_KEY_BYTES: usize = 32;

/// Default size at which a new file begins, in MiB.
const DEFAULT_SIZE_MIB: usize = 64;

/// Default number of older files.
const DEFAULT_KEEP: u32 = 8;

/// Socket of journald's native protocol.
const JOURNALD_SOCKET: &str = "/run/systemd/journal/socket";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Socket,
    Journald,
}

const KINDS: [(&str, Kind); 3] = [("file", Kind::File), ("socket", Kind::Socket), ("journald", Kind::Journald)];

/// Reads all devices. Two may not share a file or a socket.
pub(super) fn read_all(tables: Vec<(String, Reader<'_>)>) -> Vec<AuditOptions> {
    let mut used: BTreeMap<PathBuf, (Location, String)> = BTreeMap::new();
    let mut devices = Vec::new();
    for (name, mut reader) in tables {
        let at = reader.locate("path").unwrap_or(reader.at);
        let diagnostics = reader.scope.diagnostics;
        let path = reader.path.clone();
        let Some(device) = read(name.clone(), reader) else { continue };
        let target = match &device.target {
            AuditTarget::File(file) => file.path.clone(),
            AuditTarget::Socket(path) | AuditTarget::Journald(path) => path.clone(),
        };
        if !target.as_os_str().is_empty()
            && let Some((first, other)) = used.insert(target, (at, name))
        {
            let message =
                (ErrorCode::DuplicateSetting, format!("also of audit {other}, at {}", diagnostics.name(first)));
            diagnostics.error(at, &format!("{path}.path"), message, "give each audit a file or a socket of its own");
        }
        devices.push(device);
    }
    devices
}

fn read(name: String, mut reader: Reader<'_>) -> Option<AuditOptions> {
    let kind = reader.choice("kind", &KINDS).unwrap_or(Kind::File);
    let target = match kind {
        Kind::File => AuditTarget::File(file(&mut reader)),
        Kind::Socket => AuditTarget::Socket(socket(&mut reader).unwrap_or_default()),
        Kind::Journald => {
            let path = if reader.locate("path").is_some() { socket(&mut reader) } else { None };
            AuditTarget::Journald(path.unwrap_or_else(|| Path::new(JOURNALD_SOCKET).to_owned()))
        }
    };
    if kind != Kind::File {
        for key in ["max_size_mib", "keep", "mode", "owner", "group", "fsync"] {
            if let Some(at) = reader.locate(key) {
                reader.error(at, key, "only allowed for kind = \"file\"", "leave it out");
            }
        }
    }
    if reader.locate("key_file").is_none() {
        reader.missing("key_file", "the file with the key of the audit; create one with: openssl rand -hex 32");
    }
    let key = reader.secret("key_file", MIN_KEY_BYTES);
    let fail = [("closed", OnFailure::Closed), ("open", OnFailure::Open)];
    let on_failure = reader.choice("fail", &fail).unwrap_or(OnFailure::Closed);
    let checkpoint_file = reader.text("checkpoint_file").and_then(|text| {
        let path = reader.parse(&text, file_path)?;
        reader.check_parent_folder(&text, &path);
        Some(path)
    });
    let second = Duration::from_secs(1);
    let day = Duration::from_hours(24);
    let checkpoint_records = reader.number("checkpoint_records", 1..=1_000_000).unwrap_or(1000) as u64;
    let checkpoint_interval = reader.duration("checkpoint_interval", Duration::from_mins(5), second..=day);
    reader.finish();
    let key = key?;
    Some(AuditOptions { name, key, on_failure, target, checkpoint_file, checkpoint_records, checkpoint_interval })
}

fn file(reader: &mut Reader<'_>) -> AuditFileOptions {
    let path = reader.required("path", "the file to write, such as \"/var/log/keyward/audit.jsonl\"");
    let path = path.and_then(|text| {
        let path = reader.parse(&text, file_path)?;
        reader.check_parent_folder(&text, &path);
        reader.check_folder_not_shared(&text, &path);
        Some(path)
    });
    let fsync = [("always", Fsync::Always), ("interval", Fsync::Interval), ("never", Fsync::Never)];
    let mode = reader.private_mode(DEFAULT_FILE_MODE, "the records");
    let owner = reader.user("owner");
    let group = reader.group("group");
    AuditFileOptions {
        path: path.unwrap_or_default(),
        attributes: Attributes { mode, owner, group },
        max_bytes: reader.number("max_size_mib", 1..=4096).unwrap_or(DEFAULT_SIZE_MIB) as u64 * 1024 * 1024,
        keep: reader.number("keep", 1..=1000).and_then(|keep| u32::try_from(keep).ok()).unwrap_or(DEFAULT_KEEP),
        fsync: reader.choice("fsync", &fsync).unwrap_or(Fsync::Interval),
    }
}

fn socket(reader: &mut Reader<'_>) -> Option<PathBuf> {
    let text = reader.required("path", "the socket that the collector listens on")?;
    reader.parse(&text, file_path)
}

/// Describes a device for `keyward check`, one clause per entry.
pub(super) fn describe(options: &AuditOptions) -> Vec<String> {
    let target = match &options.target {
        AuditTarget::File(file) => {
            let size = file.max_bytes / (1024 * 1024);
            format!(
                "records requests in {}, at most {size} MiB, and keeps {} older files",
                file.path.display(),
                file.keep
            )
        }
        AuditTarget::Socket(path) => format!("sends a record of each request to the collector at {}", path.display()),
        AuditTarget::Journald(_) => "sends a record of each request to journald".to_owned(),
    };
    let failure = match options.on_failure {
        OnFailure::Closed => "refuses requests while records cannot be kept",
        OnFailure::Open => "serves requests while records cannot be kept, and counts them",
    };
    let every = format_duration(options.checkpoint_interval);
    let exported = match &options.checkpoint_file {
        Some(file) => format!("to {} and to the log", file.display()),
        None => "to the log".to_owned(),
    };
    let checkpoints =
        format!("exports a checkpoint {exported}, after {} records or {every}", options.checkpoint_records);
    vec![target, failure.to_owned(), checkpoints]
}
