//! rows · matrixᵀ, both stored row by row: what every linear layer computes.
//!
//! Every number is one sum of products, taken in one order that depends on the width of the rows
//! alone: vectors of the machine's width from front to back, then one fixed tree. So a row's
//! results are the same bits whatever other rows are computed with it, and the matrix is read
//! once for all rows that fit into the cache together.

use rayon::prelude::*;

use super::lanes::{Lanes, Portable};
#[cfg(target_arch = "x86_64")]
use super::lanes::{Usual, Wide};

/// The most rows of a tile. With four columns that is 24 sums, which leaves registers of AVX-512
/// for the operands; the others have registers for half as many.
const ROWS: usize = 6;
const COLUMNS: usize = 4;
/// Bytes of rows that stay in the first-level cache beside a tile of the matrix.
const FIRST_LEVEL: usize = 24 << 10;
/// Bytes of the matrix that stay in the second-level cache while all rows pass.
const SECOND_LEVEL: usize = 512 << 10;
/// Multiplications below which splitting the work costs more than it saves.
const WORTH_SPLITTING: usize = 1 << 18;

/// A matrix inside a slice: `rows` of them, `width` numbers each, `stride` numbers apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    numbers: &'a [f32],
    rows: usize,
    width: usize,
    stride: usize,
}

impl<'a> Rows<'a> {
    /// Fails (`None`) where the slice is too short.
    pub(crate) fn new(
        numbers: &'a [f32],
        rows: usize,
        width: usize,
        stride: usize,
    ) -> Option<Self> {
        let fits = rows == 0 || (width <= stride && (rows - 1) * stride + width <= numbers.len());
        fits.then_some(Self { numbers, rows, width, stride })
    }

    pub(crate) fn count(&self) -> usize {
        self.rows
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    pub(crate) fn as_ptr(&self) -> *const f32 {
        self.numbers.as_ptr()
    }
}

/// output[r, o] = rows[r] · matrix[o]; `output` has `stride` numbers a row.
///
/// `false` where the shapes do not fit; nothing is computed then.
#[must_use]
pub(crate) fn rows_by_matrix(
    rows: Rows<'_>,
    matrix: Rows<'_>,
    output: &mut [f32],
    stride: usize,
) -> bool {
    product(rows, matrix, output, stride, rayon::current_num_threads())
}

/// [`rows_by_matrix`] on this thread alone, for callers that have split their work already.
#[must_use]
pub(crate) fn rows_by_matrix_here(
    rows: Rows<'_>,
    matrix: Rows<'_>,
    output: &mut [f32],
    stride: usize,
) -> bool {
    product(rows, matrix, output, stride, 1)
}

fn product(
    rows: Rows<'_>,
    matrix: Rows<'_>,
    output: &mut [f32],
    stride: usize,
    threads: usize,
) -> bool {
    let (count, outputs) = (rows.rows, matrix.rows);
    if rows.width != matrix.width || outputs > stride {
        return false;
    }
    if count == 0 || outputs == 0 {
        return true;
    }
    if (count - 1) * stride + outputs > output.len() {
        return false;
    }
    let target = Target { numbers: output.as_mut_ptr(), stride };
    let work = count * outputs * rows.width;
    if work < WORTH_SPLITTING || threads == 1 {
        // SAFETY: the shapes were checked; nobody else writes.
        unsafe { block(rows, matrix, 0, outputs, target) };
        return true;
    }
    // Columns are split, so that the matrix is read once. More parts than threads even out
    // what the machine does beside this.
    let part = outputs.div_ceil(threads * 4).next_multiple_of(COLUMNS);
    (0..outputs.div_ceil(part)).into_par_iter().for_each(|number| {
        let target = target;
        let (start, end) = (number * part, ((number + 1) * part).min(outputs));
        // SAFETY: the shapes were checked; each part writes its own columns.
        unsafe { block(rows, matrix, start, end, target) };
    });
    true
}

#[derive(Clone, Copy)]
struct Target {
    numbers: *mut f32,
    stride: usize,
}
// SAFETY: parts write to places of their own.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

/// The columns from `start` to `end`.
///
/// # Safety
///
/// `end` is at most the number of rows of the matrix, both have the same width, and the target
/// has room.
unsafe fn block(rows: Rows<'_>, matrix: Rows<'_>, start: usize, end: usize, target: Target) {
    #[cfg(target_arch = "x86_64")]
    {
        use super::simd::{Level, level};
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
        unsafe fn wide(rows: Rows<'_>, matrix: Rows<'_>, start: usize, end: usize, target: Target) {
            // SAFETY: the caller's promise.
            unsafe { block_of::<Wide>(rows, matrix, start, end, target) }
        }
        #[target_feature(enable = "avx2,fma")]
        unsafe fn usual(
            rows: Rows<'_>,
            matrix: Rows<'_>,
            start: usize,
            end: usize,
            target: Target,
        ) {
            // SAFETY: the caller's promise.
            unsafe { block_of::<Usual>(rows, matrix, start, end, target) }
        }
        match level() {
            // SAFETY: the machine has the instructions; the rest is the caller's promise.
            Level::Avx512 => return unsafe { wide(rows, matrix, start, end, target) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { usual(rows, matrix, start, end, target) },
            Level::Baseline => {}
        }
    }
    // SAFETY: the caller's promise.
    unsafe { block_of::<Portable>(rows, matrix, start, end, target) }
}

/// # Safety
///
/// As for [`block`], and the machine has the instructions of `L`.
#[inline(always)]
unsafe fn block_of<L: Lanes>(
    rows: Rows<'_>,
    matrix: Rows<'_>,
    start: usize,
    end: usize,
    target: Target,
) {
    let bytes = rows.width * size_of::<f32>();
    let together = (FIRST_LEVEL / bytes.max(1)).max(ROWS);
    let columns = if rows.rows <= together {
        // All rows stay in the first-level cache; the matrix streams past them.
        COLUMNS
    } else {
        (SECOND_LEVEL / bytes.max(1)).next_multiple_of(COLUMNS).max(COLUMNS)
    };
    let mut column = start;
    while column < end {
        let until = (column + columns).min(end);
        let mut row = 0;
        while row < rows.rows {
            // Eight rows are better read as 4 + 4 than as 6 + 2.
            let left = rows.rows - row;
            let most = if L::WIDTH == 16 { ROWS } else { ROWS / 2 };
            let height = left.div_ceil(left.div_ceil(most));
            // SAFETY: row + height and until are within the shapes.
            unsafe {
                match height {
                    1 => strip::<L, 1>(rows, matrix, row, column, until, target),
                    2 => strip::<L, 2>(rows, matrix, row, column, until, target),
                    3 => strip::<L, 3>(rows, matrix, row, column, until, target),
                    4 => strip::<L, 4>(rows, matrix, row, column, until, target),
                    5 => strip::<L, 5>(rows, matrix, row, column, until, target),
                    _ => strip::<L, ROWS>(rows, matrix, row, column, until, target),
                }
            }
            row += height;
        }
        column = until;
    }
}

/// `M` rows against the columns from `start` to `end`.
///
/// # Safety
///
/// As for [`block_of`], and `row + M` is at most the number of rows.
#[inline(always)]
unsafe fn strip<L: Lanes, const M: usize>(
    rows: Rows<'_>,
    matrix: Rows<'_>,
    row: usize,
    start: usize,
    end: usize,
    target: Target,
) {
    let width = rows.width;
    let mut column = start;
    // SAFETY: all offsets stay within the shapes that were checked.
    unsafe {
        let left = rows.numbers.as_ptr().add(row * rows.stride);
        let output = target.numbers.add(row * target.stride);
        while column + COLUMNS <= end {
            let right = matrix.numbers.as_ptr().add(column * matrix.stride);
            let sums = tile::<L, M, COLUMNS>(left, rows.stride, right, matrix.stride, width);
            for (number, sums) in sums.into_iter().enumerate() {
                let sums = L::sums(sums);
                output
                    .add(number * target.stride + column)
                    .cast::<[f32; 4]>()
                    .write_unaligned(sums);
            }
            column += COLUMNS;
        }
        while column < end {
            let right = matrix.numbers.as_ptr().add(column * matrix.stride);
            let sums = tile::<L, M, 1>(left, rows.stride, right, matrix.stride, width);
            for (number, [sum]) in sums.into_iter().enumerate() {
                let [sum, ..] = L::sums([sum; 4]);
                output.add(number * target.stride + column).write(sum);
            }
            column += 1;
        }
    }
}

/// # Safety
///
/// `M` rows at `left` and `N` rows at `right` can be read, `width` numbers each.
#[inline(always)]
#[allow(clippy::indexing_slicing, clippy::needless_range_loop, reason = "constant bounds")]
unsafe fn tile<L: Lanes, const M: usize, const N: usize>(
    left: *const f32,
    left_stride: usize,
    right: *const f32,
    right_stride: usize,
    width: usize,
) -> [[L; N]; M] {
    // SAFETY: reads stay below `width` in each row.
    unsafe {
        let mut sums = [[L::zero(); N]; M];
        // Pointers move on, because checked sums of offsets would stay in the loop.
        let mut lefts = [left; M];
        for m in 1..M {
            lefts[m] = lefts[m - 1].add(left_stride);
        }
        let mut rights = [right; N];
        for n in 1..N {
            rights[n] = rights[n - 1].add(right_stride);
        }
        for _ in 0..width / L::WIDTH {
            let mut columns = [L::zero(); N];
            for n in 0..N {
                columns[n] = L::load(rights[n]);
                rights[n] = rights[n].add(L::WIDTH);
            }
            for m in 0..M {
                let row = L::load(lefts[m]);
                lefts[m] = lefts[m].add(L::WIDTH);
                for n in 0..N {
                    sums[m][n] = row.times_plus(columns[n], sums[m][n]);
                }
            }
        }
        let rest = width % L::WIDTH;
        if rest > 0 {
            let mut columns = [L::zero(); N];
            for n in 0..N {
                columns[n] = L::load_first(rights[n], rest);
            }
            for m in 0..M {
                let row = L::load_first(lefts[m], rest);
                for n in 0..N {
                    sums[m][n] = row.times_plus(columns[n], sums[m][n]);
                }
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|at| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1000.0 - 1.0).collect()
    }

    #[test]
    fn products_are_those_of_f64_whatever_the_shape() {
        for (rows, columns, width) in
            [(1, 1, 1), (1, 9, 33), (5, 7, 16), (6, 4, 64), (13, 22, 100), (40, 130, 300)]
        {
            let (left, right) = (numbers(rows * (width + 3), 1), numbers(columns * width, 2));
            let mut output = vec![0.0; rows * (columns + 2)];
            let done = rows_by_matrix(
                Rows::new(&left, rows, width, width + 3).unwrap(),
                Rows::new(&right, columns, width, width).unwrap(),
                &mut output,
                columns + 2,
            );
            assert!(done);
            for row in 0..rows {
                for column in 0..columns {
                    let pairs = (0..width).map(|at| {
                        f64::from(left[row * (width + 3) + at])
                            * f64::from(right[column * width + at])
                    });
                    let ours = f64::from(output[row * (columns + 2) + column]);
                    assert!((ours - pairs.sum::<f64>()).abs() < 2e-5, "{rows} {columns} {width}");
                }
            }
        }
    }

    #[test]
    fn a_row_has_the_same_bits_in_every_company() {
        let (width, columns) = (200, 37);
        let right = numbers(columns * width, 2);
        let left = numbers(150 * width, 1);
        let run = |rows: &[f32]| {
            let count = rows.len() / width;
            let mut output = vec![0.0; count * columns];
            assert!(rows_by_matrix(
                Rows::new(rows, count, width, width).unwrap(),
                Rows::new(&right, columns, width, width).unwrap(),
                &mut output,
                columns,
            ));
            output
        };
        let all = run(&left);
        for (row, expected) in left.chunks(width).zip(all.chunks(columns)) {
            assert_eq!(run(row), expected);
        }
        assert_eq!(run(&left[7 * width..20 * width]), all[7 * columns..20 * columns]);
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let four = [0.0; 4];
        assert!(Rows::new(&four, 2, 3, 3).is_none());
        let (rows, wide) = (Rows::new(&four, 2, 2, 2).unwrap(), Rows::new(&four, 1, 3, 3).unwrap());
        assert!(!rows_by_matrix(rows, wide, &mut [0.0; 4], 2));
        assert!(!rows_by_matrix(rows, rows, &mut [0.0; 3], 2));
    }
}
