//! `keyward migrate`: prints another agent's configuration as keyward's, and a report of each key on standard error.

use std::io::{Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use keyward_config::migrate::{self, Migrated, Outcome};
use keyward_config::systemd::{UnitNeeds, is_system_folder};
use keyward_config::{self as config, Environment, Purpose};
use keyward_hcl as hcl;
use keyward_machine::atomic_file::{self, Attributes};
use keyward_machine::os;
use keyward_telemetry::wording::format_count;

use super::init::folder_commands;
use super::setup_files::{self, Destination, Existing, SetupFile};
use super::{Exit, print, print_error};

/// Convert a configuration of Vault Agent, Vault Proxy, OpenBao Agent or consul-template to keyward's.
#[derive(Debug, Args)]
pub(super) struct Migrate {
    /// Configuration of Vault Agent or consul-template in HCL or JSON: files, folders (of Vault Agent their *.hcl and *.json
    /// files, of consul-template all files and sub-folders), or - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// File to write keyward's configuration to; an existing file is kept [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Folder to write the drop-in of the systemd unit to, and a polkit rule where a command reloads a service; an existing
    /// file is kept
    #[arg(long, value_name = "DIR")]
    systemd_drop_in: Option<PathBuf>,
    /// Treat the server as OpenBao
    #[arg(long)]
    openbao: bool,
    /// Accept the actions that the report lists: exit with 0
    #[arg(long)]
    accept: bool,
}

impl Migrate {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let inputs = Inputs::read(&self.files)?;
        let mut migrated = match migrate::migrate_all(&inputs.contents(), self.openbao) {
            Ok(migrated) => migrated,
            Err((number, error)) => {
                print_error(&format!("{}: {error}", inputs.texts[number].0));
                return Ok(Exit::ConfigInvalid);
            }
        };
        let name = self.out.clone().unwrap_or_else(|| "(what was written)".into());
        let outcome = config::load_text(&name, &migrated.toml, &Environment::current(), Purpose::Check);
        let unit = UnitNeeds::new(&outcome).map(|needs| (setup_files::unit_files(&needs), needs));
        // Nothing is written before all is known to be free, so that the command can be repeated.
        if let Some(out) = self.out.iter().find(|out| out.symlink_metadata().is_ok()) {
            print_error(&format!("{} exists already; name another file, or move it away", out.display()));
            return Ok(Exit::AlreadyExists);
        }
        if let (Some(folder), Some((files, _))) = (&self.systemd_drop_in, &unit)
            && let Err(exit) = setup_files::require_free(files, &Destination::Folder(folder.clone()), ADVICE)
        {
            return Ok(exit);
        }
        match &self.out {
            None => print(migrated.toml.as_bytes()),
            Some(out) => write_config(out, &migrated.toml, mode_of(&inputs.files)?)?,
        }
        if let Some(folder) = &self.systemd_drop_in
            && let Err(exit) = write_unit_files(unit.as_ref(), folder)?
        {
            return Ok(exit);
        }
        migrated.add_findings(&outcome.errors, &outcome.notes);
        let names: Vec<&str> = inputs.texts.iter().map(|(name, _)| name.as_str()).collect();
        let actions = report(&migrated, &names);
        for (path, reason) in &inputs.skipped {
            print_report_line(&format!("skipped {}: {reason}", path.display()));
        }
        for diagnostic in &outcome.warnings {
            print_report_line(&format!("{diagnostic} (warning)"));
        }
        Ok(match () {
            () if !outcome.errors.is_empty() => {
                print_report_line(
                    "the written configuration has errors: keyward does not start before they are corrected",
                );
                Exit::ConfigInvalid
            }
            () if actions > 0 && !self.accept => {
                print_report_line("take these actions, or run it again with --accept");
                Exit::ActionRequired
            }
            () => Exit::Ok,
        })
    }
}

/// Advice about a file of the unit that exists.
const ADVICE: &str = "name another folder";

/// Writes the new configuration, for the service's group if this user may do so.
fn write_config(out: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    let group = if is_root { os::group_id("keyward")? } else { None };
    atomic_file::replace(out, text.as_bytes(), &Attributes { mode, owner: None, group })?;
    let path_text = out.display();
    print_report_line(&format!("wrote {path_text}, mode {mode:04o}"));
    if group.is_none() || mode & 0o040 == 0 {
        print_report_line(&format!(
            "  then, on the machine: sudo chown root:keyward {path_text} && sudo chmod 0640 {path_text}"
        ));
    }
    Ok(())
}

/// Returns the mode of the new configuration: 0640, less what the narrowest of these files denies, as a secret in them is in
/// the new one too.
fn mode_of(files: &[PathBuf]) -> anyhow::Result<u32> {
    let mut mode = 0o640;
    for file in files {
        let failed = || format!("cannot read {}", file.display());
        mode &= file.metadata().with_context(failed)?.permissions().mode();
    }
    Ok(mode | 0o600)
}

/// Writes the files that the systemd unit needs for the new configuration; `None` for one with errors. Standard output may be
/// the configuration.
fn write_unit_files(unit: Option<&(Vec<SetupFile>, UnitNeeds)>, folder: &Path) -> anyhow::Result<Result<(), Exit>> {
    let Some((files, needs)) = unit else {
        print_report_line("no drop-in is written: the configuration has errors");
        return Ok(Ok(()));
    };
    if files.is_empty() {
        print_report_line("the packaged systemd unit needs no drop-in");
    }
    let destination = Destination::Folder(folder.to_owned());
    let written = setup_files::write(files, &destination, Existing::Keep(ADVICE), print_report_line)?;
    if written.is_ok() {
        for file in files {
            print_report_line(&format!("  its place on the machine: {}", file.path.display()));
        }
        print_folder_commands(needs);
    }
    Ok(written)
}

/// Prints the commands by which user keyward can write the folders of the files: the other agent may have run as root. Others
/// reach the files in a new folder as far as the files' modes allow, as with the other agent.
fn print_folder_commands(needs: &UnitNeeds) {
    let is_shared = |folder: &Path| is_system_folder(folder) || ["/tmp", "/var/tmp"].map(Path::new).contains(&folder);
    let folders: Vec<_> = needs.writable.iter().filter(|folder| !is_shared(folder)).collect();
    if !folders.is_empty() {
        print_report_line("before keyward starts on the machine, let its user write the folders:");
    }
    for folder in folders {
        for command in folder_commands(folder, "755", "keyward", None).lines() {
            print_report_line(&format!("  {command}"));
        }
    }
}

/// Prints the report of each key, required actions first; returns the number of actions.
fn report(migrated: &Migrated, names: &[&str]) -> usize {
    let mut counts = Vec::new();
    for (outcome, title) in [
        (Outcome::Action, "ACTION REQUIRED"),
        (Outcome::Changed, "changed"),
        (Outcome::NotSupported, "dropped"),
        (Outcome::Kept, "kept"),
    ] {
        let lines: Vec<_> = migrated.report.iter().filter(|line| line.outcome == outcome).collect();
        counts.push(lines.len());
        if lines.is_empty() {
            continue;
        }
        print_report_line(&format!("{title}:"));
        for line in lines {
            let detail = if line.detail.is_empty() { String::new() } else { format!(": {}", line.detail) };
            let name = names[line.file];
            let at = line.at;
            print_report_line(&format!("  {name}:{}:{}: {}{detail}", at.line, at.column, line.key));
        }
    }
    let actions = counts[0];
    let changed = counts[1];
    let dropped = counts[2];
    let unchanged = counts[3];
    let required = format_count(actions as u64, "action");
    print_report_line(&format!("{required} required, {changed} changed, {dropped} dropped, {unchanged} kept"));
    actions
}

fn print_report_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The other agent's configuration. It may hold secrets, so it has no Debug.
#[derive(Default)]
struct Inputs {
    /// Texts, each with the name of its file.
    texts: Vec<(String, String)>,
    /// Files of the texts; standard input has none.
    files: Vec<PathBuf>,
    /// Files and folders in a given folder that are not read, each with the reason.
    skipped: Vec<Skipped>,
}

/// A file or folder that is not read, and the reason.
type Skipped = (PathBuf, &'static str);

/// Lists the files of a folder that an agent reads, in its order, and adds the others to the skipped ones.
type ListFiles = fn(&Path, &mut Vec<Skipped>) -> std::io::Result<Vec<PathBuf>>;

impl Inputs {
    /// Reads files and folders: folders as that agent does whose configuration it is.
    fn read(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut standard_input = String::new();
        if paths.iter().any(|path| path == Path::new("-")) {
            standard_input = read(std::io::stdin()).context("cannot read standard input")?;
        }
        let mut inputs = Self::read_by(vault_agent_files, paths, &standard_input)?;
        if paths.iter().any(|path| path.is_dir()) && migrate::is_consul_template(&inputs.contents()) {
            inputs = Self::read_by(consul_template_files, paths, &standard_input)?;
        }
        anyhow::ensure!(!inputs.texts.is_empty(), "{} holds no configuration file", paths[0].display());
        Ok(inputs)
    }

    fn read_by(list: ListFiles, paths: &[PathBuf], standard_input: &str) -> anyhow::Result<Self> {
        let mut inputs = Self::default();
        for path in paths {
            if path == Path::new("-") {
                inputs.texts.push(("(standard input)".to_owned(), standard_input.to_owned()));
                continue;
            }
            let files = if path.is_dir() {
                let failed = || format!("cannot list the folder {}", path.display());
                list(path, &mut inputs.skipped).with_context(failed)?
            } else {
                vec![path.clone()]
            };
            if files.is_empty() {
                inputs.skipped.push((path.clone(), "it holds no configuration file"));
            }
            for file in files {
                let name = file.display().to_string();
                let text = std::fs::File::open(&file).and_then(read).with_context(|| format!("cannot read {name}"))?;
                inputs.texts.push((name, text));
                inputs.files.push(file);
            }
        }
        Ok(inputs)
    }

    fn contents(&self) -> Vec<&str> {
        self.texts.iter().map(|(_, text)| text.as_str()).collect()
    }
}

/// Lists the files that Vault Agent, Vault Proxy and OpenBao's agents read (`LoadConfigDir` in command/agent/config/config.go).
fn vault_agent_files(folder: &Path, skipped: &mut Vec<Skipped>) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        // Emacs locks a file by such a name.
        let is_lock = name.starts_with(b".#");
        if (name.ends_with(b".hcl") || name.ends_with(b".json")) && !is_lock && path.is_file() {
            files.push(path);
        } else {
            skipped.push((path, "Vault Agent reads only *.hcl and *.json files of the folder itself"));
        }
    }
    Ok(files)
}

/// Lists the files that consul-template reads: of any name, and in sub-folders (`FromPath` in config/config.go).
fn consul_template_files(folder: &Path, skipped: &mut Vec<Skipped>) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        if path.is_file() {
            files.push(path);
        } else if path.is_dir() && !path.is_symlink() {
            files.append(&mut consul_template_files(&path, skipped)?);
        } else {
            skipped.push((path, "consul-template reads only files, and follows no symlink to a folder"));
        }
    }
    Ok(files)
}

/// Returns the paths of a folder's entries in the order of their names.
fn entries(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths)
}

fn read(source: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    // One byte more than the limit, so that the parser reports a file that is too long.
    source.take(hcl::MAX_SIZE as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
