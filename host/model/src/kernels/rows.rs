//! Work on one row of numbers: norms, gates, softmax.
//!
//! Sums run in sixteen lanes, always in the same order, so a row's result never depends on what
//! else is computed.

use super::simd::{framed, fused};

const LANES: usize = 16;
/// Numbers summed in f32 before the sum goes to f64.
const BLOCK: usize = 512;

/// e^x within two units in the last place; 0 below the smallest normal number.
#[inline(always)]
pub(crate) fn exponential<const FUSED: bool>(x: f32) -> f32 {
    // x = n ln 2 + r with |r| ≤ ln 2 / 2; e^r by its series. Adding and taking away 1.5 · 2^23
    // rounds to a whole number.
    const MAGIC: f32 = 12_582_912.0;
    let bounded = x.clamp(-87.3, 88.3);
    let shifted = fused::<FUSED>(bounded, std::f32::consts::LOG2_E, MAGIC);
    let whole = shifted - MAGIC;
    let rest = fused::<FUSED>(whole, -0.693_359_4, bounded);
    let rest = fused::<FUSED>(whole, 2.121_944_4e-4, rest);
    let mut sum = 1.0 / 5040.0;
    for factor in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = fused::<FUSED>(sum, rest, factor);
    }
    let power = f32::from_bits(((shifted.to_bits() as i32) << 23).wrapping_add(127 << 23) as u32);
    if x < -87.3 { 0.0 } else { sum * power }
}

#[inline(always)]
fn lanes_sum(lanes: [f32; LANES]) -> f32 {
    let mut lanes = lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for at in 0..width {
            #[allow(clippy::indexing_slicing, reason = "both are below the array's length")]
            {
                lanes[at] += lanes[at + width];
            }
        }
        width /= 2;
    }
    let [sum, ..] = lanes;
    sum
}

/// Σ f(a, b) over two rows of one length.
#[inline(always)]
fn sum_of(left: &[f32], right: &[f32], term: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let mut sums = [0f32; LANES];
    let (left_parts, left_rest) = left.as_chunks::<LANES>();
    let (right_parts, right_rest) = right.as_chunks::<LANES>();
    for (left, right) in left_parts.iter().zip(right_parts) {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum = term(*left, *right, *sum);
        }
    }
    let mut rest = 0.0;
    for (left, right) in left_rest.iter().zip(right_rest) {
        rest = term(*left, *right, rest);
    }
    lanes_sum(sums) + rest
}

#[inline(always)]
fn dot_body<const FUSED: bool>(left: &[f32], right: &[f32]) -> f32 {
    sum_of(left, right, |left, right, sum| fused::<FUSED>(left, right, sum))
}
framed!(
    /// Σ left · right.
    pub(crate) fn dot(left: &[f32], right: &[f32]) -> f32 = dot_body
);

#[inline(always)]
fn add_scaled_body<const FUSED: bool>(factor: f32, from: &[f32], to: &mut [f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = fused::<FUSED>(factor, *from, *to);
    }
}
framed!(
    /// to += factor · from.
    pub(crate) fn add_scaled(factor: f32, from: &[f32], to: &mut [f32]) = add_scaled_body
);

#[inline(always)]
fn root_mean_square<const FUSED: bool>(row: &[f32], epsilon: f32) -> f32 {
    let squares = dot_body::<FUSED>(row, row);
    1.0 / (squares / row.len() as f32 + epsilon).sqrt()
}

#[inline(always)]
fn norm_body<const FUSED: bool>(row: &[f32], weight: &[f32], epsilon: f32, output: &mut [f32]) {
    let scale = root_mean_square::<FUSED>(row, epsilon);
    for ((output, row), weight) in output.iter_mut().zip(row).zip(weight) {
        *output = row * scale * weight;
    }
}
framed!(
    /// row / √(mean of squares + ε) · weight.
    pub(crate) fn norm(row: &[f32], weight: &[f32], epsilon: f32, output: &mut [f32]) = norm_body
);

#[inline(always)]
fn norm_in_place_body<const FUSED: bool>(row: &mut [f32], weight: &[f32], epsilon: f32) {
    let scale = root_mean_square::<FUSED>(row, epsilon);
    for (row, weight) in row.iter_mut().zip(weight) {
        *row = *row * scale * weight;
    }
}
framed!(
    /// [`norm`], in place.
    pub(crate) fn norm_in_place(row: &mut [f32], weight: &[f32], epsilon: f32) = norm_in_place_body
);

#[inline(always)]
fn norm_backward_body<const FUSED: bool>(
    row: &[f32],
    weight: &[f32],
    epsilon: f32,
    gradient: &[f32],
    row_gradient: &mut [f32],
    weight_gradient: &mut [f32],
) {
    let scale = root_mean_square::<FUSED>(row, epsilon);
    let mut sums = [0f32; LANES];
    let mut rest = 0f32;
    let (rows, row_rest) = row.as_chunks::<LANES>();
    let (weights, weight_rest) = weight.as_chunks::<LANES>();
    let (gradients, gradient_rest) = gradient.as_chunks::<LANES>();
    for ((row, weight), gradient) in rows.iter().zip(weights).zip(gradients) {
        for (((sum, row), weight), gradient) in sums.iter_mut().zip(row).zip(weight).zip(gradient) {
            *sum = fused::<FUSED>(row * weight, *gradient, *sum);
        }
    }
    for ((row, weight), gradient) in row_rest.iter().zip(weight_rest).zip(gradient_rest) {
        rest = fused::<FUSED>(row * weight, *gradient, rest);
    }
    let along = (lanes_sum(sums) + rest) * scale * scale / row.len() as f32;
    for (((to, row), weight), gradient) in
        row_gradient.iter_mut().zip(row).zip(weight).zip(gradient)
    {
        *to = fused::<FUSED>(scale, weight * gradient - row * along, *to);
    }
    for ((to, row), gradient) in weight_gradient.iter_mut().zip(row).zip(gradient) {
        *to = fused::<FUSED>(row * scale, *gradient, *to);
    }
}
framed!(
    /// Adds the gradients of [`norm`] for its row and, unless that slice is empty, its weight.
    pub(crate) fn norm_backward(
        row: &[f32],
        weight: &[f32],
        epsilon: f32,
        gradient: &[f32],
        row_gradient: &mut [f32],
        weight_gradient: &mut [f32],
    ) = norm_backward_body
);

#[inline(always)]
fn sigmoid<const FUSED: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exponential::<FUSED>(-x))
}

#[inline(always)]
fn gate_body<const FUSED: bool>(gate: &[f32], up: &[f32], output: &mut [f32]) {
    for ((output, gate), up) in output.iter_mut().zip(gate).zip(up) {
        *output = gate * sigmoid::<FUSED>(*gate) * up;
    }
}
framed!(
    /// silu(gate) · up.
    pub(crate) fn gate(gate: &[f32], up: &[f32], output: &mut [f32]) = gate_body
);

#[inline(always)]
fn gate_backward_body<const FUSED: bool>(
    gate: &[f32],
    up: &[f32],
    gradient: &[f32],
    gate_gradient: &mut [f32],
    up_gradient: &mut [f32],
) {
    for ((((gate, up), gradient), gate_gradient), up_gradient) in
        gate.iter().zip(up).zip(gradient).zip(gate_gradient).zip(up_gradient)
    {
        let sigmoid = sigmoid::<FUSED>(*gate);
        let silu = gate * sigmoid;
        *up_gradient = gradient * silu;
        *gate_gradient = gradient * up * fused::<FUSED>(silu, 1.0 - sigmoid, sigmoid);
    }
}
framed!(
    /// The gradients of [`gate`].
    pub(crate) fn gate_backward(
        gate: &[f32],
        up: &[f32],
        gradient: &[f32],
        gate_gradient: &mut [f32],
        up_gradient: &mut [f32],
    ) = gate_backward_body
);

#[inline(always)]
fn largest_body<const FUSED: bool>(row: &[f32]) -> f32 {
    let mut largest = [f32::NEG_INFINITY; LANES];
    let (parts, rest) = row.as_chunks::<LANES>();
    for part in parts {
        for (largest, number) in largest.iter_mut().zip(part) {
            *largest = if *number > *largest { *number } else { *largest };
        }
    }
    largest.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max)
}

#[inline(always)]
fn softmax_body<const FUSED: bool>(row: &mut [f32], scale: f32) -> f32 {
    let largest = largest_body::<FUSED>(row) * scale;
    let mut sum = 0f64;
    for block in row.chunks_mut(BLOCK) {
        for number in block.iter_mut() {
            *number = exponential::<FUSED>(fused::<FUSED>(*number, scale, -largest));
        }
        sum += f64::from(sum_of(block, block, |number, _, sum| sum + number));
    }
    let share = (1.0 / sum) as f32;
    for number in row.iter_mut() {
        *number *= share;
    }
    largest + sum.ln() as f32
}
framed!(
    /// Softmax of scale · row in place, for a positive scale; gives ln Σ e^(scale · row).
    pub(crate) fn softmax(row: &mut [f32], scale: f32) -> f32 = softmax_body
);

#[inline(always)]
fn softmax_backward_body<const FUSED: bool>(
    scores: &mut [f32],
    slopes: &mut [f32],
    scale: f32,
    sum: f32,
    along: f32,
) {
    for (score, slope) in scores.iter_mut().zip(slopes) {
        *score = exponential::<FUSED>(fused::<FUSED>(*score, scale, -sum));
        *slope = *score * (*slope - along) * scale;
    }
}
framed!(
    /// Turns scores into their softmax, whose sum is known, and the gradient of these weights
    /// (`slopes`) into that of the scores. `along` is Σ weight · slope.
    pub(crate) fn softmax_backward(
        scores: &mut [f32],
        slopes: &mut [f32],
        scale: f32,
        sum: f32,
        along: f32,
    ) = softmax_backward_body
);

/// What a distribution over the vocabulary comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Distribution {
    /// ln Σ e^(scale · logit), as the scaled largest logit and what comes on top of it.
    pub(crate) largest: f32,
    pub(crate) above: f64,
    /// −Σ p ln p.
    pub(crate) entropy: f64,
}

#[inline(always)]
fn distribution_body<const FUSED: bool>(row: &[f32], scale: f32) -> Distribution {
    let largest = largest_body::<FUSED>(row) * scale;
    let (mut sum, mut weighted) = (0f64, 0f64);
    for block in row.chunks(BLOCK) {
        let (mut sums, mut weighteds) = ([0f32; LANES], [0f32; LANES]);
        let (parts, rest) = block.as_chunks::<LANES>();
        for part in parts {
            for ((number, sum), weighted) in part.iter().zip(&mut sums).zip(&mut weighteds) {
                let distance = fused::<FUSED>(*number, scale, -largest);
                let weight = exponential::<FUSED>(distance);
                *sum += weight;
                *weighted = fused::<FUSED>(weight, distance, *weighted);
            }
        }
        sum += f64::from(lanes_sum(sums));
        weighted += f64::from(lanes_sum(weighteds));
        for number in rest {
            let distance = fused::<FUSED>(*number, scale, -largest);
            let weight = exponential::<FUSED>(distance);
            sum += f64::from(weight);
            weighted += f64::from(weight * distance);
        }
    }
    let above = sum.ln();
    Distribution { largest, above, entropy: above - weighted / sum }
}
framed!(
    /// The distribution softmax(scale · row), for a positive scale.
    pub(crate) fn distribution(row: &[f32], scale: f32) -> Distribution = distribution_body
);

#[inline(always)]
fn distribution_backward_body<const FUSED: bool>(
    row: &mut [f32],
    scale: f32,
    known: Distribution,
    log_probability: f32,
    entropy: f32,
) {
    // d ln p(t) / d z = [t] − p and d H / d z = −p (ln p + H), with z = scale · row.
    let (largest, above, known) = (known.largest, known.above as f32, known.entropy as f32);
    for number in row.iter_mut() {
        let log = fused::<FUSED>(*number, scale, -largest) - above;
        let share = exponential::<FUSED>(log);
        let factor = fused::<FUSED>(-entropy, log + known, -log_probability);
        *number = share * factor * scale;
    }
}
framed!(
    /// Replaces logits by the gradient that `log_probability` (of the chosen token) and `entropy`
    /// send back, except for the chosen token's own term: it gets `log_probability · scale` on
    /// top.
    pub(crate) fn distribution_backward(
        row: &mut [f32],
        scale: f32,
        known: Distribution,
        log_probability: f32,
        entropy: f32,
    ) = distribution_backward_body
);

#[inline(always)]
fn rotate_halves_body<const FUSED: bool>(head: &mut [f32], cosines: &[f32], sines: &[f32]) {
    let (left, right) = head.split_at_mut(cosines.len());
    for (((left, right), cosine), sine) in left.iter_mut().zip(right).zip(cosines).zip(sines) {
        let (a, b) = (*left, *right);
        *left = a * cosine - b * sine;
        *right = b * cosine + a * sine;
    }
}
framed!(
    /// Rotates a head: its first half against its second.
    pub(crate) fn rotate_halves(head: &mut [f32], cosines: &[f32], sines: &[f32]) = rotate_halves_body
);

/// Rotates a head: its even numbers against its odd ones.
pub(crate) fn rotate_neighbours(head: &mut [f32], cosines: &[f32], sines: &[f32]) {
    for (([left, right], cosine), sine) in
        head.as_chunks_mut::<2>().0.iter_mut().zip(cosines).zip(sines)
    {
        let (a, b) = (*left, *right);
        *left = a * cosine - b * sine;
        *right = b * cosine + a * sine;
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::differences::{along, assert_gradient, numbers},
        *,
    };

    #[test]
    fn exponentials_are_right_to_two_units_in_the_last_place() {
        for step in -8_800..=8_800 {
            let x = step as f32 / 100.0;
            let (ours, exact) = (exponential::<true>(x), f64::from(x).exp());
            if x >= -87.3 {
                let error = (f64::from(ours) - exact).abs() / exact;
                assert!(error < 2.5e-7, "{x}: {ours} {exact}");
            } else {
                assert_eq!(ours, 0.0);
            }
            let plain = exponential::<false>(x);
            assert!((plain - ours).abs() <= ours * 3e-7, "{x}");
        }
        assert_eq!(exponential::<true>(0.0), 1.0);
        assert!(exponential::<true>(f32::NAN).is_nan());
    }

    #[test]
    fn distributions_are_those_of_f64() {
        let row: Vec<f32> = (0..1237).map(|at| ((at * 7919) % 1000) as f32 / 100.0).collect();
        for scale in [1.0f32, 0.5, 2.0] {
            let ours = distribution(&row, scale);
            let scaled = || row.iter().map(|number| f64::from(*number) * f64::from(scale));
            let sum: f64 = scaled().map(f64::exp).sum();
            let entropy = sum.ln() - scaled().map(|z| z.exp() * z).sum::<f64>() / sum;
            assert!((f64::from(ours.largest) + ours.above - sum.ln()).abs() < 1e-6);
            assert!((ours.entropy - entropy).abs() < 2e-6, "{} {entropy}", ours.entropy);
        }
    }

    #[test]
    fn norms_have_the_gradient_of_finite_differences() {
        for width in [5, 16, 37] {
            let (row, weight) = (numbers(width, 1), numbers(width, 2));
            let slope = numbers(width, 3);
            let value = |row: &[f32], weight: &[f32]| {
                let mut output = vec![0.0; width];
                norm(row, weight, 1e-5, &mut output);
                let mut again = row.to_vec();
                norm_in_place(&mut again, weight, 1e-5);
                assert_eq!(again, output);
                along(&output, &slope)
            };
            let (mut of_row, mut of_weight) = (vec![1.0; width], vec![1.0; width]);
            norm_backward(&row, &weight, 1e-5, &slope, &mut of_row, &mut of_weight);
            // They are added to what was there.
            of_row.iter_mut().chain(&mut of_weight).for_each(|number| *number -= 1.0);
            assert_gradient("row", |row| value(row, &weight), &row, &of_row);
            assert_gradient("weight", |weight| value(&row, weight), &weight, &of_weight);
        }
    }

    #[test]
    fn gates_have_the_gradient_of_finite_differences() {
        let (left, up, slope) = (numbers(37, 1), numbers(37, 2), numbers(37, 3));
        let left: Vec<f32> = left.iter().map(|number| 4.0 * number).collect();
        let value = |left: &[f32], up: &[f32]| {
            let mut output = vec![0.0; 37];
            gate(left, up, &mut output);
            along(&output, &slope)
        };
        let (mut of_left, mut of_up) = (vec![0.0; 37], vec![0.0; 37]);
        gate_backward(&left, &up, &slope, &mut of_left, &mut of_up);
        assert_gradient("gate", |left| value(left, &up), &left, &of_left);
        assert_gradient("up", |up| value(&left, up), &up, &of_up);
    }

    #[test]
    fn scores_have_the_gradient_of_finite_differences() {
        let (scale, token) = (1.0 / 0.7, 11);
        let row: Vec<f32> = numbers(50, 1).iter().map(|number| 3.0 * number).collect();
        for (log_probability, entropy) in [(1.0, 0.0), (0.0, 1.0), (-0.7, 0.4)] {
            let value = |row: &[f32]| {
                let found = distribution(row, scale);
                let log = f64::from(row[token] * scale - found.largest) - found.above;
                f64::from(log_probability) * log + f64::from(entropy) * found.entropy
            };
            let mut gradient = row.clone();
            let found = distribution(&row, scale);
            distribution_backward(&mut gradient, scale, found, log_probability, entropy);
            gradient[token] += log_probability * scale;
            assert_gradient("logits", value, &row, &gradient);
        }
    }

    #[test]
    fn rotations_are_undone_by_the_opposite_ones() {
        let head = numbers(12, 1);
        let angles = numbers(6, 2);
        let cosines: Vec<f32> = angles.iter().map(|angle| angle.cos()).collect();
        let sines: Vec<f32> = angles.iter().map(|angle| angle.sin()).collect();
        let opposite: Vec<f32> = sines.iter().map(|sine| -sine).collect();
        for rotate in [rotate_halves, rotate_neighbours] {
            let mut turned = head.clone();
            rotate(&mut turned, &cosines, &sines);
            let length = along(&turned, &turned) - along(&head, &head);
            assert!(turned != head && length.abs() < 1e-6);
            rotate(&mut turned, &cosines, &opposite);
            let close = turned.iter().zip(&head).all(|(left, right)| (left - right).abs() < 1e-6);
            assert!(close);
        }
    }
}
