//! Completion-based network transport for Linux.
