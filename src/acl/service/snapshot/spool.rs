//! A snapshot that comes is kept in a file until it is judged: it may be larger than the memory, and nothing of the store
//! is touched before all of it is known to be right.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use crate::acl::model::id::Id;
use crate::acl::model::snapshot::{Piece, Reader, SnapshotError};
use crate::acl::service::error::ServiceError;

/// A file that has no name, and is gone with this.
#[derive(Debug)]
pub struct Spool {
    file: File,
    bytes: u64,
}

impl Spool {
    /// The largest snapshot that is taken, in bytes.
    pub const LARGEST: u64 = 16 * 1024 * 1024 * 1024;

    /// An empty file in that folder, which no one else can read.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) async fn create(folder: &Path) -> Result<Self, ServiceError> {
        let path: PathBuf = folder.join(format!(".restore.{}", Id::random()));
        let made = tokio::task::spawn_blocking(move || {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
            // Nobody needs its name, and a process that is killed leaves nothing behind.
            rustix::fs::unlink(&path)?;
            Ok::<_, io::Error>(std::fs::File::from(file))
        });
        let file = made.await.map_err(|_| failed(io::Error::other("the task was stopped")))?.map_err(failed)?;
        Ok(Self { file: File::from_std(file), bytes: 0 })
    }

    /// Adds bytes; false if that is more than is taken.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn add(&mut self, bytes: &[u8]) -> Result<bool, ServiceError> {
        self.bytes += bytes.len() as u64;
        if self.bytes > Self::LARGEST {
            return Ok(false);
        }
        self.file.write_all(bytes).await.map_err(failed)?;
        Ok(true)
    }

    /// Its pieces from the first on.
    pub(super) async fn pieces(&mut self) -> Result<Pieces<'_>, ServiceError> {
        self.file.flush().await.map_err(failed)?;
        self.file.rewind().await.map_err(failed)?;
        Ok(Pieces { file: &mut self.file, reader: Reader::default(), room: vec![0; READ] })
    }
}

/// Bytes that are read at once.
const READ: usize = 256 * 1024;

/// The pieces of a snapshot, as they are read from its file.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    file: &'a mut File,
    reader: Reader,
    room: Vec<u8>,
}

impl Pieces<'_> {
    /// The next piece; `None` after the end.
    pub(super) async fn next(&mut self) -> Result<Option<Piece>, ServiceError> {
        loop {
            if let Some(piece) = self.reader.piece().map_err(|error| invalid(&error))? {
                return Ok(Some(piece));
            }
            let read = self.file.read(&mut self.room).await.map_err(failed)?;
            if read == 0 {
                self.reader.finish().map_err(|error| invalid(&error))?;
                return Ok(None);
            }
            self.reader.feed(&self.room[..read]);
        }
    }

    /// The next record; `None` after the last.
    pub(super) async fn record(&mut self) -> Result<Option<(String, Vec<u8>)>, ServiceError> {
        loop {
            match self.next().await? {
                Some(Piece::Record(key, value)) => return Ok(Some((key, value))),
                Some(Piece::Header(_)) => {}
                Some(Piece::End(_)) | None => return Ok(None),
            }
        }
    }
}

fn failed(error: io::Error) -> ServiceError {
    ServiceError::Spool(error)
}

pub(super) fn invalid(error: &SnapshotError) -> ServiceError {
    ServiceError::Invalid(format!("Invalid snapshot: {error}"))
}
