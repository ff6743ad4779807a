//! Identifies the executable of a process among those that rules name.
//!
//! The path that a process reports proves nothing: it may belong to its own mount namespace. Two paths are the same
//! program if they have the same device and inode in this process's view.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use keyward_machine::command::{ExecutableAccess, ExecutableOpener};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};

use super::facts::ExecutableFacts;

/// An executable that a rule names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedExecutable {
    /// Path in the file system of this process.
    pub path: PathBuf,
    /// The digest of its content is asked for too.
    pub digest: bool,
}

/// Executables that are asked for, and digests that were computed.
#[derive(Debug)]
pub(super) struct Executables {
    wanted: Vec<(Arc<Path>, bool)>,
    opener: ExecutableOpener,
    digests: Mutex<HashMap<FileVersion, [u8; 32]>>,
}

/// A file, whatever its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    device: (u32, u32),
    inode: u64,
}

/// Content of a file: size and the two times change with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileVersion {
    file: FileId,
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

/// Number of digests that are remembered.
const MAX_CACHED: usize = 256;

impl Executables {
    pub(super) fn new(wanted: Vec<WantedExecutable>, opener: ExecutableOpener) -> Self {
        let wanted = wanted.into_iter().map(|wanted| (wanted.path.into(), wanted.digest)).collect();
        Self { wanted, opener, digests: Mutex::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Returns the file that a process runs; `None` if it is unknown or no rule names executables.
    pub(super) fn file_of(&self, pid: u32) -> Option<FileId> {
        if self.is_empty() {
            return None;
        }
        Some(self.version_of(pid).ok()?.file)
    }

    fn version_of(&self, pid: u32) -> io::Result<FileVersion> {
        version(&self.opener.open(pid, ExecutableAccess::Identity)?)
    }

    /// Returns the executable that was asked for if it is this file, which the process runs.
    pub(super) fn identify(&self, pid: u32, file: FileId) -> Option<ExecutableFacts> {
        let is_file = |path: &Path| version_at(path).is_ok_and(|version| version.file == file);
        let (path, digest) = self.wanted.iter().find(|(path, _)| is_file(path))?;
        // Without its digest the program is still known by its path.
        let sha256 = if *digest { self.digest(pid, file).ok() } else { None };
        Some(ExecutableFacts { path: Arc::clone(path), sha256 })
    }

    /// Computes the digest of the file that a process runs, once for each content.
    fn digest(&self, pid: u32, file: FileId) -> io::Result<[u8; 32]> {
        let version_before = self.version_of(pid)?;
        if version_before.file != file {
            return Err(io::ErrorKind::NotFound.into());
        }
        if let Some(digest) = self.digests.lock().get(&version_before) {
            return Ok(*digest);
        }
        let mut content = self.opener.open(pid, ExecutableAccess::Content)?;
        let digest = digest_of(&mut content)?;
        if version(&content)? != version_before {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut digests = self.digests.lock();
        if digests.len() >= MAX_CACHED {
            digests.clear();
        }
        digests.insert(version_before, digest);
        Ok(digest)
    }
}

/// Reads a file's identity as the kernel has it in memory: a file system of another user must not delay the answer.
fn version(file: &File) -> io::Result<FileVersion> {
    Ok(FileVersion::new(&statx(file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, WANTED)?))
}

/// The same, of a path.
fn version_at(path: &Path) -> io::Result<FileVersion> {
    Ok(FileVersion::new(&statx(CWD, path, AtFlags::STATX_DONT_SYNC, WANTED)?))
}

const WANTED: StatxFlags = StatxFlags::INO.union(StatxFlags::SIZE).union(StatxFlags::MTIME).union(StatxFlags::CTIME);

impl FileVersion {
    fn new(statx: &Statx) -> Self {
        Self {
            file: FileId { device: (statx.stx_dev_major, statx.stx_dev_minor), inode: statx.stx_ino },
            size: statx.stx_size,
            modified: (statx.stx_mtime.tv_sec, statx.stx_mtime.tv_nsec),
            changed: (statx.stx_ctime.tv_sec, statx.stx_ctime.tv_nsec),
        }
    }
}

fn digest_of(file: &mut File) -> io::Result<[u8; 32]> {
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            length => context.update(buffer.get(..length).unwrap_or_default()),
        }
    }
    context.finish().as_ref().try_into().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_its_file_and_not_by_its_path() {
        let own = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(own.parent().unwrap()).unwrap();
        let linked = folder.path().join("linked");
        let copied = folder.path().join("copied");
        std::fs::hard_link(&own, &linked).unwrap();
        std::fs::write(&copied, b"another").unwrap();
        let find = |path: &Path, digest| {
            let executables =
                Executables::new(vec![WantedExecutable { path: path.to_owned(), digest }], ExecutableOpener::default());
            let file = executables.file_of(std::process::id()).unwrap();
            executables.identify(std::process::id(), file)
        };
        assert_eq!(find(&own, false).unwrap(), ExecutableFacts { path: own.clone().into(), sha256: None });
        let digest = digest_of(&mut File::open(&own).unwrap()).unwrap();
        assert_eq!(find(&linked, true).unwrap().sha256, Some(digest), "another path of the same file");
        assert_eq!(find(&copied, false), None);
        assert_eq!(find(&folder.path().join("missing"), false), None);
    }
}
