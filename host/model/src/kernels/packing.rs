//! Parts of matrices, copied into the order in which the tiles of a product read them.

#[cfg(target_arch = "x86_64")]
use super::lanes::Wide;
use super::lanes::{Lanes, Portable, SIDE};

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

/// `wide` columns from `first` on, as lines of `wide` numbers, one for each row from `deep` on, as
/// many as have room. Columns that the matrix lacks are zero.
pub(super) fn pack(from: View<'_>, deep: usize, first: usize, wide: usize, packed: &mut [f32]) {
    if from.column == 1 {
        return copy(from, deep, first, wide, packed);
    }
    #[cfg(target_arch = "x86_64")]
    {
        use super::simd::{Level, level};
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
        fn turn_wide(from: View<'_>, deep: usize, first: usize, wide: usize, packed: &mut [f32]) {
            // SAFETY: the frame has the instructions.
            unsafe { turn::<Wide>(from, deep, first, wide, packed) }
        }
        if level() == Level::Avx512 {
            // SAFETY: the machine has the instructions.
            return unsafe { turn_wide(from, deep, first, wide, packed) };
        }
    }
    // SAFETY: needs no special instructions.
    unsafe { turn::<Portable>(from, deep, first, wide, packed) }
}

/// Rows that lie in order.
fn copy(from: View<'_>, deep: usize, first: usize, wide: usize, packed: &mut [f32]) {
    let columns = wide.min(from.columns - first);
    for (row, line) in packed.chunks_exact_mut(wide).enumerate() {
        let at = (deep + row) * from.row + first;
        let (line, beyond) = line.split_at_mut(columns);
        line.copy_from_slice(from.numbers.get(at..at + columns).unwrap_or_default());
        beyond.fill(0.0);
    }
}

/// Columns that lie in order, or none that does: squares, turned.
///
/// # Safety
///
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn turn<L: Lanes>(
    from: View<'_>,
    deep: usize,
    first: usize,
    wide: usize,
    packed: &mut [f32],
) {
    let columns = wide.min(from.columns - first);
    let rows = packed.len() / wide;
    for some in (0..wide).step_by(SIDE) {
        let width = SIDE.min(wide - some);
        let mut lines = [&[] as &[f32]; SIDE];
        for (number, line) in lines.iter_mut().enumerate().take(columns.saturating_sub(some)) {
            let at = (first + some + number) * from.column + deep * from.row;
            *line = from.numbers.get(at..).unwrap_or_default();
        }
        let mut done = 0;
        while from.row == 1 && done + SIDE <= rows {
            let mut square = [&[0f32; SIDE]; SIDE];
            for (side, line) in square.iter_mut().zip(lines) {
                if let Some(numbers) = line.get(done..).and_then(|line| line.first_chunk()) {
                    *side = numbers;
                }
            }
            // SAFETY: the caller's promise.
            let turned = unsafe { L::turned(square) };
            let packed = packed.chunks_exact_mut(wide).skip(done);
            for (to, from) in packed.zip(&turned) {
                let to = to.get_mut(some..).unwrap_or_default();
                match to.first_chunk_mut() {
                    Some(to) => *to = *from,
                    None => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
                }
            }
            done += SIDE;
        }
        for (row, to) in packed.chunks_exact_mut(wide).enumerate().skip(done) {
            let to = to.get_mut(some..some + width).unwrap_or_default();
            for (to, line) in to.iter_mut().zip(lines) {
                *to = line.get(row * from.row).copied().unwrap_or_default();
            }
        }
    }
}
