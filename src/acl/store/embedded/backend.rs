//! Backend of the database: it can be reopened after a failed write, and read if it is not writable.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use redb::StorageBackend;

/// Handle of the backend. One database instance at a time holds a lease.
///
/// redb rejects everything after a failed write or sync until it is reopened over the same backend.
#[derive(Debug)]
pub(super) struct BackendHandle {
    bytes: Arc<SharedBackend>,
    /// True while the latest lease is valid.
    lease_valid: Arc<AtomicBool>,
}

#[derive(Debug)]
struct SharedBackend {
    backend: Box<dyn StorageBackend>,
    /// Offsets and lengths written since the last sync.
    unsynced: Mutex<Vec<(u64, usize)>>,
    /// Set before a write to the header, which commits a transaction, and cleared by a sync.
    header_touched: AtomicBool,
}

impl BackendHandle {
    pub(super) fn new(backend: impl StorageBackend) -> Self {
        let bytes = SharedBackend {
            backend: Box::new(backend),
            unsynced: Mutex::default(),
            header_touched: AtomicBool::new(false),
        };
        Self { bytes: Arc::new(bytes), lease_valid: Arc::default() }
    }

    /// Issues a new lease. Earlier leases become invalid for reads and writes.
    pub(super) fn lease(&mut self) -> LeasedBackend {
        self.lease_valid.store(false, Ordering::Release);
        self.lease_valid = Arc::new(AtomicBool::new(true));
        LeasedBackend { bytes: Arc::clone(&self.bytes), valid: Arc::clone(&self.lease_valid), overlay: None }
    }

    /// Issues a read-only lease, like [`BackendHandle::lease`]. Writes go to memory and are dropped with the lease.
    pub(super) fn lease_read_only(&mut self) -> io::Result<LeasedBackend> {
        let overlay = Overlay { len: self.bytes.backend.len()?, pages: HashMap::new() };
        Ok(LeasedBackend { overlay: Some(Mutex::new(overlay)), ..self.lease() })
    }

    /// Returns whether the header may have been written since the last sync. Without it, other writes have no effect.
    pub(super) fn header_was_touched(&self) -> bool {
        self.bytes.header_touched.load(Ordering::Acquire)
    }

    /// Repeats unsynced writes and syncs. Linux marks pages that failed to reach the disk as clean: the sync fails
    /// once, and the next one would succeed without the data.
    pub(super) fn write_again(&self) -> io::Result<()> {
        let SharedBackend { backend, unsynced, .. } = &*self.bytes;
        let mut unsynced = unsynced.lock();
        let end = backend.len()?;
        for (offset, length) in unsynced.iter().copied() {
            let length = usize::try_from(end.saturating_sub(offset)).map_or(length, |available| available.min(length));
            let mut bytes = vec![0; length];
            backend.read(offset, &mut bytes)?;
            backend.write(offset, &bytes)?;
        }
        backend.sync_data()?;
        unsynced.clear();
        Ok(())
    }
}

/// Leased backend. It does not lock: the opener of the file ensures exclusive access.
#[derive(Debug)]
pub(super) struct LeasedBackend {
    bytes: Arc<SharedBackend>,
    valid: Arc<AtomicBool>,
    overlay: Option<Mutex<Overlay>>,
}

impl LeasedBackend {
    fn backend(&self) -> io::Result<&dyn StorageBackend> {
        if self.valid.load(Ordering::Acquire) {
            return Ok(&*self.bytes.backend);
        }
        Err(io::Error::other("the lease is stale: the database was reopened"))
    }
}

impl StorageBackend for LeasedBackend {
    fn len(&self) -> io::Result<u64> {
        let backend = self.backend()?;
        self.overlay.as_ref().map_or_else(|| backend.len(), |overlay| Ok(overlay.lock().len))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let backend = self.backend()?;
        match &self.overlay {
            Some(overlay) => overlay.lock().read(backend, offset, out),
            None => backend.read(offset, out),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let backend = self.backend()?;
        match &self.overlay {
            Some(overlay) => overlay.lock().len = len,
            None => backend.set_len(len)?,
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let backend = self.backend()?;
        if self.overlay.is_none() {
            backend.sync_data()?;
            self.bytes.unsynced.lock().clear();
            self.bytes.header_touched.store(false, Ordering::Release);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let backend = self.backend()?;
        if let Some(overlay) = &self.overlay {
            return overlay.lock().write(backend, offset, data);
        }
        if offset == 0 {
            self.bytes.header_touched.store(true, Ordering::Release);
        }
        backend.write(offset, data)?;
        self.bytes.unsynced.lock().push((offset, data.len()));
        Ok(())
    }
}

/// Writes over a read-only backend, by page.
#[derive(Debug)]
struct Overlay {
    len: u64,
    pages: HashMap<u64, Vec<u8>>,
}

/// Page size of the overlay, in bytes.
const PAGE: usize = 4096;

impl Overlay {
    fn read(&self, backend: &dyn StorageBackend, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let available =
            usize::try_from(backend.len()?.saturating_sub(offset)).map_or(out.len(), |length| length.min(out.len()));
        if available > 0 {
            backend.read(offset, &mut out[..available])?;
        }
        out[available..].fill(0);
        for (number, from, at, length) in page_ranges(offset, out.len()) {
            if let Some(page) = self.pages.get(&number) {
                out[at..at + length].copy_from_slice(&page[from..from + length]);
            }
        }
        Ok(())
    }

    fn write(&mut self, backend: &dyn StorageBackend, offset: u64, data: &[u8]) -> io::Result<()> {
        for (number, from, at, length) in page_ranges(offset, data.len()) {
            let mut page = vec![0; PAGE];
            self.read(backend, number * PAGE as u64, &mut page)?;
            page[from..from + length].copy_from_slice(&data[at..at + length]);
            self.pages.insert(number, page);
        }
        self.len = self.len.max(offset + data.len() as u64);
        Ok(())
    }
}

/// Returns the pages that a range covers: number, start in the page, start in the range, length.
fn page_ranges(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let position = offset + at as u64;
        let from = usize::try_from(position % PAGE as u64).ok()?;
        let part = (PAGE - from).min(length - at);
        let piece = (position / PAGE as u64, from, at, part);
        at += part;
        (part > 0).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;

    use super::*;

    proptest! {
        #[test]
        fn overlay_writes_are_readable_and_leave_the_backend_unchanged(
            length in 0_usize..20_000,
            writes in proptest::collection::vec((0_usize..20_000, 1_usize..9000, 1_u8..), 0..8),
        ) {
            let backend = InMemoryBackend::new();
            backend.set_len(length as u64).unwrap();
            backend.write(0, &vec![0xff; length]).unwrap();
            let mut disk = BackendHandle::new(backend);
            let lease = disk.lease_read_only().unwrap();
            let mut expected = vec![0xff; length];
            for (offset, length, byte) in writes {
                lease.write(offset as u64, &vec![byte; length]).unwrap();
                expected.resize(expected.len().max(offset + length), 0);
                expected[offset..offset + length].fill(byte);
            }
            lease.sync_data().unwrap();
            let mut found = vec![0; expected.len()];
            prop_assert_eq!(lease.len().unwrap(), expected.len() as u64);
            lease.read(0, &mut found).unwrap();
            prop_assert!(found == expected);

            let after = disk.lease();
            prop_assert_eq!(after.len().unwrap(), length as u64);
            let mut found = vec![0; length];
            after.read(0, &mut found).unwrap();
            prop_assert!(found == vec![0xff; length]);
            prop_assert!(lease.read(0, &mut found).is_err() && lease.write(0, b"late").is_err());
        }
    }
}
