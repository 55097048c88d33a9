//! Vector instructions chosen at run time.
//!
//! A release is built for every x86-64 machine, so the compiler may use nothing beyond SSE2 by
//! itself. Kernels are therefore written once, as functions that are inlined into three frames:
//! AVX-512, AVX2 with FMA, and what the build allows. On other processors there is one frame.

/// The frames.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Avx512,
    Avx2,
    Baseline,
}

/// What this machine offers.
#[cfg(target_arch = "x86_64")]
pub(crate) fn level() -> Level {
    static LEVEL: std::sync::LazyLock<Level> = std::sync::LazyLock::new(|| {
        let fma = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq");
        match (fma, wide) {
            (true, true) => Level::Avx512,
            (true, false) => Level::Avx2,
            (false, _) => Level::Baseline,
        }
    });
    *LEVEL
}

/// `a · b + c`, rounded once where the frame has such an instruction. (Elsewhere the rounding in
/// one step would be a slow call into a library.)
#[inline(always)]
pub(crate) fn fused<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Makes a function that runs `$body::<FUSED, …>` in the best frame.
macro_rules! framed {
    (
        $(#[$attribute:meta])*
        $visible:vis fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)? = $body:ident
    ) => {
        $(#[$attribute])*
        #[allow(clippy::too_many_arguments, reason = "shapes are plain numbers here")]
        $visible fn $name($($argument: $kind),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                use $crate::kernels::simd::{Level, level};
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
                #[allow(clippy::too_many_arguments, reason = "shapes are plain numbers here")]
                fn wide($($argument: $kind),*) $(-> $result)? {
                    $body::<true>($($argument),*)
                }
                #[target_feature(enable = "avx2,fma")]
                #[allow(clippy::too_many_arguments, reason = "shapes are plain numbers here")]
                fn usual($($argument: $kind),*) $(-> $result)? {
                    $body::<true>($($argument),*)
                }
                match level() {
                    // SAFETY: the machine has these instructions; `level` looked.
                    Level::Avx512 => return unsafe { wide($($argument),*) },
                    // SAFETY: as above.
                    Level::Avx2 => return unsafe { usual($($argument),*) },
                    Level::Baseline => {}
                }
            }
            $body::<{ cfg!(target_arch = "aarch64") }>($($argument),*)
        }
    };
}
pub(crate) use framed;
