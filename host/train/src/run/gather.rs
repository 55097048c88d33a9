//! Playing groups side by side until enough are complete.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use super::{Episodes, EpisodesError, Gathering, GroupRequest, Played, Queue};
use crate::order::TaskOrder;

/// Keeps groups under way.
pub(super) struct Gatherer<E> {
    episodes: Arc<E>,
    settings: Gathering,
    playing: JoinSet<(u64, Result<Played, EpisodesError>)>,
    /// Complete groups by the order in which they were begun.
    ready: BTreeMap<u64, Played>,
    begun: u64,
    waited: Duration,
}

impl<E: Episodes> Gatherer<E> {
    pub(super) fn new(episodes: Arc<E>, settings: Gathering) -> Self {
        Self {
            episodes,
            settings,
            playing: JoinSet::new(),
            ready: BTreeMap::new(),
            begun: 0,
            waited: Duration::ZERO,
        }
    }

    /// Begins the open groups of an earlier process.
    pub(super) fn reopen(&mut self, queue: &Queue) {
        for request in &queue.open {
            self.begin(*request);
        }
    }

    /// How long the last step's groups were waited for.
    pub(super) const fn waited(&self) -> Duration {
        self.waited
    }

    /// Waits for the groups of the next step. They come in the order in which they were begun, so
    /// that sync training does not depend on which ended first.
    pub(super) async fn gather(
        &mut self,
        queue: &mut Queue,
        order: &mut TaskOrder,
        tell: &mut impl FnMut(usize),
    ) -> Result<Vec<Played>, EpisodesError> {
        let began = Instant::now();
        let wanted = self.settings.groups;
        loop {
            self.fill(queue, order);
            if self.ready.len() >= wanted {
                break;
            }
            match self.playing.join_next().await {
                None => break,
                Some(Ok((number, played))) => {
                    self.ready.insert(number, played?);
                    tell(self.ready.len().min(wanted));
                }
                Some(Err(error)) => return Err(EpisodesError::Failed(Box::new(error))),
            }
        }
        self.waited = began.elapsed();
        let mut gathered = Vec::with_capacity(wanted);
        while gathered.len() < wanted
            && let Some((_, played)) = self.ready.pop_first()
        {
            gathered.push(played);
        }
        // While a step computes, the next groups of asynchronous training are under way already.
        if self.settings.asynchronous().is_some() {
            self.fill(queue, order);
        }
        Ok(gathered)
    }

    fn fill(&mut self, queue: &mut Queue, order: &mut TaskOrder) {
        let most = self.settings.asynchronous().unwrap_or(self.settings.groups);
        while self.playing.len() + self.ready.len() < most
            && let Some(request) = queue.next(order, self.settings.episodes)
        {
            self.begin(request);
        }
    }

    fn begin(&mut self, request: GroupRequest) {
        let (episodes, number) = (Arc::clone(&self.episodes), self.begun);
        self.begun += 1;
        self.playing.spawn(async move { (number, episodes.play(request).await) });
    }

    /// Waits until nothing is under way. Whoever stops training has made the source give up.
    pub(super) async fn stop(mut self) {
        self.playing.abort_all();
        while self.playing.join_next().await.is_some() {}
    }
}
