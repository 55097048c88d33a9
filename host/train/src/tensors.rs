//! Vectors of `f32` in safetensors files.

use std::{borrow::Cow, collections::BTreeMap, io, path::Path};

use safetensors::{Dtype, SafeTensors, View};

struct Vector<'data> {
    values: &'data [f32],
    shape: [usize; 1],
}

impl View for Vector<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(bytemuck::cast_slice(self.values))
    }

    fn data_len(&self) -> usize {
        size_of_val(self.values)
    }
}

/// Writes vectors by name.
pub(crate) fn write<'a>(
    path: &Path,
    vectors: impl Iterator<Item = (String, &'a [f32])>,
) -> io::Result<()> {
    let vectors: BTreeMap<_, _> =
        vectors.map(|(name, values)| (name, Vector { values, shape: [values.len()] })).collect();
    safetensors::serialize_to_file(vectors, None, path).map_err(io::Error::other)
}

/// Reads vectors by name.
pub(crate) fn read(path: &Path) -> Result<BTreeMap<String, Vec<f32>>, String> {
    let data = std::fs::read(path).map_err(|error| error.to_string())?;
    let file = SafeTensors::deserialize(&data).map_err(|error| error.to_string())?;
    file.iter()
        .map(|(name, tensor)| {
            if tensor.dtype() != Dtype::F32 {
                return Err(format!("`{name}` holds {:?} instead of F32", tensor.dtype()));
            }
            let (values, _) = tensor.data().as_chunks::<4>();
            let values = values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            Ok((name.to_owned(), values))
        })
        .collect()
}
