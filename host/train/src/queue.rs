//! Groups that are being sampled, across updates and restarts.
//!
//! In synchronous training all groups of a step begin together and are taken together. In
//! asynchronous training more are active than an update takes: it takes those that were complete
//! first, and the rest is carried over. Episodes themselves are in the store of traces; here is
//! only which belong together and which are complete, in whole numbers, so that a checkpoint can
//! hold it ([`crate::checkpoint::State::queue`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Groups in hand. A group is named by a running number, since a task comes once in every pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupQueue {
    /// Episodes of a group.
    size: u32,
    /// The number of the next group.
    next: u32,
    /// How many groups were completed.
    completed: u64,
    active: BTreeMap<u32, Active>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Active {
    task: u32,
    done: BTreeSet<u32>,
    /// The place in the order of completion.
    completed: Option<u64>,
}

/// A group that an update takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Its number.
    pub group: u32,
    /// Its task.
    pub task: u32,
}

impl GroupQueue {
    /// An empty queue of groups of `size` episodes.
    pub const fn new(size: u32) -> Self {
        Self { size, next: 0, completed: 0, active: BTreeMap::new() }
    }

    /// Begins a group of a task; answers its number.
    pub fn begin(&mut self, task: u32) -> u32 {
        let group = self.next;
        self.next = self.next.saturating_add(1);
        let completed = (self.size == 0).then_some(self.completed);
        self.active.insert(group, Active { task, done: BTreeSet::new(), completed });
        group
    }

    /// An episode has its final record, be it graded or dropped. Telling it again changes nothing.
    pub fn done(&mut self, group: u32, sample: u32) {
        let Some(active) = self.active.get_mut(&group) else { return };
        if sample < self.size {
            active.done.insert(sample);
        }
        let whole = u32::try_from(active.done.len()).is_ok_and(|done| done == self.size);
        if whole && active.completed.is_none() {
            active.completed = Some(self.completed);
            self.completed = self.completed.saturating_add(1);
        }
    }

    /// Takes the `count` groups that were complete first; none while there are fewer.
    pub fn take(&mut self, count: usize) -> Option<Vec<Taken>> {
        let mut complete: Vec<(u64, u32)> = self
            .active
            .iter()
            .filter_map(|(group, active)| Some((active.completed?, *group)))
            .collect();
        if complete.len() < count {
            return None;
        }
        complete.sort_unstable();
        let taken = complete.into_iter().take(count).filter_map(|(_, group)| {
            let Active { task, .. } = self.active.remove(&group)?;
            Some(Taken { group, task })
        });
        Some(taken.collect())
    }

    /// Episodes of a group.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Groups in hand, and whether they are complete: first these, in the order of completion,
    /// then the others, oldest first. What a resumed run takes up.
    pub fn in_hand(&self) -> Vec<(Taken, bool)> {
        let mut groups: Vec<(u64, Taken, bool)> = self
            .active
            .iter()
            .map(|(group, Active { task, completed, .. })| {
                let taken = Taken { group: *group, task: *task };
                (completed.unwrap_or(u64::MAX), taken, completed.is_some())
            })
            .collect();
        // Stable, so the oldest of those that are not complete stays first.
        groups.sort_by_key(|(completed, ..)| *completed);
        groups.into_iter().map(|(_, taken, is_complete)| (taken, is_complete)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_group_is_taken_once_in_the_order_of_completion_whatever_is_restarted(
            order in prop::collection::vec((0..6_u32, 0..3_u32), 0..80),
            count in 1..4_usize,
        ) {
            let mut queue = GroupQueue::new(3);
            for task in 0..6 {
                queue.begin(task + 100);
            }
            let mut done = BTreeMap::<u32, BTreeSet<u32>>::new();
            let mut completed = Vec::new();
            let mut taken = Vec::new();
            for (group, sample) in order {
                queue.done(group, sample);
                let own = done.entry(group).or_default();
                if own.insert(sample) && own.len() == 3 {
                    completed.push(group);
                }
                let saved = serde_json::to_value(&queue).unwrap();
                queue = serde_json::from_value(saved).unwrap();
                for group in queue.take(count).into_iter().flatten() {
                    prop_assert_eq!(group.task, group.group + 100);
                    taken.push(group.group);
                }
            }
            prop_assert_eq!(&taken[..], &completed[..completed.len() / count * count]);
            let in_hand = queue.in_hand();
            prop_assert_eq!(in_hand.len(), 6 - taken.len());
            let complete = in_hand.iter().take_while(|(_, is_complete)| *is_complete);
            let complete: Vec<u32> = complete.map(|(group, _)| group.group).collect();
            prop_assert_eq!(&complete[..], &completed[taken.len()..]);
            for (group, is_complete) in in_hand {
                let known = done.get(&group.group).map_or(0, BTreeSet::len);
                prop_assert_eq!(is_complete, known == 3);
            }
        }
    }

    #[test]
    fn numbers_go_on_after_groups_are_taken() {
        let mut queue = GroupQueue::new(1);
        let first = queue.begin(5);
        queue.done(first, 0);
        assert_eq!(queue.take(1), Some(vec![Taken { group: 0, task: 5 }]));
        assert_eq!(queue.take(1), None);
        assert_eq!(queue.begin(5), 1);
    }
}
