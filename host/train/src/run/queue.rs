//! Which groups are next, under way, or waiting for an update.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::GroupRequest;
use crate::order::TaskOrder;

/// Everything about groups that must outlive the process. Rewards and tokens are in the store of
/// traces; here stands only which episodes they are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// Episodes asked for so far, by task.
    pub asked: BTreeMap<u32, u32>,
    /// Tasks to be sampled before the order goes on.
    pub again: VecDeque<u32>,
    /// Groups under way, or complete and not yet trained on; oldest first.
    pub open: Vec<GroupRequest>,
}

impl Queue {
    /// The next group of `count` episodes, which is open from now on.
    pub fn next(&mut self, order: &mut TaskOrder, count: u32) -> Option<GroupRequest> {
        let task = match self.again.pop_front() {
            Some(task) => task,
            None => order.take(1).first().copied()?,
        };
        let asked = self.asked.entry(task).or_default();
        let request = GroupRequest { task, first: *asked, count };
        *asked = asked.saturating_add(count);
        self.open.push(request);
        Some(request)
    }

    /// These groups were trained on.
    pub fn close(&mut self, requests: &[GroupRequest]) {
        self.open.retain(|open| !requests.contains(open));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visit_of_a_task_has_episodes_of_its_own() {
        let mut order = TaskOrder::new(3, 1);
        let mut queue = Queue::default();
        let first = queue.next(&mut order, 4).unwrap();
        let second = queue.next(&mut order, 4).unwrap();
        assert_eq!((first.first, second.first), (0, 4));
        queue.close(&[first]);
        assert_eq!(queue.open, [second]);
    }

    #[test]
    fn what_is_to_be_sampled_again_comes_first() {
        let mut order = TaskOrder::new(3, 5);
        let mut queue = Queue { again: [4, 4].into(), ..Queue::default() };
        let tasks: Vec<_> = (0..2).map(|_| queue.next(&mut order, 1).unwrap().task).collect();
        assert_eq!(tasks, [4, 4]);
        assert_eq!(queue.asked[&4], 2);
    }

    #[test]
    fn no_tasks_give_no_group() {
        assert_eq!(Queue::default().next(&mut TaskOrder::new(1, 0), 2), None);
    }
}
