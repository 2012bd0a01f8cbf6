//! The exported functions, by what they are about. `quoit.h` has the contract of each.
//!
//! Every one passes through [`crate::error::return_code`], so that nothing unwinds into C, and every one that is given a
//! pointer checks that it is not null. That it leads to what its type says is the caller's to see to: it is the
//! contract of the header, and the reason of every `unsafe` block here that says "promised by the caller".

mod about;
mod capabilities;
mod datagrams;
mod direct;
mod loops;
mod options;
mod remotes;
mod sockets;
