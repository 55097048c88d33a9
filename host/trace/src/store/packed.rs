//! Arrays and byte strings of an entry, packed apart from its JSON body.
//!
//! Layout: one version byte, then sections. A section is a tag byte, the number of payload bytes
//! (little-endian `u32`), and the payload. Which sections an entry has follows from its kind.
//!
//! Token ids take two, three or four bytes each, the fewest that hold the largest id of the
//! section: vocabularies have 50,000 to 250,000 entries, so this saves a quarter to a half for
//! next to no time. Log-probabilities are `f32`, bit by bit. Byte strings (output of commands) are
//! compressed with zstd where that saves at least an eighth.

use super::compress;

const VERSION: u8 = 1;
const IDS_2: u8 = 2;
const IDS_3: u8 = 3;
const IDS_4: u8 = 4;
const SINGLES: u8 = 5;
const DOUBLES: u8 = 6;
const BYTES: u8 = 7;
const COMPRESSED_BYTES: u8 = 8;

/// Collects sections.
#[derive(Debug)]
pub(crate) struct Packer {
    bytes: Vec<u8>,
}

impl Packer {
    /// Room for about `capacity` bytes.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.push(VERSION);
        Self { bytes }
    }

    /// A section of token ids.
    pub(crate) fn ids(&mut self, ids: &[u32]) -> &mut Self {
        let largest = ids.iter().copied().max().unwrap_or(0);
        let (tag, width) = match largest {
            0..=0xffff => (IDS_2, 2),
            0x1_0000..=0xff_ffff => (IDS_3, 3),
            _ => (IDS_4, 4),
        };
        self.head(tag, ids.len() * width);
        match width {
            2 => self.bytes.extend(ids.iter().flat_map(|id| {
                let [a, b, ..] = id.to_le_bytes();
                [a, b]
            })),
            3 => self.bytes.extend(ids.iter().flat_map(|id| {
                let [a, b, c, _] = id.to_le_bytes();
                [a, b, c]
            })),
            _ => self.bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes())),
        }
        self
    }

    /// A section of single-precision numbers.
    pub(crate) fn singles(&mut self, numbers: &[f32]) -> &mut Self {
        self.head(SINGLES, numbers.len() * 4);
        self.bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        self
    }

    /// A section of one double-precision number.
    pub(crate) fn double(&mut self, number: f64) -> &mut Self {
        self.head(DOUBLES, 8);
        self.bytes.extend(number.to_le_bytes());
        self
    }

    /// A section of bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        match compress::deflate(bytes) {
            Some(smaller) => {
                self.head(COMPRESSED_BYTES, smaller.len());
                self.bytes.extend(smaller);
            }
            None => {
                self.head(BYTES, bytes.len());
                self.bytes.extend(bytes);
            }
        }
        self
    }

    /// The packed form.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn head(&mut self, tag: u8, length: usize) {
        self.bytes.reserve(length + 5);
        self.bytes.push(tag);
        // Sections beyond 4 GiB cannot come about: replies and outputs are capped far below, and
        // SQLite refuses such rows.
        self.bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    }
}

/// Reads sections back, in the order they were written.
#[derive(Debug)]
pub(crate) struct Unpacker<'packed> {
    rest: &'packed [u8],
}

impl<'packed> Unpacker<'packed> {
    /// Begins at the version byte.
    pub(crate) fn new(packed: &'packed [u8]) -> Result<Self, String> {
        match packed.split_first() {
            Some((&VERSION, rest)) => Ok(Self { rest }),
            Some((version, _)) => Err(format!("packed data of unknown version {version}")),
            None => Err("packed data is missing".to_owned()),
        }
    }

    /// A section of token ids.
    pub(crate) fn ids(&mut self) -> Result<Vec<u32>, String> {
        let (tag, payload) = self.section()?;
        let width = match tag {
            IDS_2 => 2,
            IDS_3 => 3,
            IDS_4 => 4,
            _ => return Err(format!("section {tag} stands where token ids belong")),
        };
        whole(payload, width)?;
        Ok(payload
            .chunks_exact(width)
            .map(|chunk| chunk.iter().rev().fold(0, |id, byte| id << 8 | u32::from(*byte)))
            .collect())
    }

    /// A section of single-precision numbers.
    pub(crate) fn singles(&mut self) -> Result<Vec<f32>, String> {
        let payload = self.tagged(SINGLES)?;
        whole(payload, 4)?;
        Ok(payload.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect())
    }

    /// A section of one double-precision number.
    pub(crate) fn double(&mut self) -> Result<f64, String> {
        let payload = self.tagged(DOUBLES)?;
        let bytes = payload.try_into().map_err(|_| "a number is not 8 bytes long".to_owned())?;
        Ok(f64::from_le_bytes(bytes))
    }

    /// A section of bytes.
    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, String> {
        match self.section()? {
            (BYTES, payload) => Ok(payload.to_vec()),
            (COMPRESSED_BYTES, payload) => compress::inflate(payload),
            (tag, _) => Err(format!("section {tag} stands where bytes belong")),
        }
    }

    /// Whether no section is left.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn tagged(&mut self, wanted: u8) -> Result<&'packed [u8], String> {
        match self.section()? {
            (tag, payload) if tag == wanted => Ok(payload),
            (tag, _) => Err(format!("section {tag} stands where section {wanted} belongs")),
        }
    }

    fn section(&mut self) -> Result<(u8, &'packed [u8]), String> {
        let short = || "packed data breaks off".to_owned();
        let (tag, rest) = self.rest.split_first().ok_or_else(short)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| short())?;
        let (payload, rest) = rest.split_at_checked(length).ok_or_else(short)?;
        self.rest = rest;
        Ok((*tag, payload))
    }
}

fn whole(payload: &[u8], width: usize) -> Result<(), String> {
    if payload.len().is_multiple_of(width) {
        Ok(())
    } else {
        Err(format!("{} bytes are no whole number of {width}-byte values", payload.len()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            small in proptest::collection::vec(0..0x1_0000_u32, 0..50),
            middle in proptest::collection::vec(0..0x100_0000_u32, 0..50),
            large in proptest::collection::vec(any::<u32>(), 0..50),
            bits in proptest::collection::vec(any::<u32>(), 0..50),
            double in any::<u64>(),
            bytes in proptest::collection::vec(0..4_u8, 0..2000),
        ) {
            let singles: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
            let mut packer = Packer::with_capacity(0);
            packer.ids(&small).ids(&middle).ids(&large).singles(&singles);
            packer.double(f64::from_bits(double)).bytes(&bytes);
            let packed = packer.finish();
            let mut unpacker = Unpacker::new(&packed).unwrap();
            prop_assert_eq!(unpacker.ids().unwrap(), small);
            prop_assert_eq!(unpacker.ids().unwrap(), middle);
            prop_assert_eq!(unpacker.ids().unwrap(), large);
            let read: Vec<u32> = unpacker.singles().unwrap().iter().map(|n| n.to_bits()).collect();
            prop_assert_eq!(read, bits);
            prop_assert_eq!(unpacker.double().unwrap().to_bits(), double);
            prop_assert_eq!(unpacker.bytes().unwrap(), bytes);
            prop_assert!(unpacker.is_empty());
        }

        #[test]
        fn garbage_never_panics(garbage in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut with_version = vec![VERSION];
            with_version.extend(&garbage);
            for bytes in [&garbage, &with_version] {
                if let Ok(mut unpacker) = Unpacker::new(bytes) {
                    let _ = unpacker.ids();
                    let _ = unpacker.singles();
                    let _ = unpacker.bytes();
                    let _ = unpacker.double();
                }
            }
        }
    }

    #[test]
    fn ids_take_the_fewest_bytes() {
        let length = |id| {
            let mut packer = Packer::with_capacity(0);
            packer.ids(&[id; 100]);
            packer.finish().len()
        };
        assert_eq!([length(49_151), length(151_935), length(u32::MAX)], [206, 306, 406]);
    }
}
