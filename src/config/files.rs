//! Finds the files that make a configuration, and reads them into one tree.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use keyward_telemetry::error_code::ErrorCode;
use rustix::fs::{Mode, OFlags};

use super::Environment;
use super::diagnostic::{Diagnostics, Location};
use super::permissions;
use super::references::{has_reference, unescape};
use super::tree::{self, Entry, Table, Value, quote};

/// Maximum size of a configuration file, in bytes.
const MAX_FILE_SIZE: u64 = 1024 * 1024;

/// State of reading: the merged tree, and the files and folders seen so far.
struct FileGatherer<'a> {
    environment: &'a Environment,
    diagnostics: &'a mut Diagnostics,
    tree: Table,
    /// Files read so far, by device and number: one that is named twice is read once.
    files: BTreeSet<(u64, u64)>,
    /// Folders looked at so far.
    folders: BTreeSet<PathBuf>,
}

/// Reads files, and folders of files in name order, then the drop-in folder that they name.
pub(super) fn read_files(paths: &[PathBuf], environment: &Environment, diagnostics: &mut Diagnostics) -> Table {
    let files = BTreeSet::new();
    let folders = BTreeSet::new();
    let mut gathering = FileGatherer { environment, diagnostics, tree: Table::new(), files, folders };
    for path in paths {
        gathering.path(path);
    }
    if let Some((at, folder)) = drop_in(&gathering.tree, gathering.diagnostics) {
        gathering.drop_in(at, &folder);
    }
    gathering.tree
}

impl FileGatherer<'_> {
    fn path(&mut self, path: &Path) {
        if !path.is_dir() {
            return self.file(path);
        }
        let at = self.diagnostics.file(path);
        match toml_files(path) {
            Ok(files) if files.is_empty() => {
                self.diagnostics.unreadable(
                    at,
                    "",
                    "the folder has no *.toml file",
                    "name a file, or create one there",
                );
            }
            Ok(files) => files.iter().for_each(|file| self.file(file)),
            Err(error) => self.diagnostics.unreadable(at, "", format!("cannot be read: {error}"), ""),
        }
    }

    fn drop_in(&mut self, at: Location, folder: &Path) {
        let key = "agent.drop_in";
        self.diagnostics.file(folder);
        let files = match toml_files(folder) {
            Ok(files) => files,
            Err(error) => {
                let message = format!("the folder {} cannot be read: {error}", folder.display());
                return self.diagnostics.missing_on_host(at, key, message, "create it before the agent starts");
            }
        };
        for file in files {
            let mut main_tree = std::mem::take(&mut self.tree);
            self.file(&file);
            let nested = match self.tree.get("agent") {
                Some(Entry { value: Value::Table(agent), .. }) => agent.get("drop_in").map(|entry| entry.key),
                _ => None,
            };
            if let Some(at) = nested {
                self.diagnostics.error(at, key, "not allowed in a drop-in file", "write it in the main file only");
                if let Some(Entry { value: Value::Table(agent), .. }) = self.tree.get_mut("agent") {
                    agent.remove("drop_in");
                }
            }
            tree::merge(&mut main_tree, std::mem::take(&mut self.tree), "", self.diagnostics);
            self.tree = main_tree;
        }
    }

    fn file(&mut self, path: &Path) {
        let at = self.diagnostics.file(path);
        match self.read(path, at) {
            Ok(None) => {}
            Ok(Some(text)) => {
                let tree = tree::parse(&text, at, self.diagnostics);
                tree::merge(&mut self.tree, tree, "", self.diagnostics);
            }
            Err(why) => self.diagnostics.unreadable(at, "", why, ""),
        }
    }

    /// The text of a file; `None` if it was read before.
    fn read(&mut self, path: &Path, at: Location) -> Result<Option<String>, String> {
        let cannot = |error: std::io::Error| format!("cannot be read: {error}");
        // A FIFO is not waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| cannot(errno.into()))?;
        let mut file = File::from(file);
        let metadata = file.metadata().map_err(cannot)?;
        if !metadata.is_file() {
            return Err("is not a regular file".to_owned());
        }
        if !self.files.insert((metadata.dev(), metadata.ino())) {
            return Ok(None);
        }
        for (message, advice) in
            permissions::permission_issues(path, &file, &metadata, self.environment.user, &mut self.folders)
        {
            self.diagnostics.missing_on_host(at, "", (ErrorCode::UnsafePermissions, message), advice);
        }
        let mut bytes = Vec::new();
        file.by_ref().take(MAX_FILE_SIZE + 1).read_to_end(&mut bytes).map_err(cannot)?;
        if bytes.len() as u64 > MAX_FILE_SIZE {
            return Err(format!("is larger than {MAX_FILE_SIZE} bytes"));
        }
        String::from_utf8(bytes).map(Some).map_err(|_| "is not UTF-8 text".to_owned())
    }
}

/// The `*.toml` files of a folder in name order, but those whose name begins with a dot.
fn toml_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|extension| extension == "toml") && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the folder of `agent.drop_in`; a relative path starts at the folder of the configuration file.
fn drop_in(tree: &Table, diagnostics: &Diagnostics) -> Option<(Location, PathBuf)> {
    let Value::Table(agent) = &tree.get("agent")?.value else { return None };
    let entry = agent.get("drop_in")?;
    match &entry.value {
        Value::Text(text) if !text.is_empty() && !has_reference(text) => {
            let base = diagnostics.path(entry.at).parent().map(Path::to_owned).unwrap_or_default();
            Some((entry.at, base.join(unescape(text))))
        }
        Value::Text(text) => {
            let message = format!("{} is not a folder's path", quote(text));
            diagnostics.error(entry.at, "agent.drop_in", message, "write it in full, or from this file's folder");
            None
        }
        other => {
            let message = (ErrorCode::WrongType, format!("expected a string, found {}", other.kind()));
            diagnostics.error(entry.at, "agent.drop_in", message, "put it in quotes");
            None
        }
    }
}
