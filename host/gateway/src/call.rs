//! One call of a policy: queue, gate, time limit, retries.

use std::sync::Arc;

use backon::{BackoffBuilder, ExponentialBuilder};
use fulgurite_policy::{Chunk, Policy, PolicyError, PolicyReply, ReplyRequest};
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, timeout},
};

use crate::{Retries, Settings, error::Failure, gate::Gate};

/// Chunks that may wait between policy and host; beyond it a policy may drop them.
const CHUNKS_IN_FLIGHT: usize = 1024;

/// A policy and the places in front of it. Roles that name the same policy share the places.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) places: Arc<Semaphore>,
}

/// A complete reply and how it came.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) reply: PolicyReply,
    /// The policy's version when it was asked.
    pub(crate) version: u64,
    pub(crate) latency_ms: u64,
    pub(crate) retries: u32,
}

/// No reply after all attempts.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) failure: Failure,
    pub(crate) retries: u32,
}

/// Takes the chunks of a reply while it is written.
pub(crate) trait ChunkSink: Send + Sync {
    /// A new attempt begins; what came of an earlier one is void.
    fn restart(&self);
    fn push(&self, chunk: Chunk);
}

/// Asks until there is a reply, the failure is not transient or the attempts are used up. A place
/// in front of the policy is held only while the policy works.
pub(crate) async fn call(
    model: &Model,
    gate: &Gate,
    settings: &Settings,
    request: ReplyRequest,
    sink: Option<&dyn ChunkSink>,
) -> Result<Answered, Unanswered> {
    let mut delays = delays(settings.retries);
    let mut retries = 0;
    loop {
        let error = {
            let place = model.places.acquire().await;
            if place.is_err() {
                let failure = Failure::broken_policy("the queue of the policy is closed");
                return Err(Unanswered { failure, retries });
            }
            let _passed = gate.pass().await;
            let version = model.policy.version();
            let started = Instant::now();
            let attempt = attempt(&*model.policy, request.clone(), sink);
            match timeout(settings.call_timeout, attempt).await {
                Ok(Ok(reply)) => {
                    let latency_ms =
                        u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                    return Ok(Answered { reply, version, latency_ms, retries });
                }
                Ok(Err(error)) => error,
                Err(_) => PolicyError::Timeout,
            }
        };
        let delay = if error.is_transient() { delays.next() } else { None };
        let Some(delay) = delay else {
            return Err(Unanswered { failure: error.into(), retries });
        };
        let wish = match &error {
            PolicyError::RateLimited { retry_after } => retry_after.unwrap_or_default(),
            _ => std::time::Duration::ZERO,
        };
        let delay = delay.max(wish).min(settings.retries.longest_delay);
        tracing::debug!(%error, ?delay, "a call failed and is tried again");
        tokio::time::sleep(delay).await;
        retries += 1;
    }
}

fn delays(retries: Retries) -> impl Iterator<Item = std::time::Duration> {
    let further = usize::try_from(retries.attempts.get() - 1).unwrap_or(usize::MAX);
    ExponentialBuilder::new()
        .with_min_delay(retries.first_delay)
        .with_max_delay(retries.longest_delay)
        .with_factor(2.0)
        .with_max_times(further)
        .with_jitter()
        .build()
}

async fn attempt(
    policy: &dyn Policy,
    request: ReplyRequest,
    sink: Option<&dyn ChunkSink>,
) -> Result<PolicyReply, PolicyError> {
    let Some(sink) = sink else { return policy.reply(request, None).await };
    sink.restart();
    let (sender, mut chunks) = mpsc::channel(CHUNKS_IN_FLIGHT);
    let mut reply = policy.reply(request, Some(sender));
    loop {
        tokio::select! {
            biased;
            Some(chunk) = chunks.recv() => sink.push(chunk),
            answer = &mut reply => {
                while let Ok(chunk) = chunks.try_recv() {
                    sink.push(chunk);
                }
                return answer;
            }
        }
    }
}
