//! Large blocks of memory in huge pages, where the kernel has them.
//!
//! Weights and activations are read in long strides, and a processor remembers the places of only
//! some thousand pages: with pages of 4 KiB large products spend time on looking them up, in a
//! virtual machine above all, and the kernel on handing them out. Most kernels give huge pages
//! only to those who ask (`/sys/kernel/mm/transparent_hugepage/enabled`: `madvise`).

use std::{
    alloc::{GlobalAlloc, Layout, System},
    num::NonZeroUsize,
    ptr::{NonNull, null_mut},
};

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

/// A huge page on x86-64, and with the usual pages on aarch64.
const HUGE: usize = 2 << 20;

/// Bytes from which on a block is large.
const LARGE: usize = 2 * HUGE;

/// Blocks are whole ordinary pages, which are 64 KiB at most.
const PAGES: usize = 64 << 10;

/// The system's allocator, but for large blocks: these are mappings of their own that begin where
/// a huge page does, and go back to the kernel at once.
pub(crate) struct Allocator;

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= HUGE
}

/// A mapping of zeros; null where there is no room.
fn map(size: usize) -> *mut u8 {
    // Room to begin at a huge page. What is never touched costs no memory.
    let Some(pages) = size.checked_next_multiple_of(PAGES) else { return null_mut() };
    let Some(room) = pages.checked_add(HUGE).and_then(NonZeroUsize::new) else {
        return null_mut();
    };
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping, wherever there is room.
    let mapped = unsafe { mmap_anonymous(None, room, protection, MapFlags::MAP_PRIVATE) };
    let Ok(start) = mapped.map(NonNull::cast::<u8>) else { return null_mut() };
    let before = start.align_offset(HUGE);
    // SAFETY: the block lies within the mapping, and nobody knows what is before and behind it.
    unsafe {
        let block = start.add(before);
        // Less than a huge page is before it, so something is behind it.
        let end = before + pages;
        let unmapped = before == 0 || munmap(start.cast(), before).is_ok();
        if !unmapped || munmap(start.add(end).cast(), room.get() - end).is_err() {
            // Too many mappings. What is left over is address space, no memory.
            return null_mut();
        }
        // A kernel without huge pages refuses, and that is fine.
        let _ = madvise(block.cast(), pages, MmapAdvise::MADV_HUGEPAGE);
        block.as_ptr()
    }
}

// SAFETY: whether a block is large depends on its layout alone, so it goes back to where it came
// from.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_large(layout) {
            true => map(layout.size()),
            // SAFETY: the caller's promise; so for all below.
            false => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_large(layout) {
            true => map(layout.size()),
            // SAFETY: as above.
            false => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; the mapping is as long as it was made.
        unsafe {
            if !is_large(layout) {
                System.dealloc(block, layout);
            } else if let Some(block) = NonNull::new(block) {
                // It fails where mappings run out, and then the address space is lost.
                let _ = munmap(block.cast(), layout.size().next_multiple_of(PAGES));
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        if !is_large(layout) && !is_large(new) {
            // SAFETY: as above.
            return unsafe { System.realloc(block, layout, size) };
        }
        let (from, to) = (layout.size().div_ceil(PAGES), size.div_ceil(PAGES));
        if is_large(layout) && is_large(new) && from == to {
            return block;
        }
        // SAFETY: both blocks have room for what is copied.
        unsafe {
            let copy = self.alloc(new);
            if !copy.is_null() {
                copy.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            copy
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_what_they_hold_whatever_their_size() {
        // The tests of this crate run with the allocator, too.
        for size in [1, LARGE - 1, LARGE, LARGE + 1, 5 * HUGE] {
            let mut numbers = vec![0u8; size];
            assert!(numbers.iter().all(|number| *number == 0));
            numbers.iter_mut().zip((0..251).cycle()).for_each(|(number, value)| *number = value);
            for grown in [size + 1, size + HUGE, 3 * size] {
                numbers.reserve_exact(grown - numbers.len());
            }
            numbers.shrink_to_fit();
            assert_eq!(numbers.len(), size);
            assert!(numbers.iter().zip((0..251).cycle()).all(|(number, value)| *number == value));
            numbers.truncate(size / 2);
            numbers.shrink_to_fit();
            assert!(numbers.iter().zip((0..251).cycle()).all(|(number, value)| *number == value));
        }
        let zeroed = vec![0f32; 3 * HUGE];
        assert_eq!(zeroed.as_ptr().align_offset(HUGE), 0);
        assert!(zeroed.iter().all(|number| *number == 0.0));
    }
}
