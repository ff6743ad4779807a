//! Allocator that counts, for the benchmarks' servers: the runs of `benches/run profile` differ by a known number of requests.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static FREED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Counts calls of an allocator. `realloc` is the trait's, as the program's own allocator has it, and counts as its parts.
pub(crate) struct CountingAllocator<A>(pub(crate) A);

/// Prints the counts on standard error.
#[allow(clippy::print_stderr)]
pub(crate) fn print_counts() {
    eprintln!("allocations={} freed_bytes={}", ALLOCATIONS.load(Relaxed), FREED_BYTES.load(Relaxed));
}

/// A plain addition: an atomic one would cost as much as the allocation. Requests are handled by one thread.
fn add(counter: &AtomicU64, amount: usize) {
    counter.store(counter.load(Relaxed).wrapping_add(amount as u64), Relaxed);
}

// SAFETY: every call is passed on with the caller's arguments.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(&ALLOCATIONS, 1);
        // SAFETY: the caller's promises are the allocator's.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(&ALLOCATIONS, 1);
        // SAFETY: the caller's promises are the allocator's.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add(&FREED_BYTES, layout.size());
        // SAFETY: the caller's promises are the allocator's.
        unsafe { self.0.dealloc(block, layout) };
    }
}
