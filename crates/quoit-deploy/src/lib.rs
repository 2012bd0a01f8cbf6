//! What `deploy/` is made with: seccomp profiles, from those that runtimes have and from traces of the program, and the
//! dashboard, from the table of counters. And what servers are restarted by under load.

pub mod dashboard;
pub mod minimal;
pub mod profile;
pub mod restarts;
pub mod trace;
