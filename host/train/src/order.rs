//! In which order tasks are trained on.

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Shuffled passes over tasks. The order of a pass follows from the seed and the number of the
/// pass alone, so these few numbers are all that a checkpoint needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskOrder {
    seed: u64,
    tasks: u32,
    pass: u64,
    position: u32,
}

impl TaskOrder {
    /// Of tasks 0..`tasks`.
    pub const fn new(seed: u64, tasks: u32) -> Self {
        Self { seed, tasks, pass: 0, position: 0 }
    }

    /// Passes that are complete.
    pub const fn passes(&self) -> u64 {
        self.pass
    }

    /// The next `count` tasks. Each pass holds every task once.
    pub fn take(&mut self, count: usize) -> Vec<u32> {
        let mut taken = Vec::with_capacity(count);
        let mut order = self.order();
        while taken.len() < count && self.tasks > 0 {
            let position = usize::try_from(self.position).unwrap_or(usize::MAX);
            match order.get(position) {
                Some(task) => {
                    taken.push(*task);
                    self.position = self.position.saturating_add(1);
                }
                None => {
                    self.pass = self.pass.saturating_add(1);
                    self.position = 0;
                    order = self.order();
                }
            }
        }
        taken
    }

    fn order(&self) -> Vec<u32> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(self.pass);
        let mut order: Vec<u32> = (0..self.tasks).collect();
        order.shuffle(&mut random);
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pass_holds_every_task_once_in_another_order() {
        let mut order = TaskOrder::new(1, 20);
        let mut passes: Vec<Vec<u32>> = (0..3).map(|_| order.take(20)).collect();
        assert!(passes[0] != passes[1] && passes[1] != passes[2]);
        assert_ne!(TaskOrder::new(2, 20).take(20), passes[0]);
        for pass in &mut passes {
            pass.sort_unstable();
            assert_eq!(*pass, (0..20).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_saved_order_goes_on_where_it_was() {
        let mut whole = TaskOrder::new(1, 7);
        let expected = whole.take(30);
        let mut order = TaskOrder::new(1, 7);
        let mut taken = Vec::new();
        for _ in 0..10 {
            let saved = serde_json::to_string(&order).unwrap();
            order = serde_json::from_str(&saved).unwrap();
            taken.extend(order.take(3));
        }
        assert_eq!(taken, expected);
        assert!(TaskOrder::new(1, 0).take(3).is_empty());
    }
}
