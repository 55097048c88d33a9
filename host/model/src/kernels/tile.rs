//! One tile of a product: sums that stay in registers while the terms pass by.

use super::lanes::{Lanes, Portable, SIDE};
#[cfg(target_arch = "x86_64")]
use super::lanes::{Usual, Wide};

/// Where a result goes.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) numbers: *mut f32,
    /// From one row to the next.
    pub(super) stride: usize,
}
// SAFETY: tasks write to places of their own.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

/// Rows of the left matrix as strips of a tile's height: row m and term k of strip s stand at
/// `s · strip + m · row + k · column`.
#[derive(Clone, Copy)]
pub(super) struct Left {
    pub(super) numbers: *const f32,
    pub(super) strip: usize,
    pub(super) row: usize,
    pub(super) column: usize,
}

/// What is worked on: `rows` × `columns` of the result, a sum of `terms` each.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) terms: usize,
    pub(super) scale: f32,
    /// Whether to add to what stands there.
    pub(super) add: bool,
}

/// The tile of this machine.
pub(super) struct Size {
    /// Its rows.
    pub(super) tall: usize,
    /// Its columns.
    pub(super) wide: usize,
    /// Numbers of a packed line of its rows: whole vectors, so that none lies across two lines of
    /// the cache.
    pub(super) line: usize,
    /// Columns of a product from which on packing the left matrix pays though its rows lie in
    /// order: tall strips read from as many places at once as they have rows.
    pub(super) pack_from: usize,
}

/// Rows and vectors of a tile that fill the 32 registers of AVX-512: as high as wide, since each
/// number of either side is loaded once a tile.
const WIDE: (usize, usize) = (12, 2);
/// And those that fill 16 registers.
const USUAL: (usize, usize) = (6, 2);

/// The tile of this machine.
pub(super) fn size() -> Size {
    #[cfg(target_arch = "x86_64")]
    {
        use super::simd::{Level, level};
        if level() == Level::Avx512 {
            return Size {
                tall: WIDE.0,
                wide: WIDE.1 * Wide::WIDTH,
                line: line::<Wide>(WIDE.0),
                pack_from: 128,
            };
        }
    }
    // The vectors of AVX2 are as wide as the portable ones.
    Size {
        tall: USUAL.0,
        wide: USUAL.1 * Portable::WIDTH,
        line: line::<Portable>(USUAL.0),
        pack_from: usize::MAX,
    }
}

/// Room for as many rows in whole vectors.
const fn line<L: Lanes>(rows: usize) -> usize {
    rows.next_multiple_of(L::WIDTH)
}

/// A panel of the result: `packed` holds a line of the panel's width for each term, `next` those
/// of the panel that comes after it, if any.
///
/// # Safety
///
/// The shapes fit, strips are whole, and nobody else uses the target.
pub(super) unsafe fn block(left: Left, packed: &[f32], next: &[f32], shape: Shape, target: Target) {
    #[cfg(target_arch = "x86_64")]
    {
        use super::simd::{Level, level};
        match level() {
            // SAFETY: the machine has the instructions; the rest is the caller's promise.
            Level::Avx512 => return unsafe { wide(left, packed, next, shape, target) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { usual(left, packed, next, shape, target) },
            Level::Baseline => {}
        }
    }
    // SAFETY: the caller's promise.
    unsafe { portable(left, packed, next, shape, target) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
unsafe fn wide(left: Left, packed: &[f32], next: &[f32], shape: Shape, target: Target) {
    // SAFETY: the caller's promise.
    unsafe { tiles::<Wide, { WIDE.0 }, { WIDE.1 }>(left, packed, next, shape, target) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn usual(left: Left, packed: &[f32], next: &[f32], shape: Shape, target: Target) {
    // SAFETY: the caller's promise.
    unsafe { tiles::<Usual, { USUAL.0 }, { USUAL.1 }>(left, packed, next, shape, target) }
}

unsafe fn portable(left: Left, packed: &[f32], next: &[f32], shape: Shape, target: Target) {
    // SAFETY: the caller's promise.
    unsafe { tiles::<Portable, { USUAL.0 }, { USUAL.1 }>(left, packed, next, shape, target) }
}

/// # Safety
///
/// As for [`block`], and the machine has the instructions of `L`. So for all below.
#[inline(always)]
unsafe fn tiles<L: Lanes, const M: usize, const N: usize>(
    left: Left,
    packed: &[f32],
    next: &[f32],
    shape: Shape,
    target: Target,
) {
    let strips = shape.rows.div_ceil(M);
    let mut soon = next.chunks(next.len().div_ceil(strips).max(1));
    for strip in 0..strips {
        // The next panel comes from afar: a part of it is fetched while each strip is summed.
        for numbers in soon.next().unwrap_or_default().chunks(SIDE) {
            L::announce(numbers.as_ptr());
        }
        // SAFETY: the strip is within the block.
        unsafe {
            let left = Left { numbers: left.numbers.add(strip * left.strip), ..left };
            let shape = Shape { rows: M.min(shape.rows - strip * M), ..shape };
            let numbers = target.numbers.add(strip * M * target.stride);
            for m in 0..shape.rows {
                for n in 0..N * L::WIDTH / SIDE {
                    L::announce(numbers.wrapping_add(m * target.stride + n * SIDE));
                }
            }
            let sums = sums::<L, M, N>(left, packed, shape.terms);
            if shape.rows == M && shape.columns == N * L::WIDTH {
                put(sums, shape, Target { numbers, ..target });
            } else {
                put_some(sums, shape, Target { numbers, ..target });
            }
        }
    }
}

/// # Safety
///
/// As above.
#[inline(always)]
#[allow(clippy::indexing_slicing, reason = "constant bounds")]
unsafe fn sums<L: Lanes, const M: usize, const N: usize>(
    left: Left,
    packed: &[f32],
    terms: usize,
) -> [[L; N]; M] {
    // SAFETY: the caller's promise.
    let mut sums = [[unsafe { L::zero() }; N]; M];
    // Pointers move on, because checked sums of offsets would stay in the loop.
    let mut from = packed.as_ptr();
    let line = const { line::<L>(M) };
    if left.row == 1 && left.column == line {
        // Packed: the only offsets are constant ones.
        let mut left = left.numbers;
        for _ in 0..terms {
            // SAFETY: the caller's promise.
            unsafe { add_term(std::array::from_fn(|m| left.wrapping_add(m)), from, &mut sums) };
            left = left.wrapping_add(line);
            from = from.wrapping_add(N * L::WIDTH);
        }
        return sums;
    }
    /// A processor adds twice and four times an offset to an address by itself, so that one
    /// pointer serves four rows: more pointers than registers would be slow.
    const TOGETHER: usize = 4;
    let mut lefts = [left.numbers; M];
    for m in (TOGETHER..M).step_by(TOGETHER) {
        lefts[m] = lefts[m - TOGETHER].wrapping_add(TOGETHER * left.row);
    }
    let offsets = [0, left.row, 2 * left.row, 3 * left.row];
    for _ in 0..terms {
        let places =
            std::array::from_fn(|m| lefts[m - m % TOGETHER].wrapping_add(offsets[m % TOGETHER]));
        // SAFETY: the caller's promise.
        unsafe { add_term(places, from, &mut sums) };
        for m in (0..M).step_by(TOGETHER) {
            lefts[m] = lefts[m].wrapping_add(left.column);
        }
        from = from.wrapping_add(N * L::WIDTH);
    }
    sums
}

/// Adds the products of one number of each row with one line of the panel.
///
/// # Safety
///
/// As above.
#[inline(always)]
#[allow(clippy::indexing_slicing, clippy::needless_range_loop, reason = "constant bounds")]
unsafe fn add_term<L: Lanes, const M: usize, const N: usize>(
    lefts: [*const f32; M],
    from: *const f32,
    sums: &mut [[L; N]; M],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut vectors = [L::zero(); N];
        for n in 0..N {
            vectors[n] = L::load(from.wrapping_add(n * L::WIDTH));
        }
        for m in 0..M {
            let factor = L::splat(lefts[m].read());
            for n in 0..N {
                sums[m][n] = factor.times_plus(vectors[n], sums[m][n]);
            }
        }
    }
}

/// # Safety
///
/// As above, and the whole tile is inside the result.
#[inline(always)]
#[allow(clippy::indexing_slicing, clippy::needless_range_loop, reason = "constant bounds")]
unsafe fn put<L: Lanes, const M: usize, const N: usize>(
    sums: [[L; N]; M],
    shape: Shape,
    target: Target,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let scale = L::splat(shape.scale);
        for m in 0..M {
            for n in 0..N {
                let place = target.numbers.wrapping_add(m * target.stride + n * L::WIDTH);
                let before = if shape.add { L::load(place) } else { L::zero() };
                sums[m][n].times_plus(scale, before).store(place);
            }
        }
    }
}

/// A tile over the edge of the result: what is beyond is neither read nor written.
///
/// # Safety
///
/// As above.
#[inline(always)]
unsafe fn put_some<L: Lanes, const M: usize, const N: usize>(
    sums: [[L; N]; M],
    shape: Shape,
    target: Target,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let scale = L::splat(shape.scale);
        for (m, line) in sums.iter().enumerate().take(shape.rows) {
            for (n, sum) in line.iter().enumerate() {
                let place = target.numbers.wrapping_add(m * target.stride + n * L::WIDTH);
                let rest = shape.columns.saturating_sub(n * L::WIDTH);
                if rest >= L::WIDTH {
                    let before = if shape.add { L::load(place) } else { L::zero() };
                    sum.times_plus(scale, before).store(place);
                } else if rest > 0 {
                    let before = if shape.add { L::load_first(place, rest) } else { L::zero() };
                    sum.times_plus(scale, before).store_first(place, rest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Frame = unsafe fn(Left, &[f32], &[f32], Shape, Target);

    /// Products run in the best frame of the machine; here every frame that it has.
    #[test]
    fn every_frame_computes_whole_and_partial_tiles() {
        let mut frames: Vec<(Frame, [usize; 3])> =
            vec![(portable, [USUAL.0, line::<Portable>(USUAL.0), USUAL.1 * Portable::WIDTH])];
        #[cfg(target_arch = "x86_64")]
        {
            use super::super::simd::{Level, level};
            if level() != Level::Baseline {
                frames.push((usual, [USUAL.0, line::<Usual>(USUAL.0), USUAL.1 * Usual::WIDTH]));
            }
            if level() == Level::Avx512 {
                frames.push((wide, [WIDE.0, line::<Wide>(WIDE.0), WIDE.1 * Wide::WIDTH]));
            }
        }
        for (frame, [tall, line, width]) in frames {
            for (rows, columns) in [(tall, width), (2 * tall + 5, width - 1), (1, 1)] {
                let (terms, stride) = (19, columns + 3);
                let strips = rows.div_ceil(tall);
                let left: Vec<f32> =
                    (0..strips * line * terms).map(|at| (at % 11) as f32).collect();
                let right: Vec<f32> = (0..terms * width).map(|at| (at % 7) as f32 - 3.0).collect();
                for packed in [true, false] {
                    let left_at = |m: usize, k: usize| match packed {
                        true => m / tall * line * terms + k * line + m % tall,
                        false => m * terms + k,
                    };
                    let (strip, row, column) =
                        if packed { (line * terms, 1, line) } else { (tall * terms, terms, 1) };
                    let view = Left { numbers: left.as_ptr(), strip, row, column };
                    let shape = Shape { rows, columns, terms, scale: 2.0, add: packed };
                    let mut result = vec![5.0; rows * stride];
                    let target = Target { numbers: result.as_mut_ptr(), stride };
                    // SAFETY: the machine has the frame, and all shapes fit.
                    unsafe { frame(view, &right, &right, shape, target) };
                    for (at, number) in result.into_iter().enumerate() {
                        let (m, n) = (at / stride, at % stride);
                        let sum: f32 = (0..terms)
                            .map(|k| left[left_at(m, k)] * right[k * width + n.min(width - 1)])
                            .sum();
                        let expected = match (n < columns, packed) {
                            (false, _) => 5.0,
                            (true, true) => 5.0 + 2.0 * sum,
                            (true, false) => 2.0 * sum,
                        };
                        assert_eq!(number, expected, "{m}, {n} of {rows} × {columns}");
                    }
                }
            }
        }
    }
}
