//! Storage backend that counts its syncs, for benchmarks that report how many writers shared one.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::StorageBackend;
use redb::backends::FileBackend;

/// File of a store that counts its syncs.
#[derive(Debug)]
pub(crate) struct SyncCounter(FileBackend, Arc<AtomicU64>);

impl SyncCounter {
    pub(crate) fn create(path: &Path) -> (Self, Arc<AtomicU64>) {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
        let syncs = Arc::new(AtomicU64::new(0));
        (Self(FileBackend::new(file).unwrap(), Arc::clone(&syncs)), syncs)
    }
}

impl StorageBackend for SyncCounter {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write(offset, data)
    }
}
