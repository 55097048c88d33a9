//! Tests of whole sessions: real policies of the policy room where they can do it, small ones
//! where token-level formats or failures on command are needed.

mod budgets;
mod calls;
mod chats;
mod durability;
mod histories;
mod order;
mod parallel;
mod streams;
mod support;
