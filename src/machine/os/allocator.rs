//! The allocator of the program: mimalloc, with small blocks zeroed when they are freed.

use std::alloc::{GlobalAlloc, Layout};

use mimalloc::MiMalloc;

/// mimalloc that zeroes freed blocks of up to 64 KiB. Libraries parse requests in buffers of their own, and free them with the
/// caller's key or token in them.
#[derive(Debug, Clone, Copy, Default)]
pub struct ZeroingAllocator;

/// Largest block that is zeroed, in bytes: hyper's read buffer for a head, which may be longer than the 16 KiB that are served.
/// Larger blocks carry bodies, whose owners zero them where they hold secrets.
const ZEROED: usize = 64 << 10;

// SAFETY: every call is passed on to mimalloc with the caller's arguments. `dealloc` writes only to the block that the caller
// gives up. `realloc` of a small block allocates, copies and frees.
unsafe impl GlobalAlloc for ZeroingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are mimalloc's.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are mimalloc's.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.size() <= ZEROED {
            // SAFETY: the caller owns the block, which has this size. The compiler may drop no write to memory that mimalloc's C
            // code sees.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        // SAFETY: the caller's promises are mimalloc's.
        unsafe { MiMalloc.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.size() > ZEROED {
            // SAFETY: the caller's promises are mimalloc's.
            return unsafe { MiMalloc.realloc(block, layout, new_size) };
        }
        // SAFETY: the caller promises a size that fits a layout of this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: the caller promises a size other than zero.
        let larger = unsafe { MiMalloc.alloc(new) };
        if !larger.is_null() {
            // SAFETY: both blocks have at least this number of bytes, and they do not overlap.
            unsafe { larger.copy_from_nonoverlapping(block, layout.size().min(new_size)) };
            // SAFETY: the caller gives up the block.
            unsafe { self.dealloc(block, layout) };
        }
        larger
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_block_is_zeroed_up_to_the_bound_also_when_it_moves() {
        let is_left = |size: usize, moves: bool| {
            let layout = Layout::from_size_align(size, 8).unwrap();
            // SAFETY: the layout has a size; the block is freed once. mimalloc keeps the page of a freed block mapped, and writes
            // its list into the first bytes of the block, which are not read here.
            unsafe {
                let block = ZeroingAllocator.alloc(layout);
                block.write_bytes(0x5a, size);
                if moves {
                    let larger = ZeroingAllocator.realloc(block, layout, size * 2);
                    assert!((0..size).all(|at| *larger.add(at) == 0x5a));
                    ZeroingAllocator.dealloc(larger, Layout::from_size_align(size * 2, 8).unwrap());
                } else {
                    ZeroingAllocator.dealloc(block, layout);
                }
                (64..size).any(|at| block.add(at).read_volatile() == 0x5a)
            }
        };
        for size in [128, 1024, ZEROED] {
            assert!(!is_left(size, false) && !is_left(size, true), "{size}");
        }
    }
}
