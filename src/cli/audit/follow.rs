//! `keyward audit follow`: shows records as they are written, also after a rotation.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::Context as _;
use keyward_machine::file_watch::FileWatch;
use keyward_telemetry::audit::LineSplitter;

use super::Filter;
use crate::cli::Exit;

/// Shows records from the file's end on, until it is interrupted.
pub(super) fn follow(path: &Path, filter: &Filter<'_>) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut failure = None;
        let watch = FileWatch::new_with_writes(|error| failure = Some(error.to_string()));
        if let Some(error) = failure {
            anyhow::bail!("cannot watch files: {error}");
        }
        watch.follow(path);
        let mut followed = FollowedFile::open(path, SeekFrom::End(0))?;
        loop {
            followed.show(filter).with_context(|| format!("cannot read {}", path.display()))?;
            if followed.is_replaced(path) {
                // Lines that were written between the last read and the rotation.
                followed.show(filter)?;
                followed = FollowedFile::open(path, SeekFrom::Start(0))?;
                continue;
            }
            tokio::select! {
                () = watch.changed() => {}
                _ = tokio::signal::ctrl_c() => return Ok(Exit::Ok),
            }
        }
    })
}

/// An open audit file, and the beginning of a line that is not complete yet.
struct FollowedFile {
    file: File,
    inode: u64,
    lines: LineSplitter,
}

impl FollowedFile {
    fn open(path: &Path, from: SeekFrom) -> anyhow::Result<Self> {
        let opened = || {
            let mut file = File::open(path)?;
            file.seek(from)?;
            let inode = file.metadata()?.ino();
            Ok::<_, std::io::Error>(Self { file, inode, lines: LineSplitter::default() })
        };
        opened().with_context(|| format!("cannot read {}", path.display()))
    }

    fn show(&mut self, filter: &Filter<'_>) -> std::io::Result<()> {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let count = self.file.read(&mut bytes)?;
            if count == 0 {
                return Ok(());
            }
            self.lines.push(&bytes[..count], |line| _ = filter.show(line));
        }
    }

    /// Returns true if another file is at the path.
    fn is_replaced(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|metadata| metadata.ino() != self.inode)
    }
}
