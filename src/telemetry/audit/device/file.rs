//! An audit file: whole lines at its end by descriptor, rotation, and what the process before left.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use keyward_machine::secure_dir::Dir;
use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::{DeviceError, ResumedChain, WriteOutcome, WritePosition, whole_lines};
use crate::audit::key::AuditKey;
use crate::audit::line::{ChainPosition, MAX_LINE, ParsedLine};
use crate::audit::options::{AuditFileOptions, Fsync};
use crate::audit::record::PreviousEnd;
use crate::error_code::ErrorCode;

/// The file that records are appended to.
#[derive(Debug)]
pub(in crate::audit) struct AuditFile {
    options: AuditFileOptions,
    file: Option<File>,
    /// Bytes that are in the file.
    length: u64,
    /// Another file may be at the path.
    recheck_path: bool,
    /// An incomplete line follows the whole ones.
    is_torn: bool,
    /// The disk was full: a short line may still fit where the next one does not.
    was_full: bool,
}

impl AuditFile {
    pub(super) const fn new(options: AuditFileOptions) -> Self {
        Self { options, file: None, length: 0, recheck_path: false, is_torn: false, was_full: false }
    }

    /// Opens the file and reads where its chain ends. A file whose end does not verify with the key is moved away.
    pub(in crate::audit) fn resume(&mut self, key: &AuditKey) -> Result<ResumedChain, DeviceError> {
        // An attempt that failed has left the file locked.
        self.file = None;
        self.open()?;
        let Some(file) = &self.file else { return Ok(NOTHING) };
        let chain = read_tail(file, self.length, key).map_err(|error| self.error("read", &error))?;
        // A record behind an incomplete line would be read as one broken line with it.
        if chain.torn_bytes > 0 {
            self.length -= chain.torn_bytes;
            file.set_len(self.length).map_err(|error| self.error("remove an incomplete line from", &error))?;
        }
        if chain.previous == PreviousEnd::Unverified {
            self.rotate()?;
        }
        Ok(chain)
    }

    pub(super) fn prepare(&mut self, bytes: u64) -> Result<WritePosition, DeviceError> {
        let is_full = self.length > 0 && self.length + bytes > self.options.max_bytes;
        let is_replaced = match &self.file {
            None => true,
            // A rotation of a file that somebody has moved away would fail, after it has moved the older ones.
            Some(file) if std::mem::take(&mut self.recheck_path) || is_full => !self.is_at_path(file),
            Some(file) => file.metadata().is_ok_and(|metadata| metadata.nlink() == 0),
        };
        if is_replaced {
            (self.file, self.is_torn) = (None, false);
            self.open()?;
        } else if is_full {
            self.rotate()?;
        }
        if let (true, Some(file)) = (self.is_torn, &self.file) {
            file.set_len(self.length).map_err(|error| self.error("remove an incomplete line from", &error))?;
            self.is_torn = false;
        }
        if let (true, Some(file)) = (self.was_full, &self.file) {
            let is_full = rustix::fs::fstatvfs(file).is_ok_and(|disk| disk.f_bavail * disk.f_frsize < HEADROOM);
            if is_full {
                return Err(self.error("write to", &io::ErrorKind::StorageFull.into()));
            }
            self.was_full = false;
        }
        // An empty file has no header yet, also where writing it has failed.
        Ok(if self.length == 0 || is_replaced { WritePosition::Reopened } else { WritePosition::Unchanged })
    }

    pub(super) fn write(&mut self, bytes: &[u8], ends: &[usize]) -> WriteOutcome {
        let Some(file) = &mut self.file else {
            let error = self.error("write to", &io::ErrorKind::NotFound.into());
            return WriteOutcome { lines: 0, is_partial: false, error: Some(error) };
        };
        let mut written = 0;
        let mut failure = None;
        while written < bytes.len() {
            match file.write(&bytes[written..]) {
                Ok(0) => failure = Some(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => failure = Some(error),
            }
            if failure.is_some() {
                break;
            }
        }
        let mut lines = whole_lines(ends, written);
        let mut kept_length = lines.checked_sub(1).map_or(0, |last| ends[last]);
        if failure.is_none() && self.options.fsync == Fsync::Always {
            failure = file.sync_data().err();
            // Unknown to be on the disk: removed again, as their requests are refused.
            (lines, kept_length) = if failure.is_some() { (0, 0) } else { (lines, kept_length) };
        }
        self.length += kept_length as u64;
        self.is_torn = failure.is_some() && file.set_len(self.length).is_err();
        self.was_full = failure.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::StorageFull);
        let error = failure.map(|error| self.error("write to", &error));
        WriteOutcome { lines, is_partial: false, error }
    }

    pub(super) fn sync(&mut self) -> Result<(), DeviceError> {
        match &self.file {
            Some(file) if self.options.fsync == Fsync::Interval => {
                file.sync_data().map_err(|error| self.error("sync", &error))
            }
            _ => Ok(()),
        }
    }

    pub(super) const fn reopen(&mut self) {
        self.recheck_path = true;
    }

    fn is_at_path(&self, file: &File) -> bool {
        let at_path = std::fs::symlink_metadata(&self.options.path).map(|metadata| (metadata.dev(), metadata.ino()));
        let open_file = file.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
        matches!((at_path, open_file), (Ok(at_path), Ok(open_file)) if at_path == open_file)
    }

    /// Opens or creates the file. One that another process writes is refused.
    fn open(&mut self) -> Result<(), DeviceError> {
        let path = self.options.path.clone();
        let (folder, name) = Dir::open_parent(&path)?;
        let flags =
            OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&folder, &name, flags, Mode::RUSR | Mode::WUSR);
        let file = File::from(opened.map_err(|errno| self.error("open", &errno.into()))?);
        let metadata = file.metadata().map_err(|error| self.error("look at", &error))?;
        // By another name the records would have other readers, and perhaps another writer.
        if !metadata.is_file() || metadata.nlink() > 1 {
            let text = format!("{} is not a regular file with a single link; move it away", path.display());
            return Err(DeviceError { text, code: ErrorCode::OutputFailed });
        }
        // Two writers would continue the chain from the same record, which looks like tampering.
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            let text = format!("another process writes {}; give each its own file", path.display());
            return Err(DeviceError { text, code: ErrorCode::OutputFailed });
        }
        self.set_attributes(&file, &metadata).map_err(|error| self.error("set mode and owner of", &error))?;
        (self.length, self.file) = (metadata.len(), Some(file));
        Ok(())
    }

    fn set_attributes(&self, file: &File, metadata: &std::fs::Metadata) -> io::Result<()> {
        let attributes = &self.options.attributes;
        let owner = attributes.owner.filter(|owner| *owner != metadata.uid()).map(Uid::from_raw);
        let group = attributes.group.filter(|group| *group != metadata.gid()).map(Gid::from_raw);
        if owner.is_some() || group.is_some() {
            rustix::fs::fchown(file, owner, group)?;
        }
        if metadata.mode() & 0o7777 != attributes.mode {
            rustix::fs::fchmod(file, Mode::from_raw_mode(attributes.mode))?;
        }
        Ok(())
    }

    /// Moves the file to `.1`, older ones one further, and creates a new one.
    fn rotate(&mut self) -> Result<(), DeviceError> {
        let path = self.options.path.clone();
        let (folder, name) = Dir::open_parent(&path)?;
        self.sync()?;
        let numbered = |number: u32| {
            let mut numbered = name.clone();
            numbered.push(format!(".{number}"));
            numbered
        };
        // A failed attempt leaves a gap. Files after it stay: a shift at each retry would overwrite the oldest of them.
        let is_free = |number: &u32| {
            let stat = rustix::fs::statat(&folder, numbered(*number), AtFlags::SYMLINK_NOFOLLOW);
            stat.is_err_and(|errno| errno == Errno::NOENT)
        };
        let last = (1..self.options.keep).find(is_free).unwrap_or(self.options.keep);
        for number in (1..last).rev() {
            rustix::fs::renameat(&folder, numbered(number), &folder, numbered(number + 1))
                .map_err(|errno| self.error("rotate", &errno.into()))?;
        }
        rustix::fs::renameat(&folder, &name, &folder, numbered(1))
            .map_err(|errno| self.error("rotate", &errno.into()))?;
        self.file = None;
        self.length = 0;
        self.open()?;
        // Best effort, as with the file's content: the order of names does not matter to the chain.
        let _ = rustix::fs::openat(
            folder.as_fd(),
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .and_then(rustix::fs::fsync);
        tracing::debug!(event = "audit.rotated", path = path.display().to_string(), "a new audit file begins");
        Ok(())
    }

    fn error(&self, step: &str, error: &io::Error) -> DeviceError {
        DeviceError::new(step, &self.options.path, error)
    }
}

/// Checks that the file can be opened and written, without changing a chain.
pub(super) fn probe(options: &AuditFileOptions) -> Result<(), DeviceError> {
    let path: &Path = &options.path;
    let (folder, name) = Dir::open_parent(path)?;
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::openat(&folder, &name, flags, Mode::empty()) {
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(DeviceError::new("open", path, &errno.into())),
    }
}

/// Room that a full disk must have again, in bytes.
const HEADROOM: u64 = 64 * 1024;

const NOTHING: ResumedChain = ResumedChain { chain: None, previous: PreviousEnd::None, torn_bytes: 0 };

/// Reads the first line, which names the chain, and the last two, of which the last one is verified.
fn read_tail(file: &File, length: u64, key: &AuditKey) -> io::Result<ResumedChain> {
    let first = bytes(file, 0, length.min(MAX_LINE as u64))?;
    let start = length.saturating_sub(2 * MAX_LINE as u64);
    let end = bytes(file, start, length - start)?;
    let complete_length = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let torn_bytes = (end.len() - complete_length) as u64;
    if complete_length == 0 && start == 0 {
        return Ok(ResumedChain { chain: None, previous: PreviousEnd::None, torn_bytes });
    }
    let first = first.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let chain = position(first, &end[..complete_length], key);
    let (previous, chain) = match chain {
        None => (PreviousEnd::Unverified, None),
        Some((name, position, true)) => (PreviousEnd::Stopped, Some((name, position))),
        Some((name, position, false)) => (PreviousEnd::Killed, Some((name, position))),
    };
    Ok(ResumedChain { chain, previous, torn_bytes })
}

/// Returns the name of the chain, the position after its last record, and whether that is a stop record; `None` if it does
/// not verify with the key.
fn position(first: &[u8], end: &[u8], key: &AuditKey) -> Option<(String, ChainPosition, bool)> {
    let first = ParsedLine::parse(first).ok()?;
    let (chain, prev) = first.header()?;
    if !first.verify_after(&prev, key) {
        return None;
    }
    let mut lines = end.strip_suffix(b"\n")?.rsplit(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let last = ParsedLine::parse(lines.next()?).ok()?;
    let is_right = match last.header() {
        Some((name, prev)) => name == chain && last.verify_after(&prev, key),
        None => last.verify_after(&ParsedLine::parse(lines.next()?).ok()?.mac, key),
    };
    let position = ChainPosition { next: last.fields.seq.checked_add(1)?, mac: last.mac };
    is_right.then(|| (chain.to_owned(), position, last.fields.kind == "stop"))
}

fn bytes(file: &File, from: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(2 * MAX_LINE)];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
