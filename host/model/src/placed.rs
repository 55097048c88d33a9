//! A model on another device, in composite operations of candle.
//!
//! Weights may be bf16 there. The residual stream, norms, softmax, rotations and logits are f32
//! all the same: sums of bf16 numbers break after some hundred terms, and angles in bf16 are
//! wrong. Only sampling works on a device so far; training says so. The operations are the same
//! on every device, so they are tested on the CPU against its own kernels.

use candle_core::{D, DType, Device, Result, Tensor, bail};

use crate::{
    Model, ModelConfig,
    batch::{KvSlots, Run},
    layer::{Layer, Rotations},
    linear::Linear,
};

/// Where a model is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// The processor, by our own kernels.
    #[default]
    Cpu,
    /// A graphics card by number. Needs the feature `cuda`.
    Cuda(usize),
}

/// In which form weights, keys and values are held on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NumberType {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits, with the range of 32.
    Bf16,
}

impl NumberType {
    fn of_candle(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
        }
    }
}

/// Weights on a device.
#[derive(Debug)]
pub(crate) struct Placed {
    device: Device,
    kind: DType,
    embedding: Tensor,
    layers: Vec<PlacedLayer>,
    norm: Tensor,
    head: Tensor,
}

#[derive(Debug)]
struct PlacedLayer {
    attention_norm: Tensor,
    projections: Tensor,
    head_norms: Option<(Tensor, Tensor)>,
    output: Tensor,
    feed_forward_norm: Tensor,
    gates: Tensor,
    down: Tensor,
}

/// Keys and values on a device: of each layer, each (slots · capacity, key heads · head).
pub(crate) type PlacedSlots = Vec<(Tensor, Tensor)>;

impl Model {
    /// Copies the model to where it shall be computed; weights that were there are dropped.
    /// Adapters must be merged first. Slots for a placed model come from [`KvSlots::of`].
    pub fn place(&mut self, placement: Placement, numbers: NumberType) -> Result<()> {
        self.set_placed(match placement {
            Placement::Cpu if numbers == NumberType::F32 => None,
            Placement::Cpu => bail!("on the CPU, models are computed with 32 bits"),
            Placement::Cuda(number) => {
                let device = Device::new_cuda(number)?;
                Some(Placed::new(self, &device, numbers.of_candle())?)
            }
        });
        Ok(())
    }
}

impl Placed {
    pub(crate) fn new(model: &Model, device: &Device, kind: DType) -> Result<Self> {
        if model.lora().is_some() {
            bail!("adapters are merged before a model goes to a device")
        }
        if model.config().rope.interleaved {
            bail!("on a device, weights must be loaded as plain ones")
        }
        let matrix = |linear: &Linear| linear.plain()?.to_dtype(kind)?.to_device(device);
        let vector = |tensor: &Tensor| tensor.to_device(device);
        let layer = |layer: &Layer| {
            let head_norms = match &layer.head_norms {
                Some(norms) => Some((vector(&norms.queries.tensor)?, vector(&norms.keys.tensor)?)),
                None => None,
            };
            Ok(PlacedLayer {
                attention_norm: vector(&layer.attention_norm.tensor)?,
                projections: matrix(&layer.projections)?,
                head_norms,
                output: matrix(&layer.output)?,
                feed_forward_norm: vector(&layer.feed_forward_norm.tensor)?,
                gates: matrix(&layer.gates)?,
                down: matrix(&layer.down)?,
            })
        };
        let embedding = matrix(&model.embedding)?;
        let head = match &model.head {
            Some(head) => matrix(head)?,
            None => embedding.clone(),
        };
        Ok(Self {
            device: device.clone(),
            kind,
            embedding,
            layers: model.layers.iter().map(layer).collect::<Result<_>>()?,
            norm: vector(&model.norm.tensor)?,
            head,
        })
    }

    pub(crate) fn slots(
        &self,
        config: &ModelConfig,
        slots: usize,
        capacity: usize,
    ) -> Result<PlacedSlots> {
        let shape = (slots * capacity, config.key_width());
        let zeros = || Tensor::zeros(shape, self.kind, &self.device);
        self.layers.iter().map(|_| Ok((zeros()?, zeros()?))).collect()
    }

    /// As [`Model::forward`]; the slots' lengths are the caller's business.
    pub(crate) fn forward(
        &self,
        config: &ModelConfig,
        tokens: &[u32],
        rotations: &Rotations,
        runs: &[Run],
        slots: &KvSlots,
    ) -> Result<Tensor> {
        let rows = tokens.len();
        let table =
            |numbers: &[f32]| Tensor::from_slice(numbers, (rows, 1, config.head / 2), &self.device);
        let (cosines, sines) = (table(&rotations.cosines)?, table(&rotations.sines)?);
        let ids = Tensor::from_slice(tokens, rows, &self.device)?;
        let mut stream = self.embedding.index_select(&ids, 0)?.to_dtype(DType::F32)?;
        let Some(memory) = slots.placed() else {
            bail!("the slots are not on the model's device; make them with `KvSlots::of`")
        };
        for (layer, (keys, values)) in self.layers.iter().zip(memory) {
            let normed = norm(&stream, &layer.attention_norm, config.epsilon)?;
            let all = linear(&normed, &layer.projections)?;
            let (width, key_width) = (config.query_width(), config.key_width());
            let heads = |start: usize, count: usize| {
                all.narrow(1, start, count * config.head)?.reshape((rows, count, config.head))
            };
            let (mut queries, mut own) =
                (heads(0, config.heads)?, heads(width, config.key_value_heads)?);
            if let Some((query_norm, key_norm)) = &layer.head_norms {
                queries = norm(&queries, query_norm, config.epsilon)?;
                own = norm(&own, key_norm, config.epsilon)?;
            }
            let queries = rotate(&queries, &cosines, &sines)?.to_dtype(self.kind)?;
            let own = rotate(&own, &cosines, &sines)?.reshape((rows, key_width))?;
            let own = own.to_dtype(self.kind)?;
            let own_values = all.narrow(1, width + key_width, key_width)?.to_dtype(self.kind)?;
            let mut attended = Vec::with_capacity(runs.len());
            for run in runs {
                let first = run.slot as usize * slots.capacity();
                let part = |all: &Tensor| all.narrow(0, run.row, run.rows)?.contiguous();
                keys.slice_set(&part(&own)?, 0, first + run.position)?;
                values.slice_set(&part(&own_values)?, 0, first + run.position)?;
                let length = run.position + run.rows;
                let (keys, values) =
                    (keys.narrow(0, first, length)?, values.narrow(0, first, length)?);
                attended.push(attend(config, &part(&queries)?, &keys, &values, run.position)?);
            }
            let attended = Tensor::cat(&attended, 0)?;
            stream = (stream + linear(&attended, &layer.output)?)?;
            let normed = norm(&stream, &layer.feed_forward_norm, config.epsilon)?;
            let both = linear(&normed, &layer.gates)?;
            let gate = both.narrow(1, 0, config.feed_forward)?.silu()?;
            let inner = (gate * both.narrow(1, config.feed_forward, config.feed_forward)?)?;
            stream = (stream + linear(&inner, &layer.down)?)?;
        }
        norm(&stream, &self.norm, config.epsilon)
    }

    /// As [`Model::logits`].
    pub(crate) fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        linear(hidden, &self.head)
    }
}

/// (rows, in) f32 → (rows, out) f32, multiplied in the matrix's own type.
fn linear(rows: &Tensor, matrix: &Tensor) -> Result<Tensor> {
    rows.to_dtype(matrix.dtype())?.matmul(&matrix.t()?)?.to_dtype(DType::F32)
}

fn norm(rows: &Tensor, weight: &Tensor, epsilon: f32) -> Result<Tensor> {
    let mean = (rows.sqr()?.mean_keepdim(D::Minus1)? + f64::from(epsilon))?;
    rows.broadcast_div(&mean.sqrt()?)?.broadcast_mul(weight)
}

/// Turns (rows, heads, head) by (rows, 1, head / 2).
fn rotate(heads: &Tensor, cosines: &Tensor, sines: &Tensor) -> Result<Tensor> {
    let half = cosines.dim(2)?;
    let (left, right) = (heads.narrow(2, 0, half)?, heads.narrow(2, half, half)?);
    let first = (left.broadcast_mul(cosines)? - right.broadcast_mul(sines)?)?;
    let second = (right.broadcast_mul(cosines)? + left.broadcast_mul(sines)?)?;
    Tensor::cat(&[first, second], 2)
}

/// Causal attention of one run: queries (rows, heads, head), keys and values (length, key heads ·
/// head); gives (rows, heads · head) f32.
fn attend(
    config: &ModelConfig,
    queries: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    position: usize,
) -> Result<Tensor> {
    let (rows, length) = (queries.dim(0)?, keys.dim(0)?);
    let (heads, shared, head) = (config.heads, config.key_value_heads, config.head);
    let spread = |all: &Tensor| {
        all.reshape((length, shared, 1, head))?
            .expand((length, shared, heads / shared, head))?
            .reshape((length, heads, head))?
            .transpose(0, 1)?
            .contiguous()
    };
    let queries = queries.transpose(0, 1)?.contiguous()?;
    let scores = queries.matmul(&spread(keys)?.transpose(1, 2)?.contiguous()?)?;
    let scores = (scores.to_dtype(DType::F32)? / f64::from(head as u32).sqrt())?;
    let hidden: Vec<f32> = (0..rows)
        .flat_map(|row| {
            (0..length).map(move |key| if key > position + row { f32::NEG_INFINITY } else { 0.0 })
        })
        .collect();
    let mask = Tensor::from_vec(hidden, (1, rows, length), scores.device())?;
    let scores = scores.broadcast_add(&mask)?;
    let weights = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
    let weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
    let attended = weights.to_dtype(values.dtype())?.matmul(&spread(values)?)?;
    attended.transpose(0, 1)?.reshape((rows, heads * head))?.to_dtype(DType::F32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Architecture, Batch, Rope};

    fn model(architecture: Architecture) -> Model {
        let config = ModelConfig {
            architecture,
            vocabulary: 50,
            hidden: 24,
            feed_forward: 40,
            layers: 2,
            heads: 4,
            key_value_heads: 2,
            head: 8,
            epsilon: 1e-5,
            rope: Rope { base: 10_000.0, scaling: None, interleaved: false },
            context: 64,
            tied: architecture == Architecture::Llama,
        };
        Model::random(&config, 3).unwrap()
    }

    /// Two conversations in parts; gives the logits of all rows.
    fn run(model: &Model) -> Vec<f32> {
        let mut slots = KvSlots::of(model, 3, 32).unwrap();
        let mut all = Vec::new();
        for parts in [[&[1, 2, 3, 4][..], &[9, 8]], [&[5][..], &[7, 6, 5]]] {
            let mut batch = Batch::default();
            batch.push(&slots, 2, parts[0]);
            batch.push(&slots, 0, parts[1]);
            let hidden = model.forward(&batch, &mut slots).unwrap();
            let logits = model.logits(&hidden).unwrap().flatten_all().unwrap();
            all.extend(logits.to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap());
        }
        slots.copy_prefix(2, 1, 4).unwrap();
        let hidden = model.forward(&Batch::following(&slots, 1, &[5]), &mut slots).unwrap();
        all.extend(model.logits(&hidden).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap());
        all
    }

    fn compare(device: &Device) {
        for architecture in [Architecture::Llama, Architecture::Qwen3] {
            let mut model = model(architecture);
            let exact = run(&model);
            for (kind, bound) in [(DType::F32, 2e-5), (DType::BF16, 3e-2)] {
                model.set_placed(Some(Placed::new(&model, device, kind).unwrap()));
                let placed = run(&model);
                assert_eq!(placed.len(), exact.len());
                let differences = exact.iter().zip(&placed).map(|(l, r)| (l - r).abs());
                let largest = differences.fold(0f32, f32::max);
                assert!(largest < bound, "{architecture:?}, {kind:?}: {largest}");
                model.set_placed(None);
            }
        }
    }

    #[test]
    fn composite_operations_compute_what_the_kernels_do() {
        compare(&Device::Cpu);
    }

    #[test]
    #[ignore = "needs a graphics card and the feature `cuda`"]
    fn a_graphics_card_computes_what_the_kernels_do() {
        compare(&Device::new_cuda(0).unwrap());
    }

    #[test]
    fn what_a_device_cannot_do_is_said() {
        let mut model = model(Architecture::Llama);
        assert!(model.place(Placement::Cpu, NumberType::Bf16).is_err());
        model.place(Placement::Cpu, NumberType::F32).unwrap();
        let own = Placed::new(&model, &Device::Cpu, DType::F32).unwrap();
        let mut slots = KvSlots::of(&model, 1, 8).unwrap();
        model.set_placed(Some(own));
        let batch = Batch::following(&slots, 0, &[1]);
        let error = model.forward(&batch, &mut slots).unwrap_err().to_string();
        assert!(error.contains("KvSlots::of"), "{error}");
        let packed = crate::Packed { sequences: vec![], targets: vec![], temperature: 1.0 };
        assert!(model.score(&packed).unwrap_err().to_string().contains("device"));
    }
}
