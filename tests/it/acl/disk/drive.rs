//! In-memory drive that can lose power, run full, and fail.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use redb::StorageBackend;

/// Atomic write unit of a drive.
const SECTOR: usize = 512;
const PAGE: usize = 4096;

/// Simulated drive; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Drive(Arc<(Mutex<State>, Condvar)>);

/// Contents, configured failures, and recorded calls.
#[derive(Debug, Default)]
pub(super) struct State {
    now: Vec<u8>,
    synced: Vec<u8>,
    since: Vec<Change>,
    written_pages: HashSet<usize>,
    /// Calls until the power loss.
    pub power: Option<usize>,
    /// Writes to new pages fail: the disk is full.
    pub full: bool,
    /// Every write fails.
    pub read_only: bool,
    /// Number of syncs that fail as on Linux: the data stays readable but never reaches the disk.
    pub failing_syncs: usize,
    /// Number of reads that fail.
    pub failing_reads: usize,
    /// Blocks syncs.
    pub gate_closed: bool,
    /// Number of started syncs.
    pub syncs: usize,
    pub reads: usize,
}

#[derive(Debug, Clone)]
enum Change {
    Length(usize),
    Write(usize, Vec<u8>),
}

/// Small seeded random number generator.
#[derive(Debug)]
pub(super) struct Rng(pub u64);

impl Rng {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }
}

impl Drive {
    pub(super) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.0.lock());
        self.0.1.notify_all();
    }

    pub(super) fn get<T>(&self, inspect: impl FnOnce(&State) -> T) -> T {
        inspect(&self.0.0.lock())
    }

    /// Returns the drive after a power loss: everything synced, and any part of later writes.
    pub(super) fn after_power_loss(&self, rng: &mut Rng) -> Self {
        let state = self.0.0.lock();
        let mut image = state.synced.clone();
        // From all later writes to none, and from whole writes to torn ones.
        let (kept_percent, torn) = (rng.below(101), [0, 0, 10, 60][rng.below(4)]);
        for change in &state.since {
            if rng.below(100) >= kept_percent {
                continue;
            }
            match change {
                Change::Length(length) => image.resize(*length, 0),
                Change::Write(offset, data) => {
                    for (number, sector) in data.chunks(SECTOR).enumerate() {
                        let place = offset + number * SECTOR;
                        if let Some(place) = image.get_mut(place..place + sector.len())
                            && rng.below(100) >= torn
                        {
                            place.copy_from_slice(sector);
                        }
                    }
                }
            }
        }
        let state = State { now: image.clone(), synced: image, ..State::default() };
        Self(Arc::new((Mutex::new(state), Condvar::new())))
    }

    /// Counts one call; fails after the power loss.
    fn call(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.0.0.lock();
        match &mut state.power {
            Some(0) => return Err(io::Error::other("there is no power")),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(state)
    }
}

fn failed(kind: io::ErrorKind) -> io::Error {
    io::Error::from(kind)
}

impl StorageBackend for Drive {
    fn len(&self) -> io::Result<u64> {
        Ok(self.call()?.now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.call()?;
        state.reads += 1;
        if state.failing_reads > 0 {
            state.failing_reads -= 1;
            return Err(failed(io::ErrorKind::Other));
        }
        let offset = usize::try_from(offset).unwrap();
        let found = state.now.get(offset..offset + out.len()).ok_or(failed(io::ErrorKind::UnexpectedEof))?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.call()?;
        if state.read_only {
            return Err(failed(io::ErrorKind::ReadOnlyFilesystem));
        }
        let len = usize::try_from(len).unwrap();
        state.now.resize(len, 0);
        state.since.push(Change::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut guard = self.call()?;
        guard.syncs += 1;
        while guard.gate_closed {
            self.0.1.wait(&mut guard);
        }
        let state = &mut *guard;
        if state.read_only || state.failing_syncs > 0 {
            state.failing_syncs = state.failing_syncs.saturating_sub(1);
            // The length is stored apart from the data; only data is lost here.
            state.since.retain(|change| matches!(change, Change::Length(_)));
            return Err(failed(io::ErrorKind::Other));
        }
        for change in state.since.drain(..) {
            match change {
                Change::Length(length) => state.synced.resize(length, 0),
                Change::Write(offset, data) => state.synced[offset..offset + data.len()].copy_from_slice(&data),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.call()?;
        if state.read_only {
            return Err(failed(io::ErrorKind::ReadOnlyFilesystem));
        }
        let offset = usize::try_from(offset).unwrap();
        let pages = offset / PAGE..=(offset + data.len() - 1) / PAGE;
        if state.full && pages.clone().any(|page| !state.written_pages.contains(&page)) {
            return Err(failed(io::ErrorKind::StorageFull));
        }
        state.written_pages.extend(pages);
        let Some(place) = state.now.get_mut(offset..offset + data.len()) else {
            panic!("a write beyond the end");
        };
        place.copy_from_slice(data);
        state.since.push(Change::Write(offset, data.to_vec()));
        Ok(())
    }
}
