//! `quoit load udp`: datagrams with numbers, to a sink that counts them or to an echo that returns them.
//!
//! It has no connections, no requests and no window: every datagram that is sent counts, so that the sums close. Each
//! sender is a thread with a socket of its own. [`plan`] says what a run is to do, [`pace`] when a datagram may go,
//! [`calls`] has the system calls, an [`outbox`] fills and sends batches, [`replies`] judges what comes back, a
//! [`sender`] turns the loop of one thread, [`run`] lets the threads begin and end together and ends the run with
//! shutdown datagrams, and [`report`] is what was found.

mod arguments;
mod calls;
mod outbox;
mod output;
mod pace;
mod plan;
mod replies;
mod report;
mod run;
mod sender;

pub(crate) use arguments::UdpArguments;
pub(super) use output::execute;
