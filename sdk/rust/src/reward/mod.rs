//! For rewards: scorers of finished episodes.
//!
//! ```no_run
//! use fulgurite_sdk::reward::*;
//!
//! #[derive(Deserialize)]
//! struct Grading {
//!     answer: String,
//! }
//!
//! struct Same;
//!
//! impl Reward for Same {
//!     type Config = NoConfig;
//!
//!     fn describe() -> Description {
//!         Description::new("same", env!("CARGO_PKG_VERSION"))
//!     }
//!
//!     fn score(episode: &Episode, _: NoConfig) -> Result<Score, Failure> {
//!         let grading: Grading = episode.grading()?;
//!         Ok((episode.ending().answer.trim() == grading.answer).into())
//!     }
//! }
//!
//! fulgurite_sdk::export_reward!(Same);
//! ```
//!
//! A reward runs after the episode, in a store of its own, over records that the host keeps. An
//! `Err` is an alarm for the owner of the run; for bad work answer a low [`Score`].

mod episode;
#[doc(hidden)]
pub mod export;
mod grader;
mod score;

pub use schemars::JsonSchema;
pub use serde::{Deserialize, Serialize};

pub use crate::Metadata;
pub use crate::bindings::harness::fulgurite::plugin::commands::{
    Captured, ExecError, Output, Stop,
};
pub use crate::bindings::harness::fulgurite::plugin::types::{
    FinishReason, Message, Part, Role, ToolCall, ToolResult, Usage,
};
pub use crate::bindings::reward::exports::fulgurite::plugin::scorer::{
    Component, Description, Failure, Scores as Score, TurnValue,
};
pub use crate::bindings::reward::fulgurite::plugin::episode::{
    Change, ChangeEntry, EntryKind, EpisodeEnding as Ending, GradedTask, ReadError, Status, Turn,
};
pub use crate::bindings::reward::fulgurite::plugin::grader::{Base, GraderError};
pub use crate::command::Command;
pub use crate::configuration::NoConfig;
pub use crate::fence::{Block, fenced_blocks};
pub use crate::text::clip;
pub use episode::Episode;
pub use grader::{Sandbox, run_connected};

use serde::de::DeserializeOwned;

/// A scorer. Name it to [`export_reward!`](crate::export_reward).
pub trait Reward {
    /// Its configuration. The JSON Schema is part of the description; what does not fit is a
    /// failure of the reward.
    type Config: DeserializeOwned + JsonSchema;

    /// Who it is. Called at registration too, so it uses no import.
    fn describe() -> Description;

    /// Scores one finished episode.
    fn score(episode: &Episode, config: Self::Config) -> Result<Score, Failure>;
}

/// Makes a type that implements [`Reward`] the reward that this component exports. Once a crate.
#[macro_export]
macro_rules! export_reward {
    ($reward:ident) => {
        const _: () = {
            struct Exported;

            impl $crate::bindings::reward::exports::fulgurite::plugin::scorer::Guest for Exported {
                fn describe() -> $crate::reward::Description {
                    $crate::reward::export::describe::<$reward>()
                }

                fn score(
                    config: ::std::string::String,
                ) -> ::core::result::Result<$crate::reward::Score, $crate::reward::Failure>
                {
                    $crate::reward::export::score::<$reward>(&config)
                }
            }

            $crate::bindings::reward::export_reward_bindings!(
                Exported with_types_in $crate::bindings::reward
            );
        };
    };
}
