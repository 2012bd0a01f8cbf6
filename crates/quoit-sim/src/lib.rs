//! A simulated kernel under the real engines of Quoit, driven by a seed.
//!
//! A run draws a configuration, some listeners, up to 50 connections' lives and a profile of faults from its seed,
//! plays them against a loop on one of the two engines, and checks at every turn that all is as the loop's user may
//! rely on. The engines and the loop are the real ones: only the calls that reach the kernel are others
//! ([`faces`]). Everything that a run does follows from its seed, so a failure can be replayed, traced and shrunk.
//!
//! Other runs have tasks with the sockets of `quoit-async` in place of a handler ([`asynchronous`]).

pub mod asynchronous;
pub mod datagrams;
pub mod faces;
pub mod faults;
mod handler;
pub mod kernel;
mod memory;
pub mod options;
mod partner;
pub mod pattern;
pub mod plan;
pub mod random;
pub mod reference;
pub mod run;
pub mod shrink;
pub mod siege;
mod sim_loop;
pub mod style;
pub mod world;
