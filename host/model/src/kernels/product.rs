//! The product of two large matrices, for many rows at once: training and long prompts.
//!
//! Both matrices are packed ([`super::packing`]): the right one into panels as wide as a tile of
//! the result, the left one into strips as tall as a tile, so that a tile ([`super::tile`]) reads
//! both in order whatever their layout was. A panel stays in the first cache while the strips of
//! a block pass by. Every number is summed in the order of the inner dimension. Against the
//! kernels of [`super::dot`], which read a matrix where it lies, this pays from some tens of rows
//! on.

use std::{cell::RefCell, ops::Range};

use rayon::prelude::*;

pub(crate) use super::packing::View;
use super::{
    packing::{Part, TOGETHER, aligned, pack},
    tile::{Left, Shape, Size, Target, block, size},
};

/// Rows of the left matrix that are worked on together: whole tiles of every size.
const BLOCK: usize = 240;
/// Terms of a sum that are packed together.
const DEPTH: usize = 512;
/// Numbers of the right matrix that are packed together: 16 MiB.
const PACKED: usize = 4 << 20;

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

thread_local! {
    /// The packed right matrix, kept from call to call: at most 16 MiB a thread that asks.
    static PANELS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    /// A block of the packed left matrix: at most 640 KiB a thread.
    static STRIPS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
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
    let Size { wide, .. } = size();
    for deep in (0..depth).step_by(DEPTH) {
        let terms = deep..depth.min(deep + DEPTH);
        let add = add || deep > 0;
        let slab = (PACKED / terms.len()).max(wide) / wide * wide;
        for start in (0..columns).step_by(slab) {
            let width = slab.min(columns - start);
            let panels = width.div_ceil(wide);
            let packed = aligned(packed, panels * wide * terms.len());
            packed.par_chunks_mut(TOGETHER * wide * terms.len()).enumerate().for_each(
                |(number, packed)| {
                    let first = start + number * TOGETHER * wide;
                    pack(right, Part { rows: &terms, first, wide, line: wide }, packed);
                },
            );
            let packed = &*packed;
            let blocks = rows.div_ceil(BLOCK);
            let wanted = 4 * rayon::current_num_threads();
            let group = if blocks >= wanted {
                panels
            } else {
                panels.div_ceil(wanted.div_ceil(blocks)).max(1)
            };
            let groups = panels.div_ceil(group);
            (0..blocks * groups).into_par_iter().with_max_len(1).for_each(|task| {
                let mut scratch = STRIPS.take();
                #[allow(
                    clippy::redundant_locals,
                    reason = "takes the whole: its pointer alone is not Send"
                )]
                let target = target;
                let (first, group_number) = (task / groups * BLOCK, task % groups);
                let height = BLOCK.min(rows - first);
                let left = strips(left, first..first + height, &terms, columns, &mut scratch);
                let some = group_number * group..((group_number + 1) * group).min(panels);
                let mut packed =
                    packed.chunks_exact(wide * terms.len()).take(some.end).skip(some.start);
                let mut next = packed.next();
                for number in some {
                    let Some(now) = next else { break };
                    next = packed.next();
                    let column = start + number * wide;
                    let shape = Shape {
                        rows: height,
                        columns: wide.min(columns - column),
                        terms: terms.len(),
                        scale,
                        add,
                    };
                    // SAFETY: the shapes were checked; tasks differ in rows or columns.
                    unsafe {
                        let place = target.numbers.add(first * target.stride + column);
                        let target = Target { numbers: place, ..target };
                        block(left, now, next.unwrap_or_default(), shape, target);
                    }
                }
                STRIPS.set(scratch);
            });
        }
    }
}

/// Some rows of the left matrix and some terms of each, as strips of a tile's height: packed, or
/// where they lie if that costs less.
fn strips(
    left: View<'_>,
    rows: Range<usize>,
    terms: &Range<usize>,
    columns: usize,
    scratch: &mut Vec<f32>,
) -> Left {
    let Size { tall, line, pack_from, .. } = size();
    // A last strip with fewer rows reads beyond them, so it is packed.
    if left.column == 1 && columns < pack_from && rows.len().is_multiple_of(tall) {
        let numbers = left.numbers.get(rows.start * left.row + terms.start..).unwrap_or_default();
        return Left {
            numbers: numbers.as_ptr(),
            strip: tall * left.row,
            row: left.row,
            column: 1,
        };
    }
    let strip = line * terms.len();
    let packed = aligned(scratch, rows.len().div_ceil(tall) * strip);
    let part = Part { rows: terms, first: rows.start, wide: tall, line };
    pack(left.transposed(), part, packed);
    Left { numbers: packed.as_ptr(), strip, row: 1, column: line }
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
