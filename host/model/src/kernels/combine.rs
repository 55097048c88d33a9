//! Sums of rows: output[m] = Σ over k of factor[m, k] · rows[k].
//!
//! With factors read along either direction this is the product of two matrices stored row by
//! row, or of the first transposed. It works on what fits into the second-level cache and packs
//! nothing: attention's tiles. Sums are taken in the order of k, one after the other.

#[cfg(target_arch = "x86_64")]
use super::lanes::{Usual, Wide};
use super::{
    dot::Rows,
    lanes::{Lanes, Portable},
};

const ROWS: usize = 6;

/// Factors: factor[m, k] stands at `m · row + k · column`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Factors<'a> {
    pub(crate) numbers: &'a [f32],
    /// Rows of the output.
    pub(crate) count: usize,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// Whether sums replace what stands in the output or are added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Into {
    Replace,
    Add,
}

/// output[m] = (or +=) Σ factor[m, k] · rows[k]; `output` has `stride` numbers a row.
///
/// `false` where the shapes do not fit; nothing is computed then.
#[must_use]
pub(crate) fn combine(
    factors: Factors<'_>,
    rows: Rows<'_>,
    output: &mut [f32],
    stride: usize,
    into: Into,
) -> bool {
    let (count, width) = (factors.count, rows.width());
    if count == 0 || width == 0 {
        return true;
    }
    if width > stride || (count - 1) * stride + width > output.len() {
        return false;
    }
    // SAFETY: the output was checked.
    unsafe { combine_at(factors, rows, output.as_mut_ptr(), stride, into) }
}

/// [`combine`] into a part of a buffer that other tasks write other columns of.
///
/// # Safety
///
/// `factors.count` rows of the width of `rows` can be written at `output`, `stride` apart, and
/// nobody else uses these places.
#[must_use]
pub(crate) unsafe fn combine_at(
    factors: Factors<'_>,
    rows: Rows<'_>,
    output: *mut f32,
    stride: usize,
    into: Into,
) -> bool {
    let (count, terms) = (factors.count, rows.count());
    if count > 0 && terms > 0 {
        let last = (count - 1) * factors.row + (terms - 1) * factors.column;
        if last >= factors.numbers.len() {
            return false;
        }
    }
    // SAFETY: the factors were checked, the rest is the caller's promise.
    unsafe { run(factors, rows, output, stride, into == Into::Add) };
    true
}

/// # Safety
///
/// The shapes fit.
unsafe fn run(factors: Factors<'_>, rows: Rows<'_>, output: *mut f32, stride: usize, add: bool) {
    #[cfg(target_arch = "x86_64")]
    {
        use super::simd::{Level, level};
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
        unsafe fn wide(f: Factors<'_>, r: Rows<'_>, output: *mut f32, stride: usize, add: bool) {
            // SAFETY: the caller's promise.
            unsafe { columns::<Wide>(f, r, output, stride, add) }
        }
        #[target_feature(enable = "avx2,fma")]
        unsafe fn usual(f: Factors<'_>, r: Rows<'_>, output: *mut f32, stride: usize, add: bool) {
            // SAFETY: the caller's promise.
            unsafe { columns::<Usual>(f, r, output, stride, add) }
        }
        match level() {
            // SAFETY: the machine has the instructions; the rest is the caller's promise.
            Level::Avx512 => return unsafe { wide(factors, rows, output, stride, add) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { usual(factors, rows, output, stride, add) },
            Level::Baseline => {}
        }
    }
    // SAFETY: the caller's promise.
    unsafe { columns::<Portable>(factors, rows, output, stride, add) }
}

/// # Safety
///
/// The shapes fit, and the machine has the instructions of `L`. So for all below.
#[inline(always)]
unsafe fn columns<L: Lanes>(
    factors: Factors<'_>,
    rows: Rows<'_>,
    output: *mut f32,
    stride: usize,
    add: bool,
) {
    let mut column = 0;
    // SAFETY: columns stay below the width.
    unsafe {
        // AVX-512 has registers for 6 × 4 sums, the others for 6 × 2.
        let vectors = if L::WIDTH == 16 { 4 } else { 2 };
        while column + vectors * L::WIDTH <= rows.width() {
            if L::WIDTH == 16 {
                heights::<L, 4>(factors, rows, output, stride, add, column, L::WIDTH);
            } else {
                heights::<L, 2>(factors, rows, output, stride, add, column, L::WIDTH);
            }
            column += vectors * L::WIDTH;
        }
        while column + L::WIDTH <= rows.width() {
            heights::<L, 1>(factors, rows, output, stride, add, column, L::WIDTH);
            column += L::WIDTH;
        }
        if column < rows.width() {
            let rest = rows.width() - column;
            heights::<L, 1>(factors, rows, output, stride, add, column, rest);
        }
    }
}

/// # Safety
///
/// As above; `last` numbers of the last vector are used.
#[inline(always)]
unsafe fn heights<L: Lanes, const N: usize>(
    factors: Factors<'_>,
    rows: Rows<'_>,
    output: *mut f32,
    stride: usize,
    add: bool,
    column: usize,
    last: usize,
) {
    let mut row = 0;
    while row < factors.count {
        let height = ROWS.min(factors.count - row);
        // SAFETY: row + height is within the shapes.
        unsafe {
            let factor = factors.numbers.as_ptr().add(row * factors.row);
            let steps = (factors.row, factors.column);
            let from = rows.as_ptr().add(column);
            let to = output.add(row * stride + column);
            let shape = Shape { terms: rows.count(), rows: rows.stride(), stride, add, last };
            match height {
                1 => tile::<L, 1, N>(factor, steps, from, to, shape),
                2 => tile::<L, 2, N>(factor, steps, from, to, shape),
                3 => tile::<L, 3, N>(factor, steps, from, to, shape),
                4 => tile::<L, 4, N>(factor, steps, from, to, shape),
                5 => tile::<L, 5, N>(factor, steps, from, to, shape),
                _ => tile::<L, ROWS, N>(factor, steps, from, to, shape),
            }
        }
        row += height;
    }
}

#[derive(Clone, Copy)]
struct Shape {
    terms: usize,
    rows: usize,
    stride: usize,
    add: bool,
    last: usize,
}

/// # Safety
///
/// As above.
#[inline(always)]
#[allow(clippy::indexing_slicing, clippy::needless_range_loop, reason = "constant bounds")]
unsafe fn tile<L: Lanes, const M: usize, const N: usize>(
    factor: *const f32,
    (row_step, column_step): (usize, usize),
    from: *const f32,
    to: *mut f32,
    shape: Shape,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let whole = shape.last == L::WIDTH;
        let mut sums = [[L::zero(); N]; M];
        if shape.add {
            for m in 0..M {
                for n in 0..N {
                    let place = to.add(m * shape.stride + n * L::WIDTH);
                    sums[m][n] =
                        if whole { L::load(place) } else { L::load_first(place, shape.last) };
                }
            }
        }
        // Pointers move on, because checked sums of offsets would stay in the loop.
        let mut from = from;
        let mut factors = [factor; M];
        for m in 1..M {
            factors[m] = factors[m - 1].add(row_step);
        }
        for _ in 0..shape.terms {
            let mut vectors = [L::zero(); N];
            for n in 0..N {
                let place = from.add(n * L::WIDTH);
                vectors[n] = if whole { L::load(place) } else { L::load_first(place, shape.last) };
            }
            from = from.wrapping_add(shape.rows);
            for m in 0..M {
                let factor = L::splat(factors[m].read());
                factors[m] = factors[m].wrapping_add(column_step);
                for n in 0..N {
                    sums[m][n] = factor.times_plus(vectors[n], sums[m][n]);
                }
            }
        }
        for m in 0..M {
            for n in 0..N {
                let place = to.add(m * shape.stride + n * L::WIDTH);
                if whole {
                    sums[m][n].store(place);
                } else {
                    sums[m][n].store_first(place, shape.last);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_right_in_both_directions() {
        for (count, terms, width) in [(1, 1, 1), (7, 5, 64), (6, 48, 80), (13, 3, 37), (2, 0, 4)] {
            let factors: Vec<f32> = (0..count * terms).map(|at| (at % 11) as f32 - 5.0).collect();
            let rows: Vec<f32> = (0..terms * width).map(|at| (at % 7) as f32 - 3.0).collect();
            for across in [false, true] {
                let (row, column) = if across { (1, count) } else { (terms, 1) };
                let mut output = vec![1.0; count * width];
                let factors = Factors { numbers: &factors, count, row, column };
                let from = Rows::new(&rows, terms, width, width).unwrap();
                assert!(combine(factors, from, &mut output, width, Into::Add));
                for m in 0..count {
                    for at in 0..width {
                        let term =
                            |k: usize| factors.numbers[m * row + k * column] * rows[k * width + at];
                        let sum = 1.0 + (0..terms).map(term).sum::<f32>();
                        assert_eq!(output[m * width + at], sum);
                    }
                }
                let before = output.clone();
                assert!(combine(factors, from, &mut output, width, Into::Replace));
                assert!(output.iter().zip(before).all(|(now, before)| *now == before - 1.0));
            }
        }
    }
}
