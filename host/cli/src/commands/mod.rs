//! One module a command.

pub(crate) mod bench;
pub(crate) mod bench_model;
pub(crate) mod bench_policy;
pub(crate) mod bench_train;
pub(crate) mod compare;
pub(crate) mod doctor;
pub(crate) mod files;
pub(crate) mod grade;
pub(crate) mod inspect;
pub(crate) mod new;
pub(crate) mod plugin;
pub(crate) mod reward_check;
pub(crate) mod serve;
pub(crate) mod tasks;
pub(crate) mod trace;
