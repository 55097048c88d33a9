//! A completion as an event stream.

use std::{collections::VecDeque, convert::Infallible, sync::Arc};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::Response,
};
use fulgurite_policy::{Chunk, Policy, PolicyError, PolicyReply, ReplyRequest};
use futures::{StreamExt as _, stream};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{
    Shared,
    completion::{self, Completion},
    failure::Failure,
};

/// Events that wait for a slow client, and chunks that wait for this task.
const EVENTS: usize = 16;
const CHUNKS: usize = 1024;

/// Answers with a stream whose events follow the call. When the client goes away, the call is
/// dropped.
pub(super) fn respond(
    shared: Arc<Shared>,
    request: ReplyRequest,
    completion: Completion,
    place: OwnedSemaphorePermit,
) -> Response {
    let (events, receiver) = mpsc::channel::<Bytes>(EVENTS);
    tokio::spawn(async move {
        let _place = place;
        tokio::select! {
            () = events.closed() => {}
            () = write(&*shared.policy, request, &completion, &events) => {}
            () = shared.cut() => {
                // Lost where the client does not read: it is cut off then.
                let _ = events.try_send(event(&Failure::stopping().body()));
            }
        }
    });
    let body = stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|event| (event, receiver))
    });
    let mut response = Response::new(Body::from_stream(body.map(Ok::<_, Infallible>)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

async fn write(
    policy: &dyn Policy,
    request: ReplyRequest,
    completion: &Completion,
    events: &mpsc::Sender<Bytes>,
) {
    let (sender, mut chunks) = mpsc::channel(CHUNKS);
    let mut reply = policy.reply(request, Some(sender));
    let mut waiting = VecDeque::from([event(&completion.opening())]);
    let mut sent = Sent::default();
    // The policy does not wait for slow readers, so chunks are taken at once, and wait here for
    // the client. They are a reply at most.
    let reply = loop {
        tokio::select! {
            biased;
            Some(chunk) = chunks.recv() => {
                sent.note(&chunk);
                waiting.push_back(event(&completion.chunk(&chunk)));
            }
            reply = &mut reply => break reply,
            Ok(permit) = events.reserve(), if !waiting.is_empty() => {
                if let Some(event) = waiting.pop_front() {
                    permit.send(event);
                }
            }
        }
    };
    while let Ok(chunk) = chunks.try_recv() {
        sent.note(&chunk);
        waiting.push_back(event(&completion.chunk(&chunk)));
    }
    waiting.extend(last(reply, completion, sent));
    for event in waiting {
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// What of a reply was streamed already.
#[derive(Default)]
struct Sent {
    text: bool,
    thinking: bool,
}

impl Sent {
    fn note(&mut self, chunk: &Chunk) {
        match chunk {
            Chunk::Text(_) => self.text = true,
            Chunk::Thinking(_) => self.thinking = true,
        }
    }
}

/// The events that end a stream.
fn last(
    reply: Result<PolicyReply, PolicyError>,
    completion: &Completion,
    sent: Sent,
) -> Vec<Bytes> {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return vec![event(&Failure::of_policy(error).body())],
    };
    let mut events = Vec::new();
    // Not every policy streams.
    for (was_sent, chunk) in [
        (sent.thinking, Chunk::Thinking(completion::thinking(&reply.message))),
        (sent.text, Chunk::Text(reply.message.plain_text())),
    ] {
        let (Chunk::Text(text) | Chunk::Thinking(text)) = &chunk;
        if !was_sent && !text.is_empty() {
            events.push(event(&completion.chunk(&chunk)));
        }
    }
    events.extend(completion.closing(&reply).iter().map(event));
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    events
}

/// JSON has no line ends outside of its strings, and in them they are escaped.
fn event(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}
