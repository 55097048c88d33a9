//! Where tokens come from: local models, tokenizers and chat templates, clients of upstream
//! servers, scripted policies.
//!
//! The room promises one trait, [`Policy`]. A policy is either *token-level* (it offers a
//! [`ChatFormat`], is asked with token ids, and its replies carry the ids it sampled) or
//! *message-level* (it is asked with messages). Only the gateway calls a policy.

mod policy;

pub use policy::{
    CallKey, ChatFormat, Chunk, FormatError, Policy, PolicyError, PolicyInfo, PolicyReply, Prompt,
    ReplyRequest, SampledReply, Sampling,
};
