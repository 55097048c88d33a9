//! Vectors of the machine, so that a kernel is written once.

/// The side of a square that is transposed at once.
pub(crate) const SIDE: usize = 16;

/// A vector of the machine.
pub(crate) trait Lanes: Copy {
    const WIDTH: usize;
    /// # Safety
    /// The machine has the instructions. So for all below.
    unsafe fn zero() -> Self;
    /// # Safety
    /// `WIDTH` numbers can be read.
    unsafe fn load(from: *const f32) -> Self;
    /// The first `count` < `WIDTH` numbers, then zeros.
    /// # Safety
    /// `count` numbers can be read.
    unsafe fn load_first(from: *const f32, count: usize) -> Self;
    /// # Safety
    /// As for all.
    unsafe fn times_plus(self, other: Self, sum: Self) -> Self;
    /// One number in every place.
    /// # Safety
    /// As for all.
    unsafe fn splat(number: f32) -> Self;
    /// # Safety
    /// `WIDTH` numbers can be written.
    unsafe fn store(self, to: *mut f32);
    /// Writes the first `count` < `WIDTH` numbers.
    /// # Safety
    /// `count` numbers can be written.
    unsafe fn store_first(self, to: *mut f32, count: usize);
    /// The sum of each, by one tree.
    /// # Safety
    /// As for all.
    unsafe fn sums(vectors: [Self; 4]) -> [f32; 4];
    /// Says that the line of the cache around `_from` will be read soon.
    #[inline(always)]
    fn announce(_from: *const f32) {}
    /// The transposed square.
    /// # Safety
    /// As for all.
    #[inline(always)]
    unsafe fn turned(square: [&[f32; SIDE]; SIDE]) -> [[f32; SIDE]; SIDE] {
        let mut turned = [[0.0; SIDE]; SIDE];
        for (column, line) in turned.iter_mut().enumerate() {
            for (number, from) in line.iter_mut().zip(square) {
                *number = from.get(column).copied().unwrap_or_default();
            }
        }
        turned
    }
}

/// Eight numbers for which the compiler chooses instructions.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f32; 8]);

impl Lanes for Portable {
    const WIDTH: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; 8])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { from.cast::<[f32; 8]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        let mut numbers = [0.0; 8];
        for (at, number) in numbers.iter_mut().enumerate().take(count) {
            // SAFETY: the caller's promise.
            *number = unsafe { from.add(at).read() };
        }
        Self(numbers)
    }

    #[inline(always)]
    unsafe fn times_plus(self, other: Self, sum: Self) -> Self {
        let mut result = sum;
        for ((result, left), right) in result.0.iter_mut().zip(self.0).zip(other.0) {
            *result = super::simd::fused::<{ cfg!(target_arch = "aarch64") }>(left, right, *result);
        }
        result
    }

    #[inline(always)]
    unsafe fn splat(number: f32) -> Self {
        Self([number; 8])
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        for (at, number) in self.0.into_iter().enumerate().take(count) {
            // SAFETY: the caller's promise.
            unsafe { to.add(at).write(number) }
        }
    }

    #[inline(always)]
    unsafe fn sums(vectors: [Self; 4]) -> [f32; 4] {
        vectors.map(|Self([a, b, c, d, e, f, g, h])| ((a + e) + (c + g)) + ((b + f) + (d + h)))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Usual, Wide};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Lanes, SIDE};

    /// AVX-512.
    #[derive(Clone, Copy)]
    pub(crate) struct Wide(__m512);

    impl Lanes for Wide {
        const WIDTH: usize = 16;

        #[inline(always)]
        fn announce(from: *const f32) {
            // SAFETY: a hint; what is not there is not read.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
        }

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller's promise; so for all below.
            Self(unsafe { _mm512_setzero_ps() })
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller's promise.
            Self(unsafe { _mm512_loadu_ps(from) })
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f32, count: usize) -> Self {
            // SAFETY: the caller's promise; masked lanes are not read.
            Self(unsafe { _mm512_maskz_loadu_ps((1 << count) - 1, from) })
        }

        #[inline(always)]
        unsafe fn times_plus(self, other: Self, sum: Self) -> Self {
            // SAFETY: the caller's promise.
            Self(unsafe { _mm512_fmadd_ps(self.0, other.0, sum.0) })
        }

        #[inline(always)]
        unsafe fn splat(number: f32) -> Self {
            // SAFETY: the caller's promise.
            Self(unsafe { _mm512_set1_ps(number) })
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the caller's promise.
            unsafe { _mm512_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn store_first(self, to: *mut f32, count: usize) {
            // SAFETY: the caller's promise; masked lanes are not written.
            unsafe { _mm512_mask_storeu_ps(to, (1 << count) - 1, self.0) }
        }

        #[inline(always)]
        unsafe fn sums(vectors: [Self; 4]) -> [f32; 4] {
            // SAFETY: the caller's promise.
            unsafe {
                quarters(vectors.map(|vector| {
                    _mm256_add_ps(
                        _mm512_castps512_ps256(vector.0),
                        _mm512_extractf32x8_ps::<1>(vector.0),
                    )
                }))
            }
        }

        #[inline(always)]
        unsafe fn turned(square: [&[f32; SIDE]; SIDE]) -> [[f32; SIDE]; SIDE] {
            // SAFETY: the caller's promise.
            unsafe { turned(square) }
        }
    }

    /// Pairs of numbers, then of pairs, fours and eights.
    #[target_feature(enable = "avx512f")]
    #[inline]
    #[allow(clippy::indexing_slicing, clippy::needless_range_loop, reason = "constant bounds")]
    fn turned(square: [&[f32; SIDE]; SIDE]) -> [[f32; SIDE]; SIDE] {
        let mut lines = [_mm512_setzero_pd(); SIDE];
        for at in 0..8 {
            // SAFETY: each line holds sixteen numbers.
            let (a, b) = unsafe {
                let [a, b] = [square[2 * at], square[2 * at + 1]];
                (_mm512_loadu_ps(a.as_ptr()), _mm512_loadu_ps(b.as_ptr()))
            };
            lines[2 * at] = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
            lines[2 * at + 1] = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
        }
        let mut fours = [_mm512_setzero_ps(); SIDE];
        for at in (0..SIDE).step_by(4) {
            let [a, b, c, d] = [lines[at], lines[at + 1], lines[at + 2], lines[at + 3]];
            fours[at] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
            fours[at + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
            fours[at + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
            fours[at + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
        }
        let mut eights = fours;
        for half in [0, 8] {
            for at in half..half + 4 {
                eights[at] = _mm512_shuffle_f32x4::<0b10_00_10_00>(fours[at], fours[at + 4]);
                eights[at + 4] = _mm512_shuffle_f32x4::<0b11_01_11_01>(fours[at], fours[at + 4]);
            }
        }
        let mut result = [[0.0; SIDE]; SIDE];
        for at in 0..8 {
            let low = _mm512_shuffle_f32x4::<0b10_00_10_00>(eights[at], eights[at + 8]);
            let high = _mm512_shuffle_f32x4::<0b11_01_11_01>(eights[at], eights[at + 8]);
            // SAFETY: each line has room for sixteen numbers.
            unsafe {
                _mm512_storeu_ps(result[at].as_mut_ptr(), low);
                _mm512_storeu_ps(result[at + 8].as_mut_ptr(), high);
            }
        }
        result
    }

    /// AVX2 with FMA.
    #[derive(Clone, Copy)]
    pub(crate) struct Usual(__m256);

    impl Lanes for Usual {
        const WIDTH: usize = 8;

        #[inline(always)]
        fn announce(from: *const f32) {
            // SAFETY: a hint; what is not there is not read.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
        }

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller's promise; so for all below.
            Self(unsafe { _mm256_setzero_ps() })
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller's promise.
            Self(unsafe { _mm256_loadu_ps(from) })
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f32, count: usize) -> Self {
            // SAFETY: the caller's promise; masked lanes are not read.
            unsafe {
                let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                let mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), lanes);
                Self(_mm256_maskload_ps(from, mask))
            }
        }

        #[inline(always)]
        unsafe fn times_plus(self, other: Self, sum: Self) -> Self {
            // SAFETY: the caller's promise.
            Self(unsafe { _mm256_fmadd_ps(self.0, other.0, sum.0) })
        }

        #[inline(always)]
        unsafe fn splat(number: f32) -> Self {
            // SAFETY: the caller's promise.
            Self(unsafe { _mm256_set1_ps(number) })
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the caller's promise.
            unsafe { _mm256_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn store_first(self, to: *mut f32, count: usize) {
            // SAFETY: the caller's promise; masked lanes are not written.
            unsafe {
                let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                let mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), lanes);
                _mm256_maskstore_ps(to, mask, self.0)
            }
        }

        #[inline(always)]
        unsafe fn sums(vectors: [Self; 4]) -> [f32; 4] {
            // SAFETY: the caller's promise.
            unsafe { quarters(vectors.map(|vector| vector.0)) }
        }
    }

    #[inline(always)]
    unsafe fn quarters([a, b, c, d]: [__m256; 4]) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
            let sums = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
            let mut numbers = [0f32; 4];
            _mm_storeu_ps(numbers.as_mut_ptr(), sums);
            numbers
        }
    }
}
