//! Taking tensors out of a file.

use std::collections::HashSet;

use candle_core::{DType, Device, Tensor};

use crate::gguf::{GgufFile, ModelError};
use crate::{Weights, linear::Matrix};

/// Loads tensors and remembers which.
pub(crate) struct Loader<'a> {
    file: &'a mut GgufFile,
    form: Weights,
    loaded: HashSet<String>,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(file: &'a mut GgufFile, form: Weights) -> Self {
        Self { file, form, loaded: HashSet::new() }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.file.has_tensor(name)
    }

    pub(crate) fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<Matrix, ModelError> {
        self.loaded.insert(name.to_owned());
        let tensor = self.file.tensor(name, &[rows, columns])?;
        Matrix::new(tensor, self.form).map_err(|error| self.unusable(name, &error))
    }

    pub(crate) fn vector(&mut self, name: &str, length: usize) -> Result<Tensor, ModelError> {
        self.loaded.insert(name.to_owned());
        self.file
            .tensor(name, &[length])?
            .dequantize(&Device::Cpu)
            .and_then(|tensor| tensor.to_dtype(DType::F32))
            .map_err(|error| self.unusable(name, &error))
    }

    pub(crate) fn numbers(&mut self, name: &str, length: usize) -> Result<Vec<f32>, ModelError> {
        let vector = self.vector(name, length)?;
        vector.to_vec1().map_err(|error| self.unusable(name, &error))
    }

    fn unusable(&self, name: &str, error: &candle_core::Error) -> ModelError {
        self.file.error(format!("the tensor `{name}` cannot be used: {error}"))
    }

    /// A tensor that is not used would be a part of the model that is missing.
    pub(crate) fn nothing_left(&self) -> Result<(), ModelError> {
        match self.file.tensor_names().find(|name| !self.loaded.contains(*name)) {
            None => Ok(()),
            Some(name) => Err(self.file.error(format!(
                "the tensor `{}` is no part of the llama architecture as it is known here",
                name.escape_debug()
            ))),
        }
    }
}
