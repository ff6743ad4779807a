//! The program's log: a pipe that this process reads, and stops reading as a stalled journal does.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes at the end of the log that a report of a failure shows.
const TAIL: usize = 6000;

#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    stalled: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
}

impl Log {
    /// Makes the pipe and reads it, to a file beside it, until this process ends.
    pub(super) fn start(folder: &Path) -> Self {
        let pipe = folder.join("log.pipe");
        let status = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(status.success(), "mkfifo {}", pipe.display());
        // Open for writing too, so that it does not end with the program.
        let mut pipe = File::options().read(true).write(true).open(&pipe).unwrap();
        let mut file = File::create(folder.join("log.txt")).unwrap();
        let this = Self::default();
        let log = this.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            loop {
                while log.stalled.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(50));
                }
                let length = pipe.read(&mut buffer).unwrap();
                file.write_all(&buffer[..length]).unwrap();
                log.bytes.fetch_add(length as u64, Ordering::Relaxed);
            }
        });
        this
    }

    pub(super) fn stall(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::Relaxed);
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The end of the log.
pub(super) fn tail(folder: &Path) -> String {
    let text = std::fs::read(folder.join("log.txt")).unwrap_or_default();
    String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL)..]).into_owned()
}
