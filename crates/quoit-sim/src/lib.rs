//! Runs of the real loop and engines of Quoit on a simulated kernel (`quoit-sim-kernel`), each decided by a seed.
//!
//! A run draws a configuration, some listeners, up to 50 connections' lives and a profile of faults from its seed,
//! plays them against a loop on one of the two engines, and checks at every turn that all is as the loop's user may
//! rely on. Everything that a run does follows from its seed, so a failure can be replayed, traced and shrunk.
//!
//! There are three kinds of run. In a [`world`] a random handler does whatever a user may do. In a [`siege`] some
//! peers misuse the loop, and others must be served all the same. In an [`asynchronous`] one, tasks with the sockets of
//! `quoit-async` are in place of the handler.

pub mod asynchronous;
mod checks;
pub mod datagrams;
mod handler;
pub mod options;
mod partner;
pub mod plan;
pub mod reference;
pub mod run;
pub mod shrink;
pub mod siege;
mod sim_loop;
pub mod style;
pub mod world;
