//! `quoit load udp`: datagrams with numbers, to a sink that counts them or to an echo that returns them.
//!
//! It has no connections, no requests and no window: every datagram that is sent counts, so that the sums close. Each
//! sender is a thread with a socket of its own. What it has in common with the loads of streams are their types: a
//! [`Length`](crate::Length) and its shares, the clock, the order to stop and the progress of a
//! [`Control`](crate::control::Control), even times ([`Even`](crate::pacing::Even)), threads that are run together, and
//! a report that is [printed](crate::report::Tabular) in the same way.
//!
//! Its own are these: [`plan`] says what a run is to do, [`pace`] when a datagram may go, [`calls`] has the system
//! calls, an [`outbox`] fills and sends batches, [`replies`] judges what comes back, a [`sender`] turns the loop of one
//! thread, [`run`] begins a run and ends it with shutdown datagrams, and [`report`] is what was found.

mod arguments;
mod calls;
mod outbox;
mod pace;
mod plan;
mod replies;
mod report;
mod run;
mod sender;

pub(crate) use arguments::UdpArguments;
pub(super) use run::run;
