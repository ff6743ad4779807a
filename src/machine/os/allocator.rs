//! The allocator of the program: mimalloc, with each block zeroed when it is freed.
//!
//! It decides how code treats a secret:
//!
//! - A secret that lives, such as a token or a key, is a [`SecretString`](crate::secret_string::SecretString), in protected memory.
//! - A secret that passes through the heap, such as a body, a rendered text or a file's content, is a `String`, a `Vec` or `Bytes`
//!   like any other. It is zeroed when it is freed, and so are the smaller blocks that it grew out of, and the buffers of libraries.
//! - Memory that is not freed is zeroed by its owner: a key in an array on the stack is `Zeroizing`, and a buffer that is used again
//!   is filled with zeros in between.

use std::alloc::{GlobalAlloc, Layout};

use mimalloc::MiMalloc;

/// mimalloc that zeroes each block when it is freed.
#[derive(Debug, Clone, Copy, Default)]
pub struct ZeroingAllocator;

// SAFETY: every call is passed on to mimalloc with the caller's arguments, and `dealloc` writes only to the block that the caller
// gives up. `realloc` is the trait's: it allocates, copies and frees, so that no copy is left in a block that moves or shrinks.
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
        // SAFETY: the caller owns the block, which has this size. The compiler may drop no write to memory that mimalloc's C code
        // sees.
        unsafe { block.write_bytes(0, layout.size()) };
        // SAFETY: the caller's promises are mimalloc's.
        unsafe { MiMalloc.dealloc(block, layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_block_is_zeroed_also_when_it_moves_or_shrinks() {
        let is_left = |size: usize, new_size: usize| {
            let layout = |size| Layout::from_size_align(size, 8).unwrap();
            // SAFETY: the layouts have a size; each block is freed once. mimalloc keeps the page of a freed block of such a size
            // mapped, and writes its list into the first bytes of the block, which are not read here.
            unsafe {
                let block = ZeroingAllocator.alloc(layout(size));
                block.write_bytes(0x5a, size);
                if new_size == 0 {
                    ZeroingAllocator.dealloc(block, layout(size));
                } else {
                    let moved = ZeroingAllocator.realloc(block, layout(size), new_size);
                    assert!((0..size.min(new_size)).all(|at| *moved.add(at) == 0x5a));
                    ZeroingAllocator.dealloc(moved, layout(new_size));
                }
                (64..size).any(|at| block.add(at).read_volatile() == 0x5a)
            }
        };
        for size in [128, 1024, 64 << 10, 256 << 10, 1 << 20] {
            assert!([0, size / 2, size - 8, size * 2].iter().all(|new_size| !is_left(size, *new_size)), "{size}");
        }
    }
}
