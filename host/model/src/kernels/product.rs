//! The product of two large matrices, for many rows at once: training and long prompts.
//!
//! The right matrix is packed into panels as wide as a tile, so that a tile reads it in order
//! whatever its layout was; the left one is packed where its rows do not lie in order. Every
//! number is summed in the order of the inner dimension. Against the kernels of [`super::dot`],
//! which read a matrix where it lies, this pays from some tens of rows on.

use std::cell::RefCell;

use rayon::prelude::*;

use super::lanes::{Lanes, Portable};
#[cfg(target_arch = "x86_64")]
use super::lanes::{Usual, Wide};

/// Rows of a tile.
const ROWS: usize = 6;
/// Rows of the left matrix that are worked on together.
const BLOCK: usize = 96;
/// Terms of a sum that are packed together.
const DEPTH: usize = 256;
/// Numbers of the right matrix that are packed together: 16 MiB.
const PACKED: usize = 4 << 20;

/// A matrix inside a slice: element (r, c) stands at `r · row + c · column`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    numbers: &'a [f32],
    rows: usize,
    columns: usize,
    row: usize,
    column: usize,
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

    fn fits(&self) -> bool {
        self.rows == 0
            || self.columns == 0
            || (self.rows - 1) * self.row + (self.columns - 1) * self.column < self.numbers.len()
    }
}

/// Where a product goes.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    /// The first number of the result stands at the beginning.
    pub(crate) numbers: &'a mut [f32],
    /// From one row to the next.
    pub(crate) stride: usize,
    /// Whether the product is added to what stands there.
    pub(crate) add: bool,
}

#[derive(Clone, Copy)]
struct Target {
    numbers: *mut f32,
    stride: usize,
}
// SAFETY: tasks write to places of their own.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

thread_local! {
    /// The packed right matrix, kept from call to call: at most 16 MiB a thread that asks.
    static PANELS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// output = (or +=) scale · left · right.
///
/// `false` where the shapes do not fit; nothing is computed then.
#[must_use]
pub(crate) fn product(left: View<'_>, right: View<'_>, scale: f32, output: Output<'_>) -> bool {
    let (rows, columns, depth) = (left.rows, right.columns, left.columns);
    let Output { numbers, stride, add } = output;
    if depth != right.rows || !left.fits() || !right.fits() || columns > stride {
        return false;
    }
    if rows == 0 || columns == 0 {
        return true;
    }
    if (rows - 1) * stride + columns > numbers.len() {
        return false;
    }
    if depth == 0 && !add {
        for row in numbers.chunks_mut(stride).take(rows) {
            row.iter_mut().take(columns).for_each(|number| *number = 0.0);
        }
    }
    let target = Target { numbers: numbers.as_mut_ptr(), stride };
    let mut panels = PANELS.take();
    multiply(left, right, scale, target, add, &mut panels);
    PANELS.set(panels);
    true
}

fn multiply(
    left: View<'_>,
    right: View<'_>,
    scale: f32,
    target: Target,
    add: bool,
    packed: &mut Vec<f32>,
) {
    let (rows, columns, depth) = (left.rows, right.columns, left.columns);
    let Target { stride, .. } = target;
    let panel = panel();
    for deep in (0..depth).step_by(DEPTH) {
        let terms = DEPTH.min(depth - deep);
        let add = add || deep > 0;
        let slab = (PACKED / terms).max(panel) / panel * panel;
        for start in (0..columns).step_by(slab) {
            let width = slab.min(columns - start);
            let panels = width.div_ceil(panel);
            packed.resize(panels * panel * terms, 0.0);
            packed.par_chunks_exact_mut(panel * terms).enumerate().for_each(|(number, packed)| {
                let first = start + number * panel;
                pack_panel(right, deep, first, panel.min(columns - first), panel, packed);
            });
            let packed = &*packed;
            let blocks = rows.div_ceil(BLOCK);
            let wanted = 4 * rayon::current_num_threads();
            let group = if blocks >= wanted {
                panels
            } else {
                panels.div_ceil(wanted.div_ceil(blocks)).max(1)
            };
            let groups = panels.div_ceil(group);
            (0..blocks * groups).into_par_iter().with_max_len(1).for_each_init(
                Vec::new,
                |scratch, task| {
                    #[allow(
                        clippy::redundant_locals,
                        reason = "takes the whole: its pointer alone is not Send"
                    )]
                    let target = target;
                    let (first, group_number) = (task / groups * BLOCK, task % groups);
                    let height = BLOCK.min(rows - first);
                    let left = Left::pack(left, first, height, deep, terms, scratch);
                    for number in group_number * group..((group_number + 1) * group).min(panels) {
                        let column = start + number * panel;
                        let Some(packed) =
                            packed.get(number * panel * terms..(number + 1) * panel * terms)
                        else {
                            return;
                        };
                        let shape = Shape {
                            rows: height,
                            columns: panel.min(columns - column),
                            terms,
                            scale,
                            add,
                        };
                        // SAFETY: the shapes were checked; tasks differ in rows or columns.
                        unsafe {
                            let place = Target {
                                numbers: target.numbers.add(first * stride + column),
                                stride,
                            };
                            block(left, packed, shape, place);
                        }
                    }
                },
            );
        }
    }
}

/// A block of the left matrix: tile t, row m, term k stands at
/// `t · tile + m · row + k · column`.
#[derive(Clone, Copy)]
struct Left {
    numbers: *const f32,
    tile: usize,
    row: usize,
    column: usize,
}

impl Left {
    fn pack(
        left: View<'_>,
        first: usize,
        height: usize,
        deep: usize,
        terms: usize,
        scratch: &mut Vec<f32>,
    ) -> Self {
        let start = first * left.row + deep * left.column;
        let numbers = left.numbers.get(start..).unwrap_or_default();
        if left.column == 1 {
            return Self {
                numbers: numbers.as_ptr(),
                tile: ROWS * left.row,
                row: left.row,
                column: 1,
            };
        }
        let tiles = height.div_ceil(ROWS);
        scratch.resize(tiles * ROWS * terms, 0.0);
        for term in 0..terms {
            let Some(from) = numbers.get(term * left.column..) else { continue };
            if left.row == 1 {
                let from = from.get(..height).unwrap_or_default();
                let (whole, rest) = from.as_chunks::<ROWS>();
                let mut to = scratch.chunks_exact_mut(ROWS * terms);
                for from in whole {
                    let to = to.next().and_then(|to| to.get_mut(term * ROWS..));
                    if let Some(to) = to.and_then(|to| to.first_chunk_mut()) {
                        *to = *from;
                    }
                }
                if let Some(to) = to.next().and_then(|to| to.get_mut(term * ROWS..)) {
                    to.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                }
                continue;
            }
            let mut from = from.iter().step_by(left.row).take(height);
            for to in scratch.chunks_exact_mut(ROWS * terms) {
                let to = to.get_mut(term * ROWS..(term + 1) * ROWS).unwrap_or_default();
                to.iter_mut().zip(&mut from).for_each(|(to, from)| *to = *from);
            }
        }
        Self { numbers: scratch.as_ptr(), tile: ROWS * terms, row: 1, column: ROWS }
    }
}

/// Columns from `first` on, `terms` rows from `deep` on, as `terms` lines of `panel` numbers.
fn pack_panel(
    right: View<'_>,
    deep: usize,
    first: usize,
    columns: usize,
    panel: usize,
    packed: &mut [f32],
) {
    if columns < panel {
        packed.fill(0.0);
    }
    if right.column == 1 {
        for (term, line) in packed.chunks_exact_mut(panel).enumerate() {
            let at = (deep + term) * right.row + first;
            if let (Some(from), Some(to)) =
                (right.numbers.get(at..at + columns), line.get_mut(..columns))
            {
                to.copy_from_slice(from);
            }
        }
        return;
    }
    // Columns that lie in order: squares of sixteen by sixteen, turned.
    const SIDE: usize = 16;
    let terms = packed.len() / panel;
    for some in (0..columns).step_by(SIDE) {
        let many = SIDE.min(columns - some);
        let mut from = [&[] as &[f32]; SIDE];
        for (number, from) in from.iter_mut().enumerate().take(many) {
            let at = (first + some + number) * right.column + deep * right.row;
            *from = right.numbers.get(at..).unwrap_or_default();
        }
        let mut done = 0;
        if many == SIDE && right.row == 1 {
            while done + SIDE <= terms {
                let mut square = [[0f32; SIDE]; SIDE];
                for (line, from) in square.iter_mut().zip(from) {
                    if let Some(numbers) = from.get(done..).and_then(|from| from.first_chunk()) {
                        *line = *numbers;
                    }
                }
                for term in 0..SIDE {
                    let at = (done + term) * panel + some;
                    let to = packed.get_mut(at..).and_then(|to| to.first_chunk_mut::<SIDE>());
                    let Some(to) = to else { continue };
                    for (to, line) in to.iter_mut().zip(&square) {
                        *to = line.get(term).copied().unwrap_or_default();
                    }
                }
                done += SIDE;
            }
        }
        for term in done..terms {
            let at = term * panel + some;
            let Some(to) = packed.get_mut(at..at + many) else { continue };
            for (to, from) in to.iter_mut().zip(from) {
                *to = from.get(term * right.row).copied().unwrap_or_default();
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Shape {
    rows: usize,
    columns: usize,
    terms: usize,
    scale: f32,
    add: bool,
}

/// Columns of a panel on this machine.
fn panel() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        use super::simd::{Level, level};
        match level() {
            Level::Avx512 => return 4 * Wide::WIDTH,
            Level::Avx2 => return 2 * Usual::WIDTH,
            Level::Baseline => {}
        }
    }
    2 * Portable::WIDTH
}

/// # Safety
///
/// The shapes fit, and nobody else uses the target.
unsafe fn block(left: Left, packed: &[f32], shape: Shape, target: Target) {
    #[cfg(target_arch = "x86_64")]
    {
        use super::simd::{Level, level};
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
        unsafe fn wide(left: Left, packed: &[f32], shape: Shape, target: Target) {
            // SAFETY: the caller's promise.
            unsafe { tiles::<Wide, 4>(left, packed, shape, target) }
        }
        #[target_feature(enable = "avx2,fma")]
        unsafe fn usual(left: Left, packed: &[f32], shape: Shape, target: Target) {
            // SAFETY: the caller's promise.
            unsafe { tiles::<Usual, 2>(left, packed, shape, target) }
        }
        match level() {
            // SAFETY: the machine has the instructions; the rest is the caller's promise.
            Level::Avx512 => return unsafe { wide(left, packed, shape, target) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { usual(left, packed, shape, target) },
            Level::Baseline => {}
        }
    }
    // SAFETY: the caller's promise.
    unsafe { tiles::<Portable, 2>(left, packed, shape, target) }
}

/// # Safety
///
/// As for [`block`], and the machine has the instructions of `L`. So for all below.
#[inline(always)]
unsafe fn tiles<L: Lanes, const N: usize>(
    left: Left,
    packed: &[f32],
    shape: Shape,
    target: Target,
) {
    for tile in 0..shape.rows.div_ceil(ROWS) {
        // SAFETY: the tile is within the block.
        unsafe {
            let left = Left { numbers: left.numbers.add(tile * left.tile), ..left };
            let to = target.numbers.add(tile * ROWS * target.stride);
            let from = packed.as_ptr();
            match shape.rows - tile * ROWS {
                1 => one::<L, 1, N>(left, from, shape, to, target.stride),
                2 => one::<L, 2, N>(left, from, shape, to, target.stride),
                3 => one::<L, 3, N>(left, from, shape, to, target.stride),
                4 => one::<L, 4, N>(left, from, shape, to, target.stride),
                5 => one::<L, 5, N>(left, from, shape, to, target.stride),
                _ => one::<L, ROWS, N>(left, from, shape, to, target.stride),
            }
        }
    }
}

/// # Safety
///
/// As above.
#[inline(always)]
#[allow(clippy::indexing_slicing, clippy::needless_range_loop, reason = "constant bounds")]
unsafe fn one<L: Lanes, const M: usize, const N: usize>(
    left: Left,
    from: *const f32,
    shape: Shape,
    to: *mut f32,
    stride: usize,
) {
    // SAFETY: the caller's promise; what is beyond the last column is neither read nor written.
    unsafe {
        let mut sums = [[L::zero(); N]; M];
        // Pointers move on, because checked sums of offsets would stay in the loop.
        let mut from = from;
        let mut lefts = [left.numbers; M];
        for m in 1..M {
            lefts[m] = lefts[m - 1].add(left.row);
        }
        for _ in 0..shape.terms {
            let mut vectors = [L::zero(); N];
            for n in 0..N {
                vectors[n] = L::load(from.add(n * L::WIDTH));
            }
            from = from.wrapping_add(N * L::WIDTH);
            for m in 0..M {
                let factor = L::splat(lefts[m].read());
                lefts[m] = lefts[m].wrapping_add(left.column);
                for n in 0..N {
                    sums[m][n] = factor.times_plus(vectors[n], sums[m][n]);
                }
            }
        }
        let scale = L::splat(shape.scale);
        for m in 0..M {
            for n in 0..N {
                let place = to.wrapping_add(m * stride + n * L::WIDTH);
                let rest = shape.columns.saturating_sub(n * L::WIDTH);
                if rest >= L::WIDTH {
                    let before = if shape.add { L::load(place) } else { L::zero() };
                    sums[m][n].times_plus(scale, before).store(place);
                } else if rest > 0 {
                    let before = if shape.add { L::load_first(place, rest) } else { L::zero() };
                    sums[m][n].times_plus(scale, before).store_first(place, rest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_right_in_every_layout() {
        for (rows, columns, depth) in [(1, 1, 1), (7, 70, 5), (100, 165, 133), (13, 200, 1100)] {
            let number = |at: usize, by: usize| ((at * by) % 13) as f32 - 6.0;
            let a: Vec<f32> = (0..rows * depth).map(|at| number(at, 7)).collect();
            let b: Vec<f32> = (0..depth * columns).map(|at| number(at, 5)).collect();
            for (left_turned, right_turned, add) in [
                (false, false, false),
                (false, true, true),
                (true, false, true),
                (true, true, false),
            ] {
                let left = match left_turned {
                    false => View::new(&a, rows, depth),
                    true => View::new(&a, depth, rows).transposed(),
                };
                let right = match right_turned {
                    false => View::new(&b, depth, columns),
                    true => View::new(&b, columns, depth).transposed(),
                };
                let stride = columns + 1;
                let mut numbers = vec![3.0; rows * stride];
                assert!(product(left, right, 2.0, Output { numbers: &mut numbers, stride, add }));
                for r in 0..rows {
                    for c in 0..columns {
                        // Whole numbers: every sum is exact.
                        let term = |k: usize| {
                            a[r * left.row + k * left.column] * b[k * right.row + c * right.column]
                        };
                        let start = if add { 3.0 } else { 0.0 };
                        let sum: f32 = start + 2.0 * (0..depth).map(term).sum::<f32>();
                        assert_eq!(numbers[r * stride + c], sum);
                    }
                    assert_eq!(numbers[r * stride + columns], 3.0);
                }
            }
        }
    }
}
