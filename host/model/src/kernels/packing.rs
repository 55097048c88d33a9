//! Parts of matrices, copied into the order in which the tiles of a product read them.

use std::ops::Range;

use super::lanes::{Lanes, Portable, SIDE};
#[cfg(target_arch = "x86_64")]
use super::lanes::{Usual, Wide};

/// A matrix inside a slice: element (r, c) stands at `r · row + c · column`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(super) numbers: &'a [f32],
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) row: usize,
    pub(super) column: usize,
}

impl<'a> View<'a> {
    /// A matrix stored row by row.
    pub(crate) fn new(numbers: &'a [f32], rows: usize, columns: usize) -> Self {
        Self { numbers, rows, columns, row: columns, column: 1 }
    }

    /// The columns from `start` on of a matrix stored row by row, `stride` numbers a row.
    pub(crate) fn part(
        numbers: &'a [f32],
        rows: usize,
        stride: usize,
        start: usize,
        columns: usize,
    ) -> Self {
        let numbers = numbers.get(start..).unwrap_or_default();
        Self { numbers, rows, columns, row: stride, column: 1 }
    }

    /// The transposed matrix.
    pub(crate) fn transposed(self) -> Self {
        let Self { numbers, rows, columns, row, column } = self;
        Self { numbers, rows: columns, columns: rows, row: column, column: row }
    }

    /// Whether every element stands inside the slice.
    pub(super) fn fits(&self) -> bool {
        self.rows == 0
            || self.columns == 0
            || (self.rows - 1) * self.row + (self.columns - 1) * self.column < self.numbers.len()
    }
}

/// `count` numbers that begin where a line of the cache does: vectors that lie across two lines
/// are read at half the speed.
pub(super) fn aligned(numbers: &mut Vec<f32>, count: usize) -> &mut [f32] {
    const LINE: usize = 64;
    numbers.resize(count + LINE / size_of::<f32>(), 0.0);
    let start = numbers.as_ptr().align_offset(LINE);
    numbers.get_mut(start..start + count).unwrap_or_default()
}

/// Strips that are packed at once from rows that lie in order.
pub(super) const TOGETHER: usize = 8;

/// Rows between one that is packed and one that is announced.
const AHEAD: usize = 16;

/// What is packed of a matrix: `rows` rows, and as many strips of `wide` columns as have room.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) rows: &'a Range<usize>,
    /// The first column.
    pub(super) first: usize,
    pub(super) wide: usize,
    /// Room for one row of a strip, whole vectors: `wide` or more.
    pub(super) line: usize,
}

/// A strip after the other, each as lines, one for each row. Columns that the matrix lacks are
/// zero; what stands in a line behind the strip's columns means nothing.
pub(super) fn pack(from: View<'_>, part: Part<'_>, packed: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        use super::simd::{Level, level};
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
        fn by_wide(from: View<'_>, part: Part<'_>, packed: &mut [f32]) {
            // SAFETY: the frame has the instructions.
            unsafe { pack_by::<Wide>(from, part, packed) }
        }
        #[target_feature(enable = "avx2,fma")]
        fn by_usual(from: View<'_>, part: Part<'_>, packed: &mut [f32]) {
            // SAFETY: the frame has the instructions.
            unsafe { pack_by::<Usual>(from, part, packed) }
        }
        match level() {
            // SAFETY: the machine has the instructions.
            Level::Avx512 => return unsafe { by_wide(from, part, packed) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { by_usual(from, part, packed) },
            Level::Baseline => {}
        }
    }
    // SAFETY: needs no special instructions.
    unsafe { pack_by::<Portable>(from, part, packed) }
}

/// # Safety
///
/// The machine has the instructions of `L`. So for all below.
#[inline(always)]
unsafe fn pack_by<L: Lanes>(from: View<'_>, part: Part<'_>, packed: &mut [f32]) {
    let in_order = from.column == 1;
    // Lines of many strips may stand in the same places of a cache, so not too many at once.
    let strips = if in_order { TOGETHER } else { 1 };
    let size = strips * part.line * part.rows.len();
    for (number, packed) in packed.chunks_mut(size).enumerate() {
        let part = Part { first: part.first + number * strips * part.wide, ..part };
        // SAFETY: the caller's promise.
        unsafe {
            if in_order {
                copy::<L>(from, part, packed);
            } else {
                turn::<L>(from, part, packed);
            }
        }
    }
}

/// Strips of rows that lie in order; each row is read once.
///
/// # Safety
///
/// As above.
#[inline(always)]
unsafe fn copy<L: Lanes>(from: View<'_>, part: Part<'_>, packed: &mut [f32]) {
    let Part { rows, first, wide, line } = part;
    for (number, row) in rows.clone().enumerate() {
        let numbers = from.numbers.get(row * from.row..).unwrap_or_default();
        let mut numbers = numbers.get(first..from.columns).unwrap_or_default();
        // Rows may be too far apart for a processor to see by itself which is next.
        let later = numbers.as_ptr().wrapping_add(AHEAD * from.row);
        for at in (0..packed.len() / rows.len()).step_by(SIDE) {
            L::announce(later.wrapping_add(at));
        }
        for strip in packed.chunks_exact_mut(line * rows.len()) {
            let to = strip.get_mut(number * line..(number + 1) * line).unwrap_or_default();
            let mut from = numbers;
            // Lines are short: a library's copy of any length would take longer to begin.
            for to in to.chunks_exact_mut(L::WIDTH) {
                // SAFETY: there are that many to read, and room for a vector.
                unsafe {
                    if let Some((vector, rest)) = from.split_at_checked(L::WIDTH) {
                        L::load(vector.as_ptr()).store(to.as_mut_ptr());
                        from = rest;
                    } else {
                        L::load_first(from.as_ptr(), from.len()).store(to.as_mut_ptr());
                        from = &[];
                    }
                }
            }
            numbers = numbers.get(wide..).unwrap_or_default();
        }
    }
}

/// One strip of columns that lie in order, or of a matrix where nothing does: squares, turned.
///
/// # Safety
///
/// As above.
#[inline(always)]
unsafe fn turn<L: Lanes>(from: View<'_>, part: Part<'_>, packed: &mut [f32]) {
    let Part { rows, first, wide, line } = part;
    for some in (0..wide).step_by(SIDE) {
        let columns = first + some..from.columns.min(first + wide.min(some + SIDE));
        let mut lines = [&[] as &[f32]; SIDE];
        for (line, column) in lines.iter_mut().zip(columns) {
            let at = column * from.column + rows.start * from.row;
            *line = from.numbers.get(at..).unwrap_or_default();
        }
        let mut done = 0;
        while from.row == 1 && done + SIDE <= rows.len() {
            let mut square = [&[0f32; SIDE]; SIDE];
            for (side, line) in square.iter_mut().zip(lines) {
                if let Some(numbers) = line.get(done..).and_then(|line| line.first_chunk()) {
                    *side = numbers;
                }
            }
            // SAFETY: the caller's promise.
            let turned = unsafe { L::turned(square) };
            for (to, from) in packed.chunks_exact_mut(line).skip(done).zip(&turned) {
                let to = to.get_mut(some..).unwrap_or_default();
                match to.first_chunk_mut() {
                    Some(to) => *to = *from,
                    None => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
                }
            }
            done += SIDE;
        }
        for (row, to) in packed.chunks_exact_mut(line).enumerate().skip(done) {
            let to = to.get_mut(some..).unwrap_or_default();
            for (to, line) in to.iter_mut().zip(lines) {
                *to = line.get(row * from.row).copied().unwrap_or_default();
            }
        }
    }
}
