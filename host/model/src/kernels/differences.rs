//! Gradients against finite differences.

/// Numbers between −1 and 1 that repeat from run to run.
pub(crate) fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Σ left · right.
pub(crate) fn along(left: &[f32], right: &[f32]) -> f64 {
    left.iter().zip(right).map(|(left, right)| f64::from(*left) * f64::from(*right)).sum()
}

/// Asserts that `gradient` is that of `function` at `at`, number by number.
pub(crate) fn assert_gradient(
    name: &str,
    function: impl Fn(&[f32]) -> f64,
    at: &[f32],
    gradient: &[f32],
) {
    const STEP: f32 = 1e-2;
    assert_eq!(at.len(), gradient.len());
    let largest = gradient.iter().fold(0f32, |largest, number| largest.max(number.abs()));
    let mut moved = at.to_vec();
    for place in 0..at.len() {
        let mut value = |step: f32| {
            moved[place] = at[place] + step;
            let value = function(&moved);
            moved[place] = at[place];
            value
        };
        // The five-point rule: the error falls with the fourth power of the step.
        let near = value(STEP) - value(-STEP);
        let far = value(2.0 * STEP) - value(-2.0 * STEP);
        let expected = (8.0 * near - far) / (12.0 * f64::from(STEP));
        let difference = (f64::from(gradient[place]) - expected).abs();
        let bound = 1e-3 * f64::from(largest) + 1e-4;
        assert!(difference < bound, "{name}, {place}: {} for {expected}", gradient[place]);
    }
}
