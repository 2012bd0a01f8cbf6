//! A simulated kernel under the real engines of Quoit, decided by a seed.
//!
//! [`kernel`] is the model: TCP and Unix streams, datagram sockets, their peers, a virtual clock, rings of io_uring and
//! instances of epoll. [`faces`] are the engines' own `Sys` traits over it. The loop and both engines run on it
//! unchanged: only the calls that reach the kernel are others.
//!
//! The seed decides everything: each choice is drawn from a stream of [`random`] numbers. [`faults`] are the ways in
//! which the kernel may be unkind, and a [`faults::Profile`] says how likely each is in a run. What peers send is a
//! [`pattern`] that is known at each offset.
//!
//! This crate knows nothing about the runs that are made on it. `quoit-sim` makes them, and the kernel tells it what
//! happened: counts, a trace, and what the program did and must not have. What calls on this model return is compared
//! with what they return on Linux (`tests/kernels`).

pub mod faces;
pub mod faults;
pub mod kernel;
mod memory;
pub mod pattern;
pub mod random;
