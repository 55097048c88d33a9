//! Tests of whole sessions.
