//! A task's workspace, the shell line and the lanes commands run in.
