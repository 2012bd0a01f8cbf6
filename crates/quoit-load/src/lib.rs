//! `quoit load`: generates load, checks every reply, and measures.
//!
//! It shares no engine with what it measures: it is a client of its own on readiness (epoll, through mio).
//! [`run`] makes a run from a [`Plan`] and gives a [`Report`]; the command line is a layer over it.
//!
//! Whatever is sent, the [`coordinator`] lets the threads of a run begin and end together, [`pacing`] says when a request
//! is due, and the [`report`] is printed alike.
//!
//! Of connections: a [`protocol`] says what is sent and judges what comes back; a [`connection`] moves bytes; a [`worker`]
//! turns the loop of one thread; a [`recorder`] counts, for the [`window`] and its [`intervals`]; a [`clock`] notices when
//! the generator itself stood still. Of datagrams: [`udp`].

mod arguments;
mod clock;
mod connection;
mod control;
mod coordinator;
mod displacer;
mod echo;
pub mod encoded;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod histograms;
mod http;
mod intervals;
mod merge;
mod pacing;
mod plan;
mod preflight;
mod progress;
mod protocol;
mod random;
mod recorder;
mod report;
mod request_reply;
mod rpc;
mod run;
mod sizes;
mod slips;
mod start;
mod system;
mod tally;
mod target;
#[cfg(test)]
mod testing;
mod timer;
mod udp;
mod unix_name;
mod window;
mod worker;

pub use arguments::{LoadArguments, check, command};
pub(crate) use coordinator::Findings;
pub(crate) use error::LoadError;
pub(crate) use histograms::LogFile;
pub(crate) use merge::merge;
pub(crate) use plan::{Arrivals, Length, Offered, Phase, Plan, SlowReaders, Workload};
pub(crate) use progress::Progress;
pub(crate) use run::run;
pub(crate) use sizes::Sizes;
pub(crate) use target::Target;
