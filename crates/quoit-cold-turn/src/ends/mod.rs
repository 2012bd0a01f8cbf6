//! What it costs that many connections end at once: whether the time for each stays the same, and what it is.
//!
//! The peers are a process of their own, so that their descriptors and their time do not count.

mod bare;
mod peers;
mod quoit_loop;

use std::fmt;
use std::net::SocketAddr;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use self::peers::Peers;
pub(crate) use self::peers::serve as serve_peers;
use crate::subject::Server;

/// Connections that every server's backlog has room for.
const BACKLOG: u32 = 100;
/// How long a round may take. The longest takes some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the peers end their connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum End {
    /// Each peer closes, and the server closes when it is told so.
    Close,
    /// Each peer resets.
    Reset,
}

impl End {
    pub(crate) const ALL: &[Self] = &[Self::Close, Self::Reset];
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Close => "close",
            Self::Reset => "reset",
        })
    }
}

/// What the end of one of so many connections costs a server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EndsCase {
    pub(crate) server: Server,
    pub(crate) end: End,
    pub(crate) connections: u32,
    /// The turns until all are closed: the median.
    pub(crate) turns: f64,
    /// Processor time of the server's process for each connection, in nanoseconds, the kernel's part with it: the median.
    pub(crate) nanoseconds: f64,
    /// The least and the most of the rounds.
    pub(crate) range: (f64, f64),
}

/// A server whose connections end. Dropping it frees what it has.
trait Ending {
    /// Where peers reach it.
    fn address(&self) -> SocketAddr;
    /// Takes in as many connections.
    fn accept(&mut self, connections: u32) -> Result<(), String>;
    /// One turn. Returns the connections that are closed and freed since the last.
    fn turn(&mut self) -> Result<u32, String>;
}

fn new_server(server: Server, connections: u32) -> Result<Box<dyn Ending>, String> {
    Ok(match server {
        Server::Uring => Box::new(quoit_loop::Served::new(quoit::EngineKind::Uring)?),
        Server::Epoll => Box::new(quoit_loop::Served::new(quoit::EngineKind::Epoll)?),
        Server::BareUring => Box::new(bare::Uring::new(connections)?),
        Server::BareEpoll => Box::new(bare::Epoll::new()?),
        Server::UringFromC | Server::EpollFromC => {
            return Err(
                "ends are measured of the loops below the C ABI, which adds an event to each".to_owned(),
            );
        }
    })
}

/// Ends as many connections in each of `rounds` rounds, each with a server of its own.
pub(crate) fn measure(server: Server, end: End, connections: u32, rounds: u32) -> Result<EndsCase, String> {
    let mut costs = Vec::new();
    let mut turns = Vec::new();
    for _ in 0..rounds {
        let (time, count) = round(server, end, connections)?;
        costs.push(time.as_nanos() as f64 / f64::from(connections));
        turns.push(f64::from(count));
    }
    let nanoseconds = median(&mut costs);
    Ok(EndsCase {
        server,
        end,
        connections,
        turns: median(&mut turns),
        nanoseconds,
        range: (costs[0], costs[costs.len() - 1]),
    })
}

/// The processor time and the turns from when all peers have ended until all connections are closed.
fn round(server: Server, end: End, connections: u32) -> Result<(Duration, u32), String> {
    let _patience = limit(format!("{server}, {connections} connections, {end}"));
    let mut served = new_server(server, connections)?;
    let mut peers = Peers::new(served.address(), end)?;
    let mut left = connections;
    while left > 0 {
        let some = left.min(BACKLOG);
        peers.connect(some)?;
        served.accept(some)?;
        left -= some;
    }
    peers.end()?;
    let before = processor_time();
    let mut closed = 0;
    let mut turns = 0;
    while closed < connections {
        closed += served.turn()?;
        turns += 1;
    }
    Ok((processor_time() - before, turns))
}

/// Ends the process with an error if what it returns is not dropped in time: a server that loses the end of a connection
/// waits for it for ever.
fn limit(round: String) -> Sender<()> {
    let (kept, dropped) = mpsc::channel();
    thread::spawn(move || {
        if dropped.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("quoit-cold-turn: {round}: not all are closed after {PATIENCE:?}");
            std::process::exit(1);
        }
    });
    kept
}

/// Of all threads of this process, and of the kernel's that work for it.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// Sorts the values, too.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert!((median(&mut [4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
        assert!((median(&mut [3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
