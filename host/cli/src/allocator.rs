//! Large blocks of memory in huge pages, where the kernel has them.
//!
//! Weights and activations are read in long strides, and a processor remembers the places of only
//! some thousand pages: with pages of 4 KiB it spends, in a virtual machine above all, much of a
//! large product on looking them up, and the kernel much on handing them out. Most kernels give
//! huge pages only to those who ask (`/sys/kernel/mm/transparent_hugepage/enabled`: `madvise`).

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ptr::NonNull,
};

use nix::sys::mman::{MmapAdvise, madvise};

/// A huge page on x86-64, and with the usual pages on aarch64.
const HUGE: usize = 2 << 20;

/// The system's allocator, which is asked for blocks of [`HUGE`] and more in whole huge pages.
pub(crate) struct Allocator;

/// The whole huge pages for a large block; none for a small one.
fn huge(layout: Layout) -> Option<Layout> {
    let size = (layout.size() >= HUGE).then(|| layout.size().checked_next_multiple_of(HUGE))??;
    Layout::from_size_align(size, layout.align().max(HUGE)).ok()
}

// SAFETY: all memory comes from the system's allocator and goes back with the layout that it came
// with, which depends on the caller's alone. The other functions of the trait use these two.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(whole) = huge(layout) else {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc(layout) };
        };
        // SAFETY: the size is not zero.
        let block = unsafe { System.alloc(whole) };
        if let Some(place) = NonNull::new(block) {
            // SAFETY: the block is ours and whole pages; the advice changes nothing that it holds.
            // A kernel without huge pages refuses, and that is fine.
            let _ = unsafe { madvise(place.cast(), whole.size(), MmapAdvise::MADV_HUGEPAGE) };
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if huge(layout).is_none() {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's promise.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block has room for that.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; the layout is the one that it was allocated with.
        unsafe { System.dealloc(block, huge(layout).unwrap_or(layout)) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(size, layout.align()) else {
            return std::ptr::null_mut();
        };
        match (huge(layout), huge(new)) {
            // SAFETY: the caller's promise.
            (None, None) => unsafe { System.realloc(block, layout, size) },
            // Within the same pages there is nothing to do.
            (Some(from), Some(to)) if from == to => block,
            // SAFETY: both blocks have room for what is copied.
            _ => unsafe {
                let copy = self.alloc(new);
                if !copy.is_null() {
                    copy.copy_from_nonoverlapping(block, layout.size().min(size));
                    self.dealloc(block, layout);
                }
                copy
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_what_they_hold_whatever_their_size() {
        // The tests of this crate run with the allocator, too.
        for size in [1, HUGE - 1, HUGE, HUGE + 1, 5 * HUGE] {
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
