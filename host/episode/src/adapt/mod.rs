//! Adapters: what a component asks for (traits of `runtime`) from the rooms that have it.

pub(crate) mod exec;
pub(crate) mod grader;
pub(crate) mod journal;
pub(crate) mod llm;
pub(crate) mod programs;
pub(crate) mod view;
