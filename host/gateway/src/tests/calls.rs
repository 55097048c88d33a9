//! Single calls: retries, time limits, failures and what is told of them.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use fulgurite_policy::PolicyError;
use fulgurite_trace::{EntryBody, FailureKind};
use tokio::time::Instant;

use super::support::*;
use crate::{LlmError, ReplyOptions, Retries, Settings};

fn retries(attempts: u32) -> Settings {
    let attempts = NonZeroU32::new(attempts).unwrap();
    let first_delay = Duration::from_secs(1);
    let longest_delay = Duration::from_secs(10);
    Settings {
        retries: Retries { attempts, first_delay, longest_delay },
        call_timeout: Duration::from_secs(60),
        ..Settings::default()
    }
}

fn unavailable() -> Answer {
    Err(PolicyError::Unavailable("10.0.0.1 refused".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn transient_failures_are_retried_with_growing_waits() {
    let answers = [unavailable(), Err(PolicyError::Timeout), unavailable(), Ok(reply("a", 1))];
    let (session, notes) = session(retries(4), Listed::new(answers));
    let started = Instant::now();
    let conversation = session.open(plain()).unwrap();
    let reply = conversation.send(user("a"), ReplyOptions::default()).await.unwrap();
    assert_eq!(reply.message.plain_text(), "a");
    let waited = started.elapsed();
    // 1, 2 and 4 seconds, each with up to as much again of jitter.
    assert!((7.0..=14.0).contains(&waited.as_secs_f64()), "{waited:?}");
    assert_eq!(notes.turns()[0].retries, 3);
    assert_eq!(session.usage().retries, 3);
    assert_eq!(session.waited(), waited);
    assert_eq!(session.verdict(), None);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_bounded_and_the_owner_is_told_what_the_harness_is_not() {
    let policy = Listed::new((0..9).map(|_| unavailable()));
    let (session, notes) = session(retries(3), policy.clone());
    let conversation = session.open(plain()).unwrap();
    let failed = conversation.send(user("a"), ReplyOptions::default()).await;
    assert_eq!(failed, Err(LlmError::Unavailable));
    assert_eq!(policy.calls(), 3);
    assert_eq!(session.verdict(), Some(FailureKind::PolicyError));
    let entries = notes.entries();
    let [EntryBody::TurnFailed { index: 0, conversation: 0, error, detail }] = &*entries else {
        panic!("{entries:?}")
    };
    assert_eq!(error, "unavailable");
    assert!(detail.as_ref().unwrap().contains("10.0.0.1 refused"));
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_up_to_the_cap() {
    let slow =
        |seconds| Err(PolicyError::RateLimited { retry_after: Some(Duration::from_secs(seconds)) });
    let policy = Listed::new([slow(7), slow(3600), Ok(reply("a", 1))]);
    let (session, _) = session(retries(3), policy);
    let started = Instant::now();
    let conversation = session.open(plain()).unwrap();
    conversation.send(user("a"), ReplyOptions::default()).await.unwrap();
    assert_eq!(started.elapsed().as_secs(), 17);
}

#[tokio::test(start_paused = true)]
async fn what_a_retry_cannot_mend_is_not_retried() {
    for (error, told, verdict) in [
        (PolicyError::Invalid("x".to_owned()), "invalid", None),
        (PolicyError::ContextLength("x".to_owned()), "context-length", Some("context-length")),
        (PolicyError::Unauthorized("x".to_owned()), "unavailable", Some("policy-error")),
        (PolicyError::NoScript("x".to_owned()), "unavailable", Some("policy-error")),
        (PolicyError::Internal("x".to_owned()), "unavailable", Some("policy-error")),
    ] {
        let policy = Listed::new([Err(error)]);
        let (session, _) = session(retries(5), policy.clone());
        let conversation = session.open(plain()).unwrap();
        let failed = conversation.send(user("a"), ReplyOptions::default()).await.unwrap_err();
        assert_eq!(failed.code(), told);
        assert_eq!(session.verdict().map(FailureKind::name), verdict);
        assert_eq!(policy.calls(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_times_out_each_time() {
    let (session, _) = session(retries(2), Silent::new());
    let started = Instant::now();
    let conversation = session.open(plain()).unwrap();
    let failed = conversation.send(user("a"), ReplyOptions::default()).await;
    assert_eq!(failed, Err(LlmError::Timeout));
    let waited = started.elapsed();
    assert!((121.0..=122.0).contains(&waited.as_secs_f64()), "{waited:?}");
    assert_eq!(session.verdict(), Some(FailureKind::PolicyError));
}

#[tokio::test]
async fn a_policy_that_panics_leaves_nobody_waiting() {
    struct Panics(fulgurite_policy::PolicyInfo);
    #[async_trait::async_trait]
    impl fulgurite_policy::Policy for Panics {
        fn info(&self) -> &fulgurite_policy::PolicyInfo {
            &self.0
        }
        async fn reply(
            &self,
            _: fulgurite_policy::ReplyRequest,
            _: Option<tokio::sync::mpsc::Sender<crate::Chunk>>,
        ) -> Answer {
            panic!("on purpose")
        }
    }
    let info = fulgurite_policy::PolicyInfo {
        name: "panics".to_owned(),
        context_length: None,
        native_tools: true,
    };
    let (session, _) = session(Settings::default(), Arc::new(Panics(info)));
    let conversation = session.open(plain()).unwrap();
    let mut pending = conversation.start(user("a"), ReplyOptions::default()).unwrap();
    pending.ready().await;
    assert_eq!(pending.finish().await, Err(LlmError::Unavailable));
    assert_eq!(session.verdict(), Some(FailureKind::PolicyError));
}

#[tokio::test]
async fn a_second_finish_is_invalid_and_a_failure_stays() {
    let policy = Listed::new([Ok(reply("a", 1)), Err(PolicyError::Internal("x".to_owned()))]);
    let (session, notes) = session(Settings::default(), policy);
    let conversation = session.open(plain()).unwrap();
    let mut pending = conversation.start(user("a"), ReplyOptions::default()).unwrap();
    pending.finish().await.unwrap();
    assert!(matches!(pending.finish().await, Err(LlmError::Invalid(_))));
    pending.cancel();
    let mut pending = conversation.start(user("a"), ReplyOptions::default()).unwrap();
    for _ in 0..2 {
        assert_eq!(pending.finish().await, Err(LlmError::Unavailable));
        assert_eq!(pending.next_chunk().await, Err(LlmError::Unavailable));
    }
    drop(pending);
    assert_eq!(notes.lines(), ["turn 0 of 0", "failed 1 unavailable"]);
}

#[tokio::test]
async fn settings_that_make_no_gateway_are_refused() {
    use crate::{BuildError, Gateway};
    let builder = || Gateway::builder(Settings::default());
    assert_eq!(builder().build().err(), Some(BuildError::NoPolicy));
    let twice = builder().policy("policy", Silent::new()).policy("policy", Silent::new());
    assert_eq!(twice.build().err(), Some(BuildError::DuplicateRole("policy".to_owned())));
    let mut settings = Settings::default();
    settings.sampling.temperature = f32::NAN;
    let bad = Gateway::builder(settings).policy("policy", Silent::new());
    assert_eq!(bad.build().err(), Some(BuildError::Temperature));
    let outside = std::thread::spawn(move || builder_outside().err()).join().unwrap();
    assert_eq!(outside, Some(BuildError::NoRuntime));

    fn builder_outside() -> Result<Gateway, BuildError> {
        Gateway::builder(Settings::default()).policy("policy", Silent::new()).build()
    }
}
