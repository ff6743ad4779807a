//! What the database stands on: bytes that can be lent anew after a write failed, and read when they cannot be written.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

/// The bytes. One opening of the database at a time has them on loan.
///
/// redb refuses everything once a write or a sync has failed, until it is opened anew over the same bytes.
#[derive(Debug)]
pub(super) struct Disk {
    bytes: Arc<Bytes>,
    /// Whether the latest loan still holds.
    lent: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Bytes {
    backend: Box<dyn StorageBackend>,
    /// What was written since the last sync: offsets and lengths.
    unsynced: Mutex<Vec<(u64, usize)>>,
    /// Set before a write of the header, which makes a transaction count, until the next sync.
    header_touched: AtomicBool,
}

impl Disk {
    pub(super) fn new(backend: impl StorageBackend) -> Self {
        let bytes =
            Bytes { backend: Box::new(backend), unsynced: Mutex::default(), header_touched: AtomicBool::new(false) };
        Self { bytes: Arc::new(bytes), lent: Arc::default() }
    }

    /// Lends the bytes. Every earlier loan ends: who still has it can neither read nor write.
    pub(super) fn lend(&mut self) -> Loan {
        self.lent.store(false, Ordering::Release);
        self.lent = Arc::new(AtomicBool::new(true));
        Loan { bytes: Arc::clone(&self.bytes), holds: Arc::clone(&self.lent), aside: None }
    }

    /// Lends the bytes to read, as [`Disk::lend`] does. What is written is kept aside in memory, and lost with the loan.
    pub(super) fn lend_to_read(&mut self) -> io::Result<Loan> {
        let aside = Aside { len: self.bytes.backend.len()?, pages: HashMap::new() };
        Ok(Loan { aside: Some(Mutex::new(aside)), ..self.lend() })
    }

    /// Tells if the header may have been written since the last sync. Without it, what else was written does not count.
    pub(super) fn header_was_touched(&self) -> bool {
        self.bytes.header_touched.load(Ordering::Acquire)
    }

    /// Writes what was not synced once more, and syncs it. Linux takes what it could not bring to the disk as written:
    /// the sync fails once, and the next one would promise what is not there.
    pub(super) fn write_again(&self) -> io::Result<()> {
        let Bytes { backend, unsynced, .. } = &*self.bytes;
        let mut unsynced = lock(unsynced);
        let end = backend.len()?;
        for (offset, length) in unsynced.iter().copied() {
            let length = usize::try_from(end.saturating_sub(offset)).map_or(length, |left| left.min(length));
            let mut bytes = vec![0; length];
            backend.read(offset, &mut bytes)?;
            backend.write(offset, &bytes)?;
        }
        backend.sync_data()?;
        unsynced.clear();
        Ok(())
    }
}

/// The bytes, while the loan holds. It has no locks: whoever opened the disk keeps others away from it.
#[derive(Debug)]
pub(super) struct Loan {
    bytes: Arc<Bytes>,
    holds: Arc<AtomicBool>,
    aside: Option<Mutex<Aside>>,
}

impl Loan {
    fn backend(&self) -> io::Result<&dyn StorageBackend> {
        if self.holds.load(Ordering::Acquire) {
            return Ok(&*self.bytes.backend);
        }
        Err(io::Error::other("the store was opened anew"))
    }
}

impl StorageBackend for Loan {
    fn len(&self) -> io::Result<u64> {
        let backend = self.backend()?;
        self.aside.as_ref().map_or_else(|| backend.len(), |aside| Ok(lock(aside).len))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let backend = self.backend()?;
        match &self.aside {
            Some(aside) => lock(aside).read(backend, offset, out),
            None => backend.read(offset, out),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let backend = self.backend()?;
        match &self.aside {
            Some(aside) => lock(aside).len = len,
            None => backend.set_len(len)?,
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let backend = self.backend()?;
        if self.aside.is_none() {
            backend.sync_data()?;
            lock(&self.bytes.unsynced).clear();
            self.bytes.header_touched.store(false, Ordering::Release);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let backend = self.backend()?;
        if let Some(aside) = &self.aside {
            return lock(aside).write(backend, offset, data);
        }
        if offset == 0 {
            self.bytes.header_touched.store(true, Ordering::Release);
        }
        backend.write(offset, data)?;
        lock(&self.bytes.unsynced).push((offset, data.len()));
        Ok(())
    }
}

/// What was written over bytes that are only read.
#[derive(Debug)]
struct Aside {
    len: u64,
    pages: HashMap<u64, Vec<u8>>,
}

/// Bytes of a page that is kept aside.
const PAGE: usize = 4096;

impl Aside {
    fn read(&self, backend: &dyn StorageBackend, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there =
            usize::try_from(backend.len()?.saturating_sub(offset)).map_or(out.len(), |left| left.min(out.len()));
        if there > 0 {
            backend.read(offset, &mut out[..there])?;
        }
        out[there..].fill(0);
        for (number, from, at, length) in parts(offset, out.len()) {
            if let Some(page) = self.pages.get(&number) {
                out[at..at + length].copy_from_slice(&page[from..from + length]);
            }
        }
        Ok(())
    }

    fn write(&mut self, backend: &dyn StorageBackend, offset: u64, data: &[u8]) -> io::Result<()> {
        for (number, from, at, length) in parts(offset, data.len()) {
            let mut page = vec![0; PAGE];
            self.read(backend, number * PAGE as u64, &mut page)?;
            page[from..from + length].copy_from_slice(&data[at..at + length]);
            self.pages.insert(number, page);
        }
        self.len = self.len.max(offset + data.len() as u64);
        Ok(())
    }
}

/// The pages that `length` bytes from `offset` on lie in: number, start in the page, start in the bytes, length.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let place = offset + at as u64;
        let from = usize::try_from(place % PAGE as u64).ok()?;
        let part = (PAGE - from).min(length - at);
        let found = (place / PAGE as u64, from, at, part);
        at += part;
        (part > 0).then_some(found)
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_aside_is_read_and_leaves_the_disk_as_it_was(
            length in 0_usize..20_000,
            writes in proptest::collection::vec((0_usize..20_000, 1_usize..9000, 1_u8..), 0..8),
        ) {
            let backend = InMemoryBackend::new();
            backend.set_len(length as u64).unwrap();
            backend.write(0, &vec![0xff; length]).unwrap();
            let mut disk = Disk::new(backend);
            let loan = disk.lend_to_read().unwrap();
            let mut expected = vec![0xff; length];
            for (offset, length, byte) in writes {
                loan.write(offset as u64, &vec![byte; length]).unwrap();
                expected.resize(expected.len().max(offset + length), 0);
                expected[offset..offset + length].fill(byte);
            }
            loan.sync_data().unwrap();
            let mut found = vec![0; expected.len()];
            prop_assert_eq!(loan.len().unwrap(), expected.len() as u64);
            loan.read(0, &mut found).unwrap();
            prop_assert!(found == expected);

            let after = disk.lend();
            prop_assert_eq!(after.len().unwrap(), length as u64);
            let mut found = vec![0; length];
            after.read(0, &mut found).unwrap();
            prop_assert!(found == vec![0xff; length]);
            prop_assert!(loan.read(0, &mut found).is_err() && loan.write(0, b"late").is_err());
        }
    }
}
