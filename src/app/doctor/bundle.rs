//! Writes a tar file for support: results, redacted configuration and units, status, metrics, log and system facts.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use keyward_config::{Environment, Need, PathUse};
use keyward_machine::secret;
use keyward_telemetry::time_format::format_rfc3339;

use super::diagnosis::Diagnosis;
use super::redact::{Redactor, redact_toml, redact_unit};

/// A file of the bundle.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BundleEntry {
    /// Name in the archive.
    pub name: String,
    /// Size in bytes.
    pub bytes: usize,
}

/// Creates the file of a bundle with mode 0600. An existing one may have another mode, or readers.
pub fn create_bundle(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Writes the bundle; returns its contents. `report` is what the terminal shows.
pub async fn write_bundle(
    file: File,
    files: &[PathBuf],
    environment: &Environment,
    diagnosis: &Diagnosis,
    report: &str,
) -> io::Result<Vec<BundleEntry>> {
    let redactor = redactor(diagnosis, environment);
    let mut texts = vec![
        ("doctor.txt".to_owned(), report.to_owned()),
        ("doctor.json".to_owned(), serde_json::to_string_pretty(&diagnosis.results)?),
        ("system.txt".to_owned(), system_facts()),
    ];
    for (index, file) in config_files(files).iter().enumerate() {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(file).map_or_else(|error| format!("# {error}\n"), |text| redact_toml(&text));
        texts.push((format!("configuration/{index:02}-{name}"), format!("# {}\n{text}", file.display())));
    }
    for (index, (file, text)) in diagnosis.unit.files.iter().enumerate() {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        texts.push((format!("unit/{index:02}-{name}"), format!("# {}\n{}", file.display(), redact_unit(text))));
    }
    if let Some(agent) = &diagnosis.agent {
        texts.push(("status.json".to_owned(), serde_json::to_string_pretty(&agent.status)?));
        texts.push(("metrics.txt".to_owned(), agent.metrics.clone()));
    }
    if let Some(log) = journal(&diagnosis.unit.name).await {
        texts.push(("journal.txt".to_owned(), log));
    }
    let texts: Vec<_> = texts.into_iter().map(|(name, text)| (name, redactor.apply(&text))).collect();
    write(file, &texts)?;
    Ok(texts.into_iter().map(|(name, text)| BundleEntry { name, bytes: text.len() }).collect())
}

fn write(file: File, texts: &[(String, String)]) -> io::Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut archive = tar::Builder::new(file);
    for (name, text) in texts {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now);
        archive.append_data(&mut header, Path::new("keyward-doctor").join(name), text.as_bytes())?;
    }
    let mut file = archive.into_inner()?;
    file.flush()?;
    file.sync_all()
}

/// Collects values that must not appear in the bundle: secrets in configured files and variables, and token files.
fn redactor(diagnosis: &Diagnosis, environment: &Environment) -> Redactor {
    let mut redactor = Redactor::default();
    let secrets = diagnosis.outcome.needs.iter().filter_map(Need::path);
    for (path, usage) in secrets.filter(|(_, usage)| matches!(usage, PathUse::ReadSecret | PathUse::Replace)) {
        for line in secret::read_lines(path).into_iter().flatten() {
            // A rendered file contains ordinary words: treat only a one-line file as a secret.
            if usage == PathUse::ReadSecret || secret::read_file(path).is_ok() {
                redactor.add(line.expose_secret());
            }
        }
    }
    for reference in diagnosis.outcome.references.values() {
        for part in reference.split("${file:").skip(1) {
            let path = part.split_once('}').map_or(part, |(path, _)| path);
            if let Ok(secret) = secret::read_file(Path::new(path)) {
                redactor.add(secret.expose_secret());
            }
        }
        for part in reference.split("${env:").skip(1) {
            let name = part.split_once('}').map_or(part, |(name, _)| name);
            environment.variables.get(name).into_iter().for_each(|value| redactor.add(value));
        }
    }
    for (name, value) in &environment.variables {
        let name = name.to_ascii_uppercase();
        if ["SECRET", "TOKEN", "PASSWORD", "PASSWD", "KEY", "HEADER", "CREDENTIAL"]
            .iter()
            .any(|word| name.contains(word))
        {
            redactor.add(value);
        }
    }
    redactor
}

/// The files of the configuration: those given, those of given folders, and those of the drop-in folder.
fn config_files(paths: &[PathBuf]) -> Vec<PathBuf> {
    let in_folder = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut files: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
        files.sort();
        files
    };
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() { files.extend(in_folder(path)) } else { files.push(path.clone()) }
    }
    let drop_in = files.iter().find_map(|file| {
        let table: toml::Table = std::fs::read_to_string(file).ok()?.parse().ok()?;
        let folder = table.get("agent")?.get("drop_in")?.as_str()?.to_owned();
        Some(file.parent()?.join(folder))
    });
    files.extend(drop_in.iter().flat_map(|folder| in_folder(folder)));
    files
}

/// Lines of keyward itself from the journal; `None` if it cannot be read. Lines of programs that keyward runs may hold secrets
/// of theirs, and are omitted.
async fn journal(unit: &str) -> Option<String> {
    let mut command = tokio::process::Command::new("journalctl");
    command
        .args(["--no-pager", "--quiet", "--output=short-iso", "--lines=500", "_COMM=keyward"])
        .arg(format!("_SYSTEMD_UNIT={unit}"))
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_millis(1500), command.output()).await.ok()?.ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Release, kernel, distribution, time and memory.
fn system_facts() -> String {
    let uname = rustix::system::uname();
    let text = |value: &std::ffi::CStr| value.to_string_lossy().into_owned();
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let lines_of = |path: &str, names: &[&str]| {
        let text = read(path);
        let lines = text.split_inclusive('\n').filter(|line| names.iter().any(|name| line.starts_with(name)));
        lines.collect::<String>()
    };
    let parts = [
        ("acl", cfg!(feature = "acl")),
        ("gateway", cfg!(feature = "gateway")),
        ("etcd", cfg!(feature = "etcd")),
        ("dev", cfg!(feature = "dev")),
    ];
    let parts: Vec<&str> = parts.into_iter().filter(|(_, built)| *built).map(|(name, _)| name).collect();
    format!(
        "keyward {} ({})\ntime {}\nkernel {} {} {}\n{}{}{}",
        env!("CARGO_PKG_VERSION"),
        parts.join(", "),
        format_rfc3339(SystemTime::now()),
        text(uname.sysname()),
        text(uname.release()),
        text(uname.machine()),
        lines_of("/etc/os-release", &["PRETTY_NAME=", "ID=", "VERSION_ID="]),
        lines_of("/proc/meminfo", &["MemTotal:", "MemAvailable:", "SwapTotal:"]),
        lines_of("/proc/self/limits", &["Max open files", "Max locked memory"]),
    )
}
