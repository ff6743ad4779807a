//! Memory for secrets: pages that hold nothing else, and that neither core files nor swap space ever hold.
//!
//! A region comes from `memfd_secret(2)` (Linux 5.14) where the kernel has it: only this process can read such pages, not even
//! root through `/proc/PID/mem`. Otherwise its pages are locked and left out of core files (`mlock(2)`, `MADV_DONTDUMP`).

use std::alloc::Layout;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, mmap_anonymous, munmap};
use tokio::sync::Notify;
use zeroize::Zeroize as _;

/// Protection that a region has, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryProtection {
    /// Other processes cannot read it, root included; it is never swapped out or dumped.
    SecretMemory,
    /// It is never swapped out or dumped.
    Locked,
    /// It is not dumped, but may be swapped out: the limit of locked memory is reached.
    Unlocked,
    /// Ordinary memory: the kernel gave no pages of its own.
    Plain,
}

impl MemoryProtection {
    /// All, best first.
    pub(crate) const ALL: [Self; 4] = [Self::SecretMemory, Self::Locked, Self::Unlocked, Self::Plain];
}

/// Returns the sizes of all regions in bytes, by their protection, in the order of [`MemoryProtection::ALL`].
pub fn protected_memory() -> [(MemoryProtection, usize); 4] {
    let arena = ARENA.lock();
    let total = |protection| {
        let regions = arena.regions.iter().filter(|region| region.protection == protection);
        regions.map(|region| region.length).sum()
    };
    MemoryProtection::ALL.map(|protection| (protection, total(protection)))
}

/// Waits until a region is mapped or unmapped.
pub async fn protected_memory_changed() {
    CHANGED.notified().await;
}

static CHANGED: Notify = Notify::const_new();

/// Bytes in protected memory, zeroed on drop.
pub(crate) struct ProtectedBytes {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: only the value owns its bytes, as a `Vec` does.
unsafe impl Send for ProtectedBytes {}
// SAFETY: shared references only read the bytes.
unsafe impl Sync for ProtectedBytes {}

impl ProtectedBytes {
    /// Allocates zeroed bytes.
    pub(crate) fn zeroed(length: usize) -> Self {
        let start = if length == 0 { NonNull::dangling() } else { ARENA.lock().allocate(length) };
        Self { start, length }
    }
}

impl std::ops::Deref for ProtectedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the arena gave these initialised bytes to this value only, until its drop.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl std::ops::DerefMut for ProtectedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl AsRef<[u8]> for ProtectedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for ProtectedBytes {
    fn drop(&mut self) {
        if self.length > 0 {
            self.zeroize();
            ARENA.lock().free(self.start, self.length);
        }
    }
}

/// All regions of the process.
struct Arena {
    regions: Vec<Region>,
}

static ARENA: Mutex<Arena> = Mutex::new(Arena { regions: Vec::new() });

impl Arena {
    fn allocate(&mut self, length: usize) -> NonNull<u8> {
        if let Some(start) = self.regions.iter_mut().find_map(|region| region.allocate(length)) {
            return start;
        }
        let mut region = Region::new(length.next_multiple_of(REGION));
        let start = region.allocate(length);
        self.regions.push(region);
        CHANGED.notify_one();
        // A new region is as long as the request at least.
        start.unwrap_or_else(|| std::alloc::handle_alloc_error(Layout::new::<Region>()))
    }

    fn free(&mut self, start: NonNull<u8>, length: usize) {
        let Some(index) = self.regions.iter().position(|region| region.contains(start)) else { return };
        let Some(region) = self.regions.get_mut(index) else { return };
        region.free(start, length);
        // The first region stays, so that a lone secret that comes and goes costs no system call.
        if index > 0 && region.is_empty() {
            self.regions.swap_remove(index);
            CHANGED.notify_one();
        }
    }
}

/// Size of a region in bytes; larger secrets have a region of a multiple of it.
const REGION: usize = 64 << 10;

/// Unit of allocation in bytes.
const BLOCK: usize = 64;

/// Pages for secrets, divided into blocks.
struct Region {
    start: NonNull<u8>,
    length: usize,
    protection: MemoryProtection,
    /// True for each block in use.
    used: Vec<bool>,
}

// SAFETY: only the region owns its pages.
unsafe impl Send for Region {}

impl Region {
    /// Maps a region with the best protection that the kernel grants. `length` is a multiple of [`REGION`].
    fn new(length: usize) -> Self {
        let secret = map_secret_memory(length).map(|start| (start, MemoryProtection::SecretMemory));
        let (start, protection) = secret
            .or_else(|_| map_locked_memory(length))
            .unwrap_or_else(|_| (allocate_plain(length), MemoryProtection::Plain));
        Self { start, length, protection, used: vec![false; length / BLOCK] }
    }

    fn contains(&self, pointer: NonNull<u8>) -> bool {
        self.offset(pointer).is_some_and(|offset| offset < self.length)
    }

    fn offset(&self, pointer: NonNull<u8>) -> Option<usize> {
        pointer.addr().get().checked_sub(self.start.addr().get())
    }

    fn is_empty(&self) -> bool {
        !self.used.contains(&true)
    }

    /// Takes the first free blocks for this many bytes.
    fn allocate(&mut self, length: usize) -> Option<NonNull<u8>> {
        let blocks = length.div_ceil(BLOCK);
        let mut run = 0;
        let end = self.used.iter().position(|used| {
            run = if *used { 0 } else { run + 1 };
            run == blocks
        })? + 1;
        self.used.get_mut(end - blocks..end)?.fill(true);
        // SAFETY: the blocks lie within the region.
        Some(unsafe { self.start.add((end - blocks) * BLOCK) })
    }

    /// Gives back blocks, whose bytes are zero.
    fn free(&mut self, start: NonNull<u8>, length: usize) {
        let Some(first) = self.offset(start).map(|offset| offset / BLOCK) else { return };
        if let Some(blocks) = self.used.get_mut(first..first + length.div_ceil(BLOCK)) {
            blocks.fill(false);
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.protection == MemoryProtection::Plain {
            // SAFETY: `allocate_plain` allocated these bytes with this layout, and nobody uses them any more.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), plain_layout(self.length)) };
        } else {
            // SAFETY: the region mapped these pages, and nobody uses them any more. A failure leaks them.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        }
    }
}

/// Maps pages that only this process can read.
fn map_secret_memory(length: usize) -> Result<NonNull<u8>, Errno> {
    // SAFETY: the call takes only flags, and returns a new descriptor or -1.
    let result = unsafe { nix::libc::syscall(nix::libc::SYS_memfd_secret, nix::libc::O_CLOEXEC) };
    let Some(number) = nix::libc::c_int::try_from(result).ok().filter(|number| *number >= 0) else {
        return Err(last_error());
    };
    // SAFETY: the kernel has just made this descriptor for us.
    let file = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::fs::ftruncate(&file, length as u64)?;
    // SAFETY: a new mapping at a place that the kernel chooses overlaps with nothing.
    let start = unsafe {
        mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file.as_fd(), 0)
    }?;
    NonNull::new(start.cast()).ok_or(Errno::NOMEM)
}

fn last_error() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::NOSYS, Errno::from_raw_os_error)
}

/// Maps pages that are left out of core files, and locks them if the limit of locked memory allows it.
fn map_locked_memory(length: usize) -> Result<(NonNull<u8>, MemoryProtection), Errno> {
    // SAFETY: a new mapping at a place that the kernel chooses overlaps with nothing.
    let start =
        unsafe { mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }?;
    let pages = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
    // SAFETY: the pages were just mapped; the advice changes no content. A kernel that refuses it has no core files either.
    let _ = unsafe { madvise(start, length, Advice::LinuxDontDump) };
    // SAFETY: the pages were just mapped.
    let locked = unsafe { mlock(start, length) };
    Ok((pages, if locked.is_ok() { MemoryProtection::Locked } else { MemoryProtection::Unlocked }))
}

fn allocate_plain(length: usize) -> NonNull<u8> {
    let layout = plain_layout(length);
    // SAFETY: the layout's size is not zero: a region has a block at least.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}

fn plain_layout(length: usize) -> Layout {
    // A multiple of `REGION` with a small alignment fits a layout, as it is below `isize::MAX`: it came from a length in memory.
    Layout::from_size_align(length, BLOCK).unwrap_or(Layout::new::<[u8; REGION]>())
}

#[cfg(test)]
mod tests;
