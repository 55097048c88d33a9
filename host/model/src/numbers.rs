//! Tensors as slices of f32, to read and to change in place.

use std::{cell::RefCell, ops::Deref};

use candle_core::{CpuStorage, InplaceOp1, Layout, Result, Storage, Tensor, bail};

/// The numbers of a contiguous f32 tensor in main memory. The tensor cannot be changed while this
/// lives.
pub(crate) fn numbers(tensor: &Tensor) -> Result<impl Deref<Target = [f32]> + '_> {
    let (storage, layout) = tensor.storage_and_layout();
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("a tensor is not contiguous")
    };
    let Storage::Cpu(CpuStorage::F32(all)) = &*storage else {
        bail!("a tensor does not hold f32 numbers in main memory")
    };
    if end > all.len() {
        bail!("a tensor reaches beyond its storage")
    }
    Ok(Numbers { storage, start, end })
}

struct Numbers<S> {
    storage: S,
    start: usize,
    end: usize,
}

impl<S: Deref<Target = Storage>> Deref for Numbers<S> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &*self.storage {
            Storage::Cpu(CpuStorage::F32(all)) => all.get(self.start..self.end).unwrap_or_default(),
            _ => &[],
        }
    }
}

/// Changes the numbers of a contiguous f32 tensor in main memory, for every view of them. Waits
/// until nobody reads.
pub(crate) fn change<R>(tensor: &Tensor, change: impl FnOnce(&mut [f32]) -> R) -> Result<R> {
    struct Change<F, R>(RefCell<(Option<F>, Option<R>)>);
    impl<F: FnOnce(&mut [f32]) -> R, R> InplaceOp1 for Change<F, R> {
        fn name(&self) -> &'static str {
            "change"
        }

        fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
            let (CpuStorage::F32(all), Some((start, end))) = (storage, layout.contiguous_offsets())
            else {
                bail!("a tensor does not hold contiguous f32 numbers in main memory")
            };
            let mut state = self.0.borrow_mut();
            if let (Some(numbers), Some(change)) = (all.get_mut(start..end), state.0.take()) {
                state.1 = Some(change(numbers));
            }
            Ok(())
        }
    }
    let operation = Change(RefCell::new((Some(change), None)));
    tensor.inplace_op1(&operation)?;
    match operation.0.into_inner().1 {
        Some(result) => Ok(result),
        None => bail!("a tensor reaches beyond its storage"),
    }
}
