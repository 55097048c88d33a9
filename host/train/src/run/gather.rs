//! Playing groups side by side until enough are complete.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::{Episodes, EpisodesError, Gathering, GroupRequest, Played, Speaker};
use crate::{order::TaskOrder, queue::GroupQueue};

/// Which groups are next, under way, or waiting for an update: what must outlive the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hand {
    /// Groups in hand.
    pub groups: GroupQueue,
    /// Tasks to be sampled before the order goes on.
    #[serde(default)]
    pub again: VecDeque<u32>,
}

impl Hand {
    /// Nothing in hand, for groups of so many episodes.
    pub const fn new(episodes: u32) -> Self {
        Self { groups: GroupQueue::new(episodes), again: VecDeque::new() }
    }

    /// Begins a group of the next task; none when there are no tasks.
    fn begin(&mut self, order: &mut TaskOrder) -> Option<GroupRequest> {
        let task = match self.again.pop_front() {
            Some(task) => task,
            None => order.take(1).first().copied()?,
        };
        let group = self.groups.begin(task);
        Some(GroupRequest { group, task, size: self.groups.size() })
    }
}

/// Keeps groups under way.
pub(super) struct Gatherer<E> {
    episodes: Arc<E>,
    settings: Gathering,
    playing: JoinSet<Result<Played, EpisodesError>>,
    ready: BTreeMap<u32, Played>,
    waited: Duration,
}

impl<E: Episodes> Gatherer<E> {
    pub(super) fn new(episodes: Arc<E>, settings: Gathering) -> Self {
        let (playing, ready) = (JoinSet::new(), BTreeMap::new());
        Self { episodes, settings, playing, ready, waited: Duration::ZERO }
    }

    /// Takes up the groups of an earlier process. Complete ones only have to be read, and are
    /// waited for, so that they stay first; the others are begun.
    pub(super) async fn reopen(
        &mut self,
        hand: &Hand,
        speaker: Speaker,
    ) -> Result<(), EpisodesError> {
        let size = hand.groups.size();
        for (taken, is_complete) in hand.groups.in_hand() {
            let request = GroupRequest { group: taken.group, task: taken.task, size };
            if is_complete {
                let played = self.episodes.play(request, speaker).await?;
                self.ready.insert(request.group, played);
            } else {
                self.begin(request, speaker);
            }
        }
        Ok(())
    }

    /// How long the last step's groups were waited for.
    pub(super) const fn waited(&self) -> Duration {
        self.waited
    }

    /// Waits for the groups of the next step, and removes them from the hand. They come in the
    /// order of their numbers, so that sync training does not depend on which ended first. `goes_on`
    /// says whether another step follows.
    pub(super) async fn gather(
        &mut self,
        hand: &mut Hand,
        order: &mut TaskOrder,
        speaker: Speaker,
        goes_on: bool,
        tell: &mut impl FnMut(usize),
    ) -> Result<Vec<Played>, EpisodesError> {
        let began = Instant::now();
        let wanted = self.settings.groups;
        self.fill(hand, order, speaker);
        while self.ready.len() < wanted {
            match self.playing.join_next().await {
                None => break,
                Some(Ok(played)) => {
                    let played = played?;
                    for index in 0..played.request.size {
                        hand.groups.done(played.request.group, index);
                    }
                    self.ready.insert(played.request.group, played);
                    tell(self.ready.len().min(wanted));
                }
                Some(Err(error)) => return Err(EpisodesError::Failed(Box::new(error))),
            }
        }
        self.waited = began.elapsed();
        let taken = hand.groups.take(wanted.min(self.ready.len())).unwrap_or_default();
        let mut numbers: Vec<u32> = taken.into_iter().map(|taken| taken.group).collect();
        numbers.sort_unstable();
        let gathered = numbers.iter().filter_map(|group| self.ready.remove(group)).collect();
        // While a step computes, further groups of asynchronous training are under way.
        if goes_on && self.settings.is_asynchronous() && speaker == Speaker::Policy {
            self.fill(hand, order, speaker);
        }
        Ok(gathered)
    }

    fn fill(&mut self, hand: &mut Hand, order: &mut TaskOrder, speaker: Speaker) {
        // What is imitated is played step by step, so that its end is sharp.
        let most = match speaker {
            Speaker::Policy => self.settings.under_way(),
            Speaker::References => self.settings.groups,
        };
        while self.playing.len().saturating_add(self.ready.len()) < most
            && let Some(request) = hand.begin(order)
        {
            self.begin(request, speaker);
        }
    }

    fn begin(&mut self, request: GroupRequest, speaker: Speaker) {
        let episodes = Arc::clone(&self.episodes);
        self.playing.spawn(async move { episodes.play(request, speaker).await });
    }

    /// Waits until nothing is under way; what failed meanwhile, if anything. Whoever stops training
    /// has made the source give up.
    pub(super) async fn stop(mut self) -> Option<EpisodesError> {
        let mut failure = None;
        while let Some(played) = self.playing.join_next().await {
            match played {
                Ok(Ok(_) | Err(EpisodesError::Stopped)) => {}
                Ok(Err(error)) => {
                    failure.get_or_insert(error);
                }
                Err(error) => {
                    failure.get_or_insert(EpisodesError::Failed(Box::new(error)));
                }
            }
        }
        failure
    }
}
