//! Chance that can be had again.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

const SEED: &str = "FULGURITE_TEST_SEED";

/// Random numbers. The seed is printed, so that what failed with it can be tried again.
pub struct Chance(u64);

impl Chance {
    /// From the seed in `FULGURITE_TEST_SEED`; without one, from another one each time.
    pub fn seeded() -> Self {
        let given = std::env::var(SEED).ok();
        let given = given.map(|seed| seed.parse::<u64>().expect("a whole number as seed"));
        let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        println!("for the same chance again: {SEED}={seed}");
        Self(seed)
    }

    /// From 0 to less than 1.
    pub fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as f64 / f64::from(1_u32 << 31)
    }
}
