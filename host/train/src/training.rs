//! What a learner is asked, and what it answers: the words of `fulgurite-model`.

pub use fulgurite_model::{Packed, Target, TokenGradient, TokenScore};
