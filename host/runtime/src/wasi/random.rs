//! Random numbers from a seed: unpredictable for nobody who knows it, the same on every run.
//!
//! The three interfaces of WASI draw from separate streams of one generator, so that a guest which
//! asks one of them more often does not shift the others.

use rand_chacha::{
    ChaCha12Rng,
    rand_core::{Rng, SeedableRng},
};
use wasmtime_wasi::p2::bindings::random::{insecure, insecure_seed, random};

use super::{fuel::BYTE, state::WasiState};

/// The most bytes one call may ask for.
const MAXIMUM_BYTES: u64 = 16 << 20;

/// The generators of one guest.
#[derive(Debug)]
pub(crate) struct SeededRandom {
    secure: ChaCha12Rng,
    insecure: ChaCha12Rng,
    seed: (u64, u64),
}

impl SeededRandom {
    pub(crate) fn new(seed: u64) -> Self {
        let stream = |number| {
            let mut generator = ChaCha12Rng::seed_from_u64(seed);
            generator.set_stream(number);
            generator
        };
        let mut seeds = stream(2);
        Self { secure: stream(0), insecure: stream(1), seed: (seeds.next_u64(), seeds.next_u64()) }
    }
}

fn bytes(generator: &mut ChaCha12Rng, length: u64) -> wasmtime::Result<Vec<u8>> {
    if length > MAXIMUM_BYTES {
        wasmtime::bail!("{length} random bytes in one call; at most {MAXIMUM_BYTES} are given");
    }
    let mut bytes = vec![0; usize::try_from(length)?];
    generator.fill_bytes(&mut bytes);
    Ok(bytes)
}

impl random::Host for WasiState {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        let random = bytes(&mut self.random.secure, len)?;
        self.owe(len, BYTE);
        Ok(random)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        Ok(self.random.secure.next_u64())
    }
}

impl insecure::Host for WasiState {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        let random = bytes(&mut self.random.insecure, len)?;
        self.owe(len, BYTE);
        Ok(random)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        Ok(self.random.insecure.next_u64())
    }
}

impl insecure_seed::Host for WasiState {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        Ok(self.random.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_bytes_and_streams_differ() {
        let mut one = SeededRandom::new(7);
        let mut two = SeededRandom::new(7);
        let first = bytes(&mut one.secure, 32).unwrap();
        assert_eq!(first, bytes(&mut two.secure, 32).unwrap());
        assert_ne!(first, bytes(&mut one.insecure, 32).unwrap());
        assert_ne!(one.seed, SeededRandom::new(8).seed);
        assert_eq!(one.seed, two.seed);
    }

    #[test]
    fn asking_one_interface_leaves_the_others_alone() {
        let mut one = SeededRandom::new(7);
        let mut two = SeededRandom::new(7);
        bytes(&mut one.insecure, 1000).unwrap();
        assert_eq!(bytes(&mut one.secure, 8).unwrap(), bytes(&mut two.secure, 8).unwrap());
    }

    #[test]
    fn too_many_bytes_end_the_guest() {
        let mut random = SeededRandom::new(7);
        assert!(bytes(&mut random.secure, MAXIMUM_BYTES + 1).is_err());
        assert!(bytes(&mut random.secure, u64::MAX).is_err());
    }
}
