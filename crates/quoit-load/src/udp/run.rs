//! Lets the senders begin and end together, and merges what they measured.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use quoit_workload::{Header, Kind};
use socket2::{Domain, Protocol, Socket, Type};

use super::outbox::shutdown;
use super::plan::{EchoPlan, UdpPlan};
use super::report::{ShutdownReport, UdpReport};
use super::sender::{Sender, SenderTally, failure};
use crate::control::Control;
use crate::preflight::ensure_descriptors;
use crate::report::Ending;
use crate::tally::Merge;
use crate::threads::{TICK, run_together};
use crate::{Findings, LoadError, Progress};

/// Datagrams that are sent to find out whether an echo answers.
const PROBES: u32 = 4;

/// Makes one run. `stop` ends it early when it becomes true; what was sent until then is reported. `observe` is told
/// of the progress about ten times per second.
///
/// # Errors
/// The sockets cannot be made, nothing receives at the address, or sending fails for good.
pub(crate) fn run(
    plan: &UdpPlan,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(Progress),
) -> Result<Findings<UdpReport>, LoadError> {
    ensure_descriptors(plan.senders.into(), "senders", 0)?;
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
    let control = Control::new(plan.senders.into());
    let tallies = send(plan, &control, &sockets, header, stop, observe)?;
    // Before the shutdown, which an interrupted run has, too: a sink is to know what was sent.
    let ending = if stop.load(Ordering::Relaxed) {
        Ending::Interrupted
    } else {
        Ending::Complete
    };
    let shutdown = shut_down(plan, &sockets, header, &tallies, observe)?;
    let tally = SenderTally::of_all(tallies)?;
    Ok(Findings {
        report: UdpReport::new(plan, header.run, control.wall(0), tally, shutdown, ending),
        latencies: None,
    })
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
    control: &Control,
    sockets: &[Socket],
    header: Header,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(Progress),
) -> Result<Vec<SenderTally>, LoadError> {
    let senders = sockets
        .iter()
        .zip((0..).map(|sender| Header { sender, ..header }));
    let (sender, messages) = mpsc::channel();
    let work = |(socket, header)| Sender::new(control, plan, socket, header)?.run();
    let ((), tallies) = run_together(senders.collect(), sender, work, || {
        loop {
            let sums = control.sums();
            observe(Progress::Sending {
                fraction: plan.length().fraction(control.now(), sums.done),
                sent: sums.done,
                replies: plan.echo.map(|_| sums.replies),
            });
            match messages.recv_timeout(TICK) {
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if stop.load(Ordering::Relaxed) {
                control.stop();
            }
        }
    })?;
    Ok(tallies)
}

/// Says that the run is over, again and again: a sink that was overrun loses some.
fn shut_down(
    plan: &UdpPlan,
    sockets: &[Socket],
    header: Header,
    tallies: &[SenderTally],
    observe: &mut dyn FnMut(Progress),
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
        observe(Progress::ShuttingDown {
            fraction: f64::from(round + 1) / f64::from(plan.shutdown.rounds),
        });
    }
    Ok(report)
}
