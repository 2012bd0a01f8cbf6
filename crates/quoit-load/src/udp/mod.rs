//! `quoit load udp`: datagrams with numbers, to a sink that counts them or to an echo that returns them.
//!
//! It is a workload of the one [`Plan`](crate::Plan), and its run goes the way of all: the
//! [`coordinator`](crate::coordinator) lets its threads begin and end together, [`pacing`](crate::pacing) says when a
//! datagram is due, and what was found is beside the head of the one [`Report`](crate::report::Report). What differs is
//! what datagrams differ in: there are no connections and no window. Each sender is a thread with a socket of its own,
//! and every datagram that is sent counts, so that the sums close.
//!
//! The parts: [`plan`] says how datagrams are sent, a [`course`] paces a sender through one phase, [`unanswered`] knows
//! what waits for its reply, [`calls`] has the system calls, an [`outbox`] fills and sends batches, [`replies`] judges
//! what comes back, a [`sender`] turns the loop of one thread, [`run`] has the sockets and the datagrams before and
//! behind the others, and [`report`] is what was found.

mod arguments;
mod calls;
mod course;
mod outbox;
mod plan;
mod replies;
mod report;
mod run;
mod sender;
mod unanswered;

pub(crate) use arguments::UdpArguments;
pub(crate) use plan::Datagrams;
pub(crate) use report::DatagramReport;
pub(super) use run::run;
