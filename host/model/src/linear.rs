//! Matrices, quantised or plain.

use std::sync::Arc;

use candle_core::{
    DType, Device, Module, Result, Tensor,
    quantized::{GgmlDType, QMatMul, QTensor},
};

/// In which form weights are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Weights {
    /// Quantised as the file stores them: small and fast, activations are rounded to 8 bits.
    /// Blocks with an offset (Q4_1, Q5_0, Q5_1), for which candle has no vector instructions, are
    /// widened to Q8_0; that rounds far less than they did.
    #[default]
    Stored,
    /// As plain f32: what the file says, exactly; several times larger.
    Plain,
}

/// A matrix of shape (out, in).
#[derive(Debug, Clone)]
pub(crate) enum Matrix {
    Quantised(Arc<QTensor>, QMatMul),
    Plain(Tensor),
}

impl Matrix {
    pub(crate) fn new(tensor: QTensor, form: Weights) -> Result<Self> {
        let plain = matches!(tensor.dtype(), GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16);
        if plain || form == Weights::Plain {
            return Ok(Self::Plain(tensor.dequantize(&Device::Cpu)?.to_dtype(DType::F32)?));
        }
        let tensor = match tensor.dtype() {
            GgmlDType::Q4_1 | GgmlDType::Q5_0 | GgmlDType::Q5_1 => {
                QTensor::quantize(&tensor.dequantize(&Device::Cpu)?, GgmlDType::Q8_0)?
            }
            _ => tensor,
        };
        let tensor = Arc::new(tensor);
        let product = QMatMul::from_arc(tensor.clone())?;
        Ok(Self::Quantised(tensor, product))
    }

    /// (rows, in) → (rows, out).
    pub(crate) fn forward(&self, rows: &Tensor) -> Result<Tensor> {
        match self {
            Self::Quantised(_, product) => product.forward(rows),
            Self::Plain(matrix) => rows.matmul(&matrix.t()?),
        }
    }

    /// The rows of these numbers: (n) → (n, in).
    pub(crate) fn rows(&self, numbers: &Tensor) -> Result<Tensor> {
        match self {
            Self::Quantised(tensor, _) => tensor.embedding(numbers),
            Self::Plain(matrix) => matrix.index_select(numbers, 0),
        }
    }
}
