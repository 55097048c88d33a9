//! The one way to a policy: conversations, capture, budgets, retries.
