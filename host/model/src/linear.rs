//! Linear layers: matrices over one input side by side, quantised or plain, with adapters.

use std::sync::Arc;

use candle_core::{
    Device, Module, Result, Tensor, bail,
    quantized::{GgmlDType, QMatMul, QTensor},
};

use crate::{
    Precision,
    kernels::{
        dot::{Rows, rows_by_matrix},
        product::{Output, View, product},
        rows::add_scaled,
    },
    lora::Adapter,
    numbers::numbers,
};

/// From so many rows on, packing a matrix is cheaper than reading it where it lies.
const MANY: usize = 64;

/// In which form weights are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Weights {
    /// Quantised as the file stores them: small and fast, activations are rounded to 8 bits. Such
    /// a model samples and does not train. Blocks with an offset (Q4_1, Q5_0, Q5_1), for which
    /// candle has no vector instructions, are widened to Q8_0; that rounds far less than they
    /// did.
    #[default]
    Stored,
    /// As plain f32: what the file says, exactly; several times larger.
    Plain,
}

/// How a pass computes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass {
    pub(crate) precision: Precision,
    /// Whether adapters count.
    pub(crate) adapters: bool,
}

/// A matrix of shape (out, in) among those of a [`Linear`].
#[derive(Debug, Clone)]
pub(crate) struct Part {
    /// As in the checkpoint.
    pub(crate) name: String,
    /// Where its outputs stand.
    pub(crate) start: usize,
    pub(crate) outputs: usize,
}

/// The numbers of matrices.
#[derive(Debug, Clone)]
pub(crate) enum Matrices {
    /// (all outputs, in): the parts one below the other.
    Plain(Tensor),
    Stored(Vec<Stored>),
}

/// A matrix as a file stores it.
#[derive(Debug, Clone)]
pub(crate) enum Stored {
    Quantised(Arc<QTensor>, QMatMul),
    Plain(Tensor),
}

impl Stored {
    pub(crate) fn new(tensor: QTensor) -> Result<Self> {
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
}

/// Matrices over one input, whose outputs stand side by side.
#[derive(Debug, Clone)]
pub(crate) struct Linear {
    /// Which parameter this is, among those of the model.
    pub(crate) id: usize,
    pub(crate) parts: Vec<Part>,
    pub(crate) input: usize,
    pub(crate) matrices: Matrices,
    pub(crate) adapters: Vec<Adapter>,
}

impl Linear {
    /// Width of all outputs.
    pub(crate) fn outputs(&self) -> usize {
        self.parts.iter().map(|part| part.outputs).sum()
    }

    /// The plain matrix, which training needs.
    pub(crate) fn plain(&self) -> Result<&Tensor> {
        match &self.matrices {
            Matrices::Plain(matrix) => Ok(matrix),
            Matrices::Stored(_) => bail!(
                "the model's weights are quantised, and these cannot be trained; load it with \
                 plain weights"
            ),
        }
    }

    /// (rows, in) → (rows, out); what `output` held is lost.
    pub(crate) fn forward(
        &self,
        rows: &[f32],
        count: usize,
        output: &mut Vec<f32>,
        pass: Pass,
    ) -> Result<()> {
        let outputs = self.outputs();
        output.resize(count * outputs, 0.0);
        match &self.matrices {
            Matrices::Plain(matrix) => {
                let matrix = numbers(matrix)?;
                multiply(rows, count, &matrix, (outputs, self.input), output, outputs, pass)?;
            }
            Matrices::Stored(stored) => {
                let mut quantised_rows = None;
                for (stored, part) in stored.iter().zip(&self.parts) {
                    let Some(output) = output.get_mut(part.start..) else { continue };
                    match stored {
                        Stored::Plain(matrix) => {
                            let (matrix, shape) = (numbers(matrix)?, (part.outputs, self.input));
                            multiply(rows, count, &matrix, shape, output, outputs, pass)?;
                        }
                        Stored::Quantised(_, product) => {
                            let input = match quantised_rows.take() {
                                Some(input) => input,
                                None => {
                                    Tensor::from_slice(rows, (count, self.input), &Device::Cpu)?
                                }
                            };
                            let result = product.forward(&input)?.contiguous()?;
                            quantised_rows = Some(input);
                            let result = numbers(&result)?;
                            for (to, from) in
                                output.chunks_mut(outputs).zip(result.chunks_exact(part.outputs))
                            {
                                if let Some(to) = to.get_mut(..part.outputs) {
                                    to.copy_from_slice(from);
                                }
                            }
                        }
                    }
                }
            }
        }
        if pass.adapters {
            for adapter in &self.adapters {
                let Some(part) = self.parts.get(adapter.part) else { continue };
                adapt(adapter, part, self.input, rows, count, output, outputs, pass)?;
            }
        }
        Ok(())
    }

    /// The rows of these numbers: (n) → (n, in). For embeddings.
    pub(crate) fn rows(&self, ids: &[u32], output: &mut Vec<f32>) -> Result<()> {
        output.clear();
        let stored;
        let numbers = match &self.matrices {
            Matrices::Plain(matrix) => numbers(matrix)?,
            Matrices::Stored(parts) => match parts.as_slice() {
                [Stored::Plain(matrix)] => numbers(matrix)?,
                [Stored::Quantised(tensor, _)] => {
                    let ids = Tensor::from_slice(ids, ids.len(), &Device::Cpu)?;
                    stored = tensor.embedding(&ids)?.contiguous()?;
                    output.extend_from_slice(&numbers(&stored)?);
                    return Ok(());
                }
                _ => bail!("embeddings are one matrix"),
            },
        };
        for id in ids {
            let start = *id as usize * self.input;
            let Some(row) = numbers.get(start..start + self.input) else {
                bail!("the token {id} is not in the vocabulary")
            };
            output.extend_from_slice(row);
        }
        Ok(())
    }
}

/// output = rows · matrixᵀ, `stride` numbers a row of the output.
pub(crate) fn multiply(
    rows: &[f32],
    count: usize,
    matrix: &[f32],
    (outputs, input): (usize, usize),
    output: &mut [f32],
    stride: usize,
    pass: Pass,
) -> Result<()> {
    let done = if count < MANY || pass.precision == Precision::BatchInvariant {
        match (Rows::new(rows, count, input, input), Rows::new(matrix, outputs, input, input)) {
            (Some(rows), Some(matrix)) => rows_by_matrix(rows, matrix, output, stride),
            _ => false,
        }
    } else {
        product(
            View::new(rows, count, input),
            View::new(matrix, outputs, input).transposed(),
            1.0,
            Output { numbers: output, stride, add: false },
        )
    };
    if !done {
        bail!("{count} rows of {input} numbers do not fit a matrix of ({outputs}, {input})")
    }
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "shapes are plain numbers here")]
fn adapt(
    adapter: &Adapter,
    part: &Part,
    input: usize,
    rows: &[f32],
    count: usize,
    output: &mut [f32],
    stride: usize,
    pass: Pass,
) -> Result<()> {
    let rank = adapter.rank;
    let mut down = vec![0f32; count * rank];
    let (a, b) = (numbers(&adapter.a)?, numbers(&adapter.b)?);
    multiply(rows, count, &a, (rank, input), &mut down, rank, pass)?;
    let Some(output) = output.get_mut(part.start..) else { return Ok(()) };
    if count >= MANY && pass.precision == Precision::Usual {
        let done = product(
            View::new(&down, count, rank),
            View::new(&b, part.outputs, rank).transposed(),
            adapter.scale,
            Output { numbers: output, stride, add: true },
        );
        if !done {
            bail!("the adapter of `{}` does not fit it", part.name)
        }
        return Ok(());
    }
    let mut up = vec![0f32; count * part.outputs];
    multiply(&down, count, &b, (part.outputs, rank), &mut up, part.outputs, pass)?;
    for (to, from) in output.chunks_mut(stride).zip(up.chunks_exact(part.outputs)) {
        add_scaled(adapter.scale, from, to);
    }
    Ok(())
}
