//! Memory for large arrays in large pages.
//!
//! Weights and activations are read from end to end for every token, and on ordinary pages of
//! 4 KiB a part of that time goes into finding the pages, more so inside a virtual machine. Linux
//! gives large ones where it is asked to. That is done here, for whatever is large, because
//! tensors are allocated in many places that know nothing of pages.
//!
//! Memory that is asked for as zeros stays on ordinary pages: keys and values are reserved that
//! way for all sequences that there may ever be, and touching a few bytes of each must not take
//! two mebibytes each.

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, with that advice.
pub(crate) struct LargePages;

/// Bytes from which on a piece is worth the call: two large pages.
const LARGE: usize = 4 << 20;
/// Advice is for whole ordinary pages, which are this large at most. Some bytes of a neighbour
/// beside the piece do no harm.
const PAGE: usize = if cfg!(target_arch = "x86_64") { 4 << 10 } else { 64 << 10 };

// SAFETY: all memory comes from the system's allocator and goes back there; the advice says how
// it is to be backed and changes nothing that it holds.
unsafe impl GlobalAlloc for LargePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; so for all below.
        let place = unsafe { System.alloc(layout) };
        advise(place, layout.size());
        place
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let place = unsafe { System.realloc(place, layout, size) };
        // What shrinks keeps what it had.
        if size > layout.size() {
            advise(place, size);
        }
        place
    }
}

#[cfg(target_os = "linux")]
fn advise(place: *mut u8, size: usize) {
    if size < LARGE || place.is_null() {
        return;
    }
    let before = place.addr() % PAGE;
    let whole = (before + size).next_multiple_of(PAGE);
    // Without large pages the kernel says no, and ordinary ones do as well.
    // SAFETY: this advice never changes what memory holds, whoever's it is.
    unsafe { libc::madvise(place.wrapping_sub(before).cast(), whole, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
const fn advise(_place: *mut u8, _size: usize) {}
