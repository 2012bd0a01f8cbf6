//! Lets the senders begin and end together, and merges what they measured.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use quoit_host::DescriptorLimit;
use quoit_workload::{Header, Kind};
use socket2::{Domain, Protocol, Socket, Type};

use super::outbox::shutdown;
use super::plan::{EchoPlan, UdpLength, UdpPlan};
use super::report::{Ending, ShutdownReport, UdpReport};
use super::sender::{Progress, Sender, SenderTally, Shared, failure};
use crate::LoadError;

/// Between two reports of progress.
const TICK: Duration = Duration::from_millis(100);

/// Descriptors besides the sockets: standard streams, terminal, the caller's own.
const SPARE_DESCRIPTORS: u64 = 64;

/// Datagrams that are sent to find out whether an echo answers.
const PROBES: u32 = 4;

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stage {
    /// The share that is over, and datagrams and replies so far.
    Sending { fraction: f64, sent: u64, replies: u64 },
    /// Shutdown datagrams: the share of the rounds that is over.
    ShuttingDown { fraction: f64 },
}

/// Makes one run. `stop` ends it early when it becomes true; what was sent until then is reported. `observe` is told
/// of the progress about ten times a second.
///
/// # Errors
/// The sockets cannot be made, nothing receives at the address, or sending fails for good.
pub(super) fn run(
    plan: &UdpPlan,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(Stage),
) -> Result<UdpReport, LoadError> {
    ensure_descriptors(plan)?;
    let sockets = (0..plan.senders)
        .map(|index| open(plan, index))
        .collect::<Result<Vec<_>, _>>()?;
    let header = Header {
        kind: Kind::Data,
        sender: 0,
        senders: plan.senders,
        shutdown: 0,
        run: RandomState::new().build_hasher().finish(),
        sequence: 0,
        due: 0,
    };
    if let Some(echo) = plan.echo {
        check_echo(plan, &echo, &sockets[0], header)?;
    }
    let started_at = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let shared = Shared {
        start: Instant::now(),
        stop,
        failed: AtomicBool::new(false),
        progress: sockets.iter().map(|_| Progress::default()).collect(),
    };
    let tallies = send(plan, &shared, &sockets, header, observe)?;
    // Before the shutdown, which an interrupted run has, too: a sink is to know what was sent.
    let ending = if stop.load(Ordering::Relaxed) {
        Ending::Interrupted
    } else {
        Ending::Complete
    };
    let shutdown = shut_down(plan, &sockets, header, &tallies, observe)?;
    UdpReport::new(plan, header.run, started_at, tallies, shutdown, ending)
}

fn ensure_descriptors(plan: &UdpPlan) -> Result<(), LoadError> {
    let needed = u64::from(plan.senders) + SPARE_DESCRIPTORS;
    let limit = DescriptorLimit::raise(needed)
        .map_err(|error| LoadError::new(format!("cannot raise the descriptor limit: {error}")))?;
    if limit.soft < needed {
        return Err(LoadError::new(format!(
            "{} senders need {needed} descriptors, but the hard limit is {}; use fewer senders, or {}",
            plan.senders,
            limit.hard,
            DescriptorLimit::remedy(needed)
        )));
    }
    Ok(())
}

/// The socket of sender `index`.
fn open(plan: &UdpPlan, index: u16) -> Result<Socket, LoadError> {
    let source = (!plan.sources.is_empty()).then(|| plan.sources[usize::from(index) % plan.sources.len()]);
    let make = || -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(plan.target), Type::DGRAM, Some(Protocol::UDP))?;
        if let Some(bytes) = plan.send_buffer {
            socket.set_send_buffer_size(bytes as usize)?;
        }
        if let Some(source) = source {
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        socket.connect(&plan.target.into())?;
        Ok(socket)
    };
    make().map_err(|error| {
        let from = source.map_or(String::new(), |source| {
            format!(" from {source} (an address of this machine must be given)")
        });
        LoadError::new(format!("cannot make a socket to {}{from}: {error}", plan.target))
    })
}

/// Makes sure that datagrams come back at all.
fn check_echo(plan: &UdpPlan, echo: &EchoPlan, socket: &Socket, header: Header) -> Result<(), LoadError> {
    // Of another run, so that one that comes back late is not taken for a reply.
    let probe = Header {
        run: header.run.wrapping_add(1),
        ..header
    };
    let failed = |error: &io::Error| failure(plan, plan.target, 0, error);
    let until = Instant::now() + echo.timeout;
    let mut buffer = [0; Header::BYTES + 1];
    for _ in 0..PROBES {
        socket.send(&probe.encode()).map_err(|error| failed(&error))?;
        let patience = (echo.timeout / PROBES).min(until.saturating_duration_since(Instant::now()));
        socket
            .set_read_timeout(Some(patience.max(Duration::from_millis(1))))
            .map_err(|error| failed(&error))?;
        match io::Read::read(&mut &*socket, &mut buffer) {
            Ok(length) if buffer[..length] == probe.encode() => return Ok(()),
            Ok(length) => {
                return Err(LoadError::new(format!(
                    "{} answered a datagram of {} bytes with another one, of {length} bytes; --echo needs a server \
                     that sends back what it receives, such as `quoit serve udp-echo`",
                    plan.target,
                    Header::BYTES
                )));
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(failed(&error)),
        }
    }
    Err(LoadError::new(format!(
        "{} answered none of {PROBES} datagrams within {:?}; is an echo server running there, such as `quoit serve \
         udp-echo --listen {}`?",
        plan.target, echo.timeout, plan.target
    )))
}

/// Runs the senders to their end.
fn send(
    plan: &UdpPlan,
    shared: &Shared<'_>,
    sockets: &[Socket],
    header: Header,
    observe: &mut dyn FnMut(Stage),
) -> Result<Vec<SenderTally>, LoadError> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter()
            .zip(0..)
            .map(|(socket, sender)| {
                scope.spawn(move || Sender::new(shared, plan, socket, Header { sender, ..header })?.run())
            })
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            observe(stage(plan, shared));
            std::thread::park_timeout(TICK);
        }
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(LoadError::new("a sender's thread panicked".to_owned())))
            })
            .collect()
    })
}

fn stage(plan: &UdpPlan, shared: &Shared<'_>) -> Stage {
    let sum = |of: fn(&Progress) -> u64| shared.progress.iter().map(of).sum::<u64>();
    let sent = sum(|progress| progress.sent.load(Ordering::Relaxed));
    let fraction = match plan.length() {
        UdpLength::Count(count) => sent as f64 / count as f64,
        UdpLength::Time(time) => shared.start.elapsed().as_secs_f64() / time.as_secs_f64(),
    };
    Stage::Sending {
        fraction: fraction.min(1.0),
        sent,
        replies: sum(|progress| progress.replies.load(Ordering::Relaxed)),
    }
}

/// Says that the run is over, again and again: a sink that was overrun loses some.
fn shut_down(
    plan: &UdpPlan,
    sockets: &[Socket],
    header: Header,
    tallies: &[SenderTally],
    observe: &mut dyn FnMut(Stage),
) -> Result<ShutdownReport, LoadError> {
    let mut report = ShutdownReport {
        datagrams: 0,
        bytes: plan.shutdown.size,
        every_seconds: plan.shutdown.every.as_secs_f64(),
        ended_early: false,
    };
    let mut number = 0;
    for round in 0..plan.shutdown.rounds {
        if round > 0 {
            std::thread::sleep(plan.shutdown.every);
        }
        for ((socket, tally), sender) in sockets.iter().zip(tallies).zip(0..) {
            let datagram = shutdown(
                Header { sender, ..header },
                tally.sent,
                number,
                plan.shutdown.size,
            );
            match socket.send(&datagram) {
                Ok(_) => {
                    report.datagrams += 1;
                    number += 1;
                }
                // The sink has ended, as it is to when all senders have said that they are done.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && number > 0 => {
                    report.ended_early = true;
                    return Ok(report);
                }
                Err(error) => return Err(failure(plan, plan.target, tally.sent, &error)),
            }
        }
        observe(Stage::ShuttingDown {
            fraction: f64::from(round + 1) / f64::from(plan.shutdown.rounds),
        });
    }
    Ok(report)
}
