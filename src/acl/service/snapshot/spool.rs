//! Spool file of an uploaded snapshot: it may exceed memory, and the store is not touched before all of it is
//! validated.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use crate::model::id::Id;
use crate::model::snapshot::{SnapshotError, SnapshotPiece, SnapshotReader};
use crate::service::error::ServiceError;
use crate::service::rejection::InvalidRequest;

/// Unlinked temporary file; deleted by the kernel on close.
#[derive(Debug)]
pub(crate) struct Spool {
    file: File,
    bytes: u64,
}

impl Spool {
    /// Largest accepted snapshot, in bytes.
    pub(crate) const MAX_SIZE: u64 = 16 * 1024 * 1024 * 1024;

    /// Creates an empty file, readable only by this user.
    pub(super) async fn create(folder: &Path) -> Result<Self, ServiceError> {
        let path: PathBuf = folder.join(format!(".restore.{}", Id::random()));
        let file = tokio::task::spawn_blocking(move || {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
            // Unlinked at once, so that a killed process leaves nothing behind.
            rustix::fs::unlink(&path)?;
            Ok::<_, io::Error>(std::fs::File::from(file))
        });
        let file = file.await.map_err(|_| failed(io::Error::other("the task was stopped")))?.map_err(failed)?;
        Ok(Self { file: File::from_std(file), bytes: 0 })
    }

    /// Appends bytes; returns false if the limit is exceeded.
    pub(crate) async fn add(&mut self, bytes: &[u8]) -> Result<bool, ServiceError> {
        self.bytes += bytes.len() as u64;
        if self.bytes > Self::MAX_SIZE {
            return Ok(false);
        }
        self.file.write_all(bytes).await.map_err(failed)?;
        Ok(true)
    }

    /// Returns a reader from the start.
    pub(super) async fn pieces(&mut self) -> Result<SnapshotPieces<'_>, ServiceError> {
        self.file.flush().await.map_err(failed)?;
        self.file.rewind().await.map_err(failed)?;
        Ok(SnapshotPieces { file: &mut self.file, reader: SnapshotReader::default(), buffer: vec![0; READ_SIZE] })
    }
}

/// Read buffer size, in bytes.
const READ_SIZE: usize = 256 * 1024;

/// Reader of a snapshot's pieces from the spool file.
#[derive(Debug)]
pub(super) struct SnapshotPieces<'a> {
    file: &'a mut File,
    reader: SnapshotReader,
    buffer: Vec<u8>,
}

impl SnapshotPieces<'_> {
    /// Returns the next piece; `None` after the end.
    pub(super) async fn next(&mut self) -> Result<Option<SnapshotPiece>, ServiceError> {
        loop {
            if let Some(piece) = self.reader.piece().map_err(|error| invalid(&error))? {
                return Ok(Some(piece));
            }
            let read = self.file.read(&mut self.buffer).await.map_err(failed)?;
            if read == 0 {
                self.reader.finish().map_err(|error| invalid(&error))?;
                return Ok(None);
            }
            self.reader.feed(&self.buffer[..read]);
        }
    }

    /// Returns the next record; `None` after the last.
    pub(super) async fn record(&mut self) -> Result<Option<(String, Vec<u8>)>, ServiceError> {
        loop {
            match self.next().await? {
                Some(SnapshotPiece::Record(key, value)) => return Ok(Some((key, value))),
                Some(SnapshotPiece::Header(_)) => {}
                Some(SnapshotPiece::End(_)) | None => return Ok(None),
            }
        }
    }
}

fn failed(error: io::Error) -> ServiceError {
    ServiceError::Spool(error)
}

pub(super) fn invalid(error: &SnapshotError) -> ServiceError {
    InvalidRequest::Snapshot(error.to_string()).into()
}
