//! Causal attention, grouped queries, forward and backward.
//!
//! Work is cut into tiles of queries. Scores, softmax and sums are computed by kernels whose
//! order is fixed for each query, so a query's result is the same bits in a tile of one (a token
//! that is being sampled) and in a tile of many (a prompt, or training). What stands beyond a
//! query's own position gets the weight zero.

use rayon::prelude::*;

use super::{
    combine::{Factors, Into, combine, combine_at},
    dot::{Rows, rows_by_matrix_here},
    rows::{dot, softmax, softmax_backward},
};

/// Queries of a tile: their scores over some thousand keys stay in the second-level cache.
const TILE: usize = 48;
/// Multiplications below which splitting the work costs more than it saves.
const WORTH_SPLITTING: usize = 1 << 17;

/// Widths of the heads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    pub(crate) heads: usize,
    pub(crate) key_heads: usize,
    pub(crate) head: usize,
}

impl Heads {
    fn group(&self) -> usize {
        self.heads / self.key_heads.max(1)
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head as f32).sqrt()
    }
}

/// Tokens of one sequence that stand together in a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    /// The first row of the batch.
    pub(crate) row: usize,
    pub(crate) rows: usize,
    /// The position of the first row; it sees the keys up to its own position.
    pub(crate) position: usize,
    /// Keys of the sequence from position 0 on, all key heads of a position together.
    pub(crate) keys: &'a [f32],
    pub(crate) values: &'a [f32],
    /// From one position to the next.
    pub(crate) stride: usize,
}

/// Queries of all rows of a batch: (rows, stride), heads first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queries<'a> {
    pub(crate) numbers: &'a [f32],
    pub(crate) stride: usize,
}

#[derive(Clone, Copy)]
struct Place(*mut f32);
// SAFETY: tasks write to places of their own.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    /// # Safety
    ///
    /// The places are within the buffer, and no other task uses them meanwhile.
    unsafe fn slice<'a>(self, start: usize, length: usize) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), length) }
    }
}

/// A tile: some rows of a span, one key head.
struct Tile<'a> {
    span: Span<'a>,
    first: usize,
    rows: usize,
    key_head: usize,
}

/// Softmax(q kᵀ / √head) v, for every row: `output` is (rows, heads · head). `sums`, unless
/// empty, gets ln Σ e^score, (rows, heads).
///
/// `None` where the shapes do not fit.
pub(crate) fn attend(
    heads: Heads,
    queries: Queries<'_>,
    spans: &[Span<'_>],
    output: &mut [f32],
    sums: &mut [f32],
) -> Option<()> {
    let width = heads.heads * heads.head;
    let rows = check(heads, queries, spans)?;
    if output.len() != rows * width || !(sums.is_empty() || sums.len() == rows * heads.heads) {
        return None;
    }
    let mut tiles = Vec::new();
    let mut work = 0;
    for span in spans {
        work += span.rows * (span.position + span.rows) * width;
        for first in (0..span.rows).step_by(TILE) {
            for key_head in 0..heads.key_heads {
                let rows = TILE.min(span.rows - first);
                tiles.push(Tile { span: *span, first, rows, key_head });
            }
        }
    }
    let (target, wants_sums) = (Place(output.as_mut_ptr()), !sums.is_empty());
    let sums = Place(sums.as_mut_ptr());
    let one = |scores: &mut Vec<f32>, tile: &Tile<'_>| {
        // SAFETY: tiles differ in their rows or their heads.
        unsafe { tile_forward(heads, queries, tile, target, wants_sums.then_some(sums), scores) }
    };
    if work < WORTH_SPLITTING || tiles.len() == 1 {
        let mut scores = Vec::new();
        tiles.iter().try_for_each(|tile| one(&mut scores, tile))
    } else {
        tiles.par_iter().with_max_len(4).map_init(Vec::new, one).collect()
    }
}

/// Gives the number of rows; spans must cover them in order.
fn check(heads: Heads, queries: Queries<'_>, spans: &[Span<'_>]) -> Option<usize> {
    let Heads { heads, key_heads, head } = heads;
    if head == 0 || key_heads == 0 || !heads.is_multiple_of(key_heads) {
        return None;
    }
    let mut rows = 0;
    for span in spans {
        let keys = span.position + span.rows;
        let needed = (keys.max(1) - 1) * span.stride + key_heads * head;
        if span.rows == 0
            || span.row != rows
            || span.keys.len() < needed
            || span.values.len() < needed
            || span.stride < key_heads * head
        {
            return None;
        }
        rows += span.rows;
    }
    let needed = (rows.max(1) - 1) * queries.stride + heads * head;
    (rows == 0 || queries.numbers.len() >= needed && queries.stride >= heads * head).then_some(rows)
}

/// # Safety
///
/// `output` and `sums` have room, and nobody else writes to this tile's rows and heads.
unsafe fn tile_forward(
    heads: Heads,
    queries: Queries<'_>,
    tile: &Tile<'_>,
    output: Place,
    sums: Option<Place>,
    scores: &mut Vec<f32>,
) -> Option<()> {
    let Heads { head, .. } = heads;
    let width = heads.heads * head;
    let Tile { span, first, rows, key_head } = tile;
    let start = span.position + first;
    let visible = start + rows;
    scores.resize(rows * visible, 0.0);
    for member in 0..heads.group() {
        let number = key_head * heads.group() + member;
        let query_at = (span.row + first) * queries.stride + number * head;
        let own = Rows::new(queries.numbers.get(query_at..)?, *rows, head, queries.stride)?;
        let keys = Rows::new(span.keys.get(key_head * head..)?, visible, head, span.stride)?;
        if !rows_by_matrix_here(own, keys, scores, visible) {
            return None;
        }
        for (row, scores) in scores.chunks_exact_mut(visible).enumerate() {
            let (seen, beyond) = scores.split_at_mut(start + row + 1);
            let sum = softmax(seen, heads.scale());
            beyond.fill(0.0);
            if let Some(sums) = sums {
                let at = (span.row + first + row) * heads.heads + number;
                // SAFETY: this row and head are the tile's.
                unsafe { sums.slice(at, 1) }.fill(sum);
            }
        }
        let values = Rows::new(span.values.get(key_head * head..)?, visible, head, span.stride)?;
        let factors = Factors { numbers: scores, count: *rows, row: visible, column: 1 };
        let at = (span.row + first) * width + number * head;
        // SAFETY: tiles differ in their rows or their heads, and only these are written.
        let done = unsafe { combine_at(factors, values, output.0.add(at), width, Into::Replace) };
        if !done {
            return None;
        }
    }
    Some(())
}

/// What the backward pass of [`attend`] works on. Rows hold queries, keys and values side by
/// side, as the forward pass had them; each span is a whole sequence from position 0 on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backward<'a> {
    pub(crate) heads: Heads,
    /// (rows, queries + keys + values).
    pub(crate) numbers: &'a [f32],
    /// First rows and lengths of the sequences.
    pub(crate) sequences: &'a [(usize, usize)],
    /// What [`attend`] gave.
    pub(crate) output: &'a [f32],
    pub(crate) sums: &'a [f32],
    /// The gradient of `output`.
    pub(crate) gradient: &'a [f32],
}

/// The gradient of queries, keys and values, side by side like these.
///
/// `None` where the shapes do not fit.
pub(crate) fn attend_backward(pass: Backward<'_>) -> Option<Vec<f32>> {
    let Heads { heads, key_heads, head } = pass.heads;
    let (width, key_width) = (heads * head, key_heads * head);
    let stride = width + 2 * key_width;
    let rows: usize = pass.sequences.iter().map(|(_, rows)| rows).sum();
    if pass.numbers.len() != rows * stride
        || pass.output.len() != rows * width
        || pass.gradient.len() != rows * width
        || pass.sums.len() != rows * heads
        || pass.sequences.iter().any(|(first, count)| first + count > rows)
    {
        return None;
    }
    let mut result = vec![0f32; rows * stride];
    let target = Place(result.as_mut_ptr());
    let tasks: Vec<_> = pass
        .sequences
        .iter()
        .flat_map(|sequence| (0..heads).map(move |number| (*sequence, number)))
        .collect();
    // SAFETY: each task writes its own head's queries in its own rows.
    let one = |(sequence, number)| unsafe { head_backward(pass, sequence, number, target) };
    let parts: Option<Vec<_>> = tasks.par_iter().with_max_len(1).copied().map(one).collect();
    // Query heads that share a key head: their parts are added in order.
    for (((first, _), number), (keys, values)) in tasks.iter().zip(parts?) {
        let shared = number / pass.heads.group() * head;
        let rows = result.chunks_exact_mut(stride).skip(*first);
        for ((row, key), value) in rows.zip(keys.chunks_exact(head)).zip(values.chunks_exact(head))
        {
            let (row_keys, row_values) = row.get_mut(width..)?.split_at_mut(key_width);
            let (row_keys, row_values) =
                (row_keys.get_mut(shared..)?, row_values.get_mut(shared..)?);
            row_keys.iter_mut().zip(key).for_each(|(to, from)| *to += from);
            row_values.iter_mut().zip(value).for_each(|(to, from)| *to += from);
        }
    }
    Some(result)
}

/// One query head of one sequence: writes the gradient of its queries, gives those of its keys
/// and values, (rows, head) each.
///
/// # Safety
///
/// `target` is (rows, queries + keys + values), and nobody else writes this head's queries in
/// this sequence's rows.
unsafe fn head_backward(
    pass: Backward<'_>,
    (first_row, rows): (usize, usize),
    number: usize,
    target: Place,
) -> Option<(Vec<f32>, Vec<f32>)> {
    let Heads { heads, key_heads, head } = pass.heads;
    let (width, key_width) = (heads * head, key_heads * head);
    let stride = width + 2 * key_width;
    let shared = number / pass.heads.group() * head;
    let (mut key_gradient, mut value_gradient) = (vec![0f32; rows * head], vec![0f32; rows * head]);
    let (mut weights, mut slopes) = (Vec::new(), Vec::new());
    let scale = pass.heads.scale();
    for first in (0..rows).step_by(TILE) {
        let count = TILE.min(rows - first);
        let visible = first + count;
        weights.resize(count * visible, 0.0);
        slopes.resize(count * visible, 0.0);
        let from = |offset: usize, row: usize, rows: usize| {
            Rows::new(pass.numbers.get(row * stride + offset..)?, rows, head, stride)
        };
        let outer = |numbers| {
            let numbers: &[f32] = numbers;
            let at = (first_row + first) * width + number * head;
            Rows::new(numbers.get(at..)?, count, head, width)
        };
        let queries = from(number * head, first_row + first, count)?;
        let keys = from(width + shared, first_row, visible)?;
        let values = from(width + key_width + shared, first_row, visible)?;
        let gradient = outer(pass.gradient)?;
        if !rows_by_matrix_here(queries, keys, &mut weights, visible)
            || !rows_by_matrix_here(gradient, values, &mut slopes, visible)
        {
            return None;
        }
        let lines = weights.chunks_exact_mut(visible).zip(slopes.chunks_exact_mut(visible));
        for (row, (weights, slopes)) in lines.enumerate() {
            let at = (first_row + first + row) * width + number * head;
            let along = dot(pass.gradient.get(at..at + head)?, pass.output.get(at..at + head)?);
            let sum = *pass.sums.get((first_row + first + row) * heads + number)?;
            let (seen, beyond) = weights.split_at_mut(first + row + 1);
            let (slopes, slopes_beyond) = slopes.split_at_mut(first + row + 1);
            softmax_backward(seen, slopes, scale, sum, along);
            beyond.fill(0.0);
            slopes_beyond.fill(0.0);
        }
        let transposed = |numbers| Factors { numbers, count: visible, row: 1, column: visible };
        let straight = Factors { numbers: &slopes, count, row: visible, column: 1 };
        let at = (first_row + first) * stride + number * head;
        // SAFETY: this head's queries in these rows are the task's own.
        let done = unsafe { combine_at(straight, keys, target.0.add(at), stride, Into::Replace) };
        if !done
            || !combine(transposed(&weights), gradient, &mut value_gradient, head, Into::Add)
            || !combine(transposed(&slopes), queries, &mut key_gradient, head, Into::Add)
        {
            return None;
        }
    }
    Some((key_gradient, value_gradient))
}

#[cfg(test)]
mod tests {
    use super::{
        super::differences::{along, assert_gradient, numbers},
        *,
    };

    const HEADS: Heads = Heads { heads: 4, key_heads: 2, head: 6 };
    const WIDTH: usize = 24;
    const STRIDE: usize = 48;

    /// Attention inside sequences, (first row, rows) each, of rows with all projections.
    fn packed(all: &[f32], sequences: &[(usize, usize)]) -> (Vec<f32>, Vec<f32>) {
        let rows = all.len() / STRIDE;
        let spans: Vec<Span<'_>> = sequences
            .iter()
            .map(|(row, rows)| {
                let own = &all[row * STRIDE..(row + rows) * STRIDE];
                let (keys, values) = (&own[WIDTH..], &own[WIDTH + 12..]);
                Span { row: *row, rows: *rows, position: 0, keys, values, stride: STRIDE }
            })
            .collect();
        let (mut output, mut sums) = (vec![0.0; rows * WIDTH], vec![0.0; rows * HEADS.heads]);
        let queries = Queries { numbers: all, stride: STRIDE };
        attend(HEADS, queries, &spans, &mut output, &mut sums).unwrap();
        (output, sums)
    }

    /// The same, slowly and in f64.
    fn slow(all: &[f32], sequences: &[(usize, usize)]) -> Vec<f64> {
        let mut output = Vec::new();
        for (first, rows) in sequences {
            for row in *first..first + rows {
                for head in 0..HEADS.heads {
                    let at = |row: usize, offset: usize, n: usize| {
                        f64::from(all[row * STRIDE + offset + n])
                    };
                    let shared = head / 2 * HEADS.head;
                    let weights: Vec<f64> = (*first..=row)
                        .map(|key| {
                            let product = |n| at(row, head * 6, n) * at(key, WIDTH + shared, n);
                            ((0..6).map(product).sum::<f64>() / 6f64.sqrt()).exp()
                        })
                        .collect();
                    let sum: f64 = weights.iter().sum();
                    for n in 0..6 {
                        let pairs = (*first..=row).zip(&weights);
                        let term = |(key, weight): (usize, &f64)| {
                            weight * at(key, WIDTH + 12 + shared, n) / sum
                        };
                        output.push(pairs.map(term).sum());
                    }
                }
            }
        }
        output
    }

    #[test]
    fn every_query_sees_its_own_sequence_up_to_itself() {
        let sequences = [(0, 1), (1, 70), (71, 3), (74, 100)];
        let all: Vec<f32> = numbers(174 * STRIDE, 1).iter().map(|number| 2.0 * number).collect();
        let (output, _) = packed(&all, &sequences);
        for (ours, exact) in output.iter().zip(slow(&all, &sequences)) {
            assert!((f64::from(*ours) - exact).abs() < 2e-6, "{ours} {exact}");
        }
    }

    #[test]
    fn a_token_alone_has_the_bits_it_has_in_a_tile() {
        let all = numbers(130 * STRIDE, 1);
        let (output, _) = packed(&all, &[(0, 130)]);
        for row in [0, 1, 47, 48, 129] {
            let span = Span {
                row: 0,
                rows: 1,
                position: row,
                keys: &all[WIDTH..],
                values: &all[WIDTH + 12..],
                stride: STRIDE,
            };
            let queries = Queries { numbers: &all[row * STRIDE..], stride: STRIDE };
            let mut alone = vec![0.0; WIDTH];
            attend(HEADS, queries, &[span], &mut alone, &mut []).unwrap();
            assert_eq!(alone, output[row * WIDTH..(row + 1) * WIDTH]);
        }
    }

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let sequences = [(0, 5), (5, 3)];
        let all = numbers(8 * STRIDE, 1);
        let slope = numbers(8 * WIDTH, 2);
        let (output, sums) = packed(&all, &sequences);
        let gradient = attend_backward(Backward {
            heads: HEADS,
            numbers: &all,
            sequences: &sequences,
            output: &output,
            sums: &sums,
            gradient: &slope,
        });
        let value = |all: &[f32]| along(&packed(all, &sequences).0, &slope);
        assert_gradient("projections", value, &all, &gradient.unwrap());
    }

    #[test]
    fn the_gradient_of_many_tiles_is_a_sum_over_all_directions() {
        // Too many numbers to move one by one: some directions.
        let sequences = [(0, 120), (120, 57)];
        let all = numbers(177 * STRIDE, 1);
        let slope = numbers(177 * WIDTH, 2);
        let (output, sums) = packed(&all, &sequences);
        let gradient = attend_backward(Backward {
            heads: HEADS,
            numbers: &all,
            sequences: &sequences,
            output: &output,
            sums: &sums,
            gradient: &slope,
        })
        .unwrap();
        for seed in 3..6 {
            let direction = numbers(all.len(), seed);
            let value = |step: f32| {
                let moved: Vec<f32> =
                    all.iter().zip(&direction).map(|(at, by)| at + step * by).collect();
                let sum = slow(&moved, &sequences);
                sum.iter().zip(&slope).map(|(left, right)| left * f64::from(*right)).sum::<f64>()
            };
            let expected = (value(1e-3) - value(-1e-3)) / 2e-3;
            let ours = along(&gradient, &direction);
            assert!((ours - expected).abs() < 1e-3 * expected.abs().max(1.0), "{ours} {expected}");
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let all = numbers(4 * STRIDE, 1);
        let span = Span { row: 0, rows: 4, position: 0, keys: &all, values: &all, stride: STRIDE };
        let queries = Queries { numbers: &all, stride: STRIDE };
        let mut output = vec![0.0; 4 * WIDTH];
        for bad in [
            Span { row: 1, ..span },
            Span { rows: 0, ..span },
            Span { position: 1, ..span },
            Span { stride: 11, ..span },
            Span { keys: &all[..9], ..span },
        ] {
            assert!(attend(HEADS, queries, &[bad], &mut output, &mut []).is_none(), "{bad:?}");
        }
        assert!(attend(HEADS, queries, &[span], &mut output[1..], &mut []).is_none());
        assert!(attend(HEADS, queries, &[span], &mut output, &mut []).is_some());
    }
}
