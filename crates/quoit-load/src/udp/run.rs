//! A run of datagrams: its sockets, what is checked before, and how it is told to be over.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Duration;

use quoit_workload::{Header, Kind};
use socket2::{Domain, Protocol, Socket, Type};

use super::outbox::shutdown;
use super::plan::Datagrams;
use super::report::ShutdownReport;
use super::sender::{Sender, SenderTally, failure};
use crate::control::{Control, Schedule, nanoseconds};
use crate::coordinator::Run;
use crate::report::Report;
use crate::tally::Merge;
use crate::target::{Patience, unless_over};
use crate::{Findings, LoadError, Plan, Progress, Target};

/// Datagrams that are sent to find out whether an echo answers.
const PROBES: u32 = 4;

/// Makes a run of datagrams, as [`crate::run`] says.
///
/// # Errors
/// The sockets cannot be made, nothing receives at the address, or sending fails for good.
pub(crate) fn run(
    plan: &Plan,
    datagrams: &Datagrams,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(Progress),
) -> Result<Findings, LoadError> {
    let senders = u16::try_from(plan.threads)
        .map_err(|_| LoadError::new(format!("{} senders are too many", plan.threads)))?;
    let sockets = (0..plan.threads)
        .map(|index| open(plan, datagrams, index))
        .collect::<Result<Vec<_>, _>>()?;
    let header = Header {
        kind: Kind::Data,
        sender: 0,
        senders,
        shutdown: 0,
        run: RandomState::new().build_hasher().finish(),
        sequence: 0,
        due: 0,
    };
    if datagrams.echo {
        check_echo(plan, datagrams, stop, &sockets[0], header)?;
    }
    let control = Control::new(plan.threads);
    // Every datagram counts, from the run's beginning on.
    control.begin(Schedule {
        from: 0,
        until: plan.length().time().map(nanoseconds),
    });
    let each = sockets
        .iter()
        .zip((0..).map(|sender| Header { sender, ..header }));
    let (ending, tallies) = Run::new(plan, &control, &[], stop, observe).together(
        mpsc::channel(),
        each.collect(),
        |(socket, header)| Sender::new(&control, (plan, datagrams), socket, header)?.run(),
    )?;
    // An interrupted run has it, too: a sink is to know what was sent.
    let shutdown = shut_down((plan, datagrams), &sockets, header, &tallies, observe)?;
    let tally = SenderTally::of_all(tallies)?;
    Ok(Findings {
        report: Report::of_datagrams(
            (plan, datagrams),
            header.run,
            control.wall(0),
            tally,
            shutdown,
            ending,
        ),
        latencies: None,
    })
}

/// The socket of sender `index`.
fn open(plan: &Plan, datagrams: &Datagrams, index: usize) -> Result<Socket, LoadError> {
    let Target::Ip(target) = plan.target else {
        return Err(LoadError::new(format!(
            "datagrams go to an IP address and port, and not to {}",
            plan.target
        )));
    };
    let source = (!plan.sources.is_empty()).then(|| plan.sources[index % plan.sources.len()]);
    let make = || -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(target), Type::DGRAM, Some(Protocol::UDP))?;
        if let Some(bytes) = datagrams.send_buffer {
            socket.set_send_buffer_size(bytes as usize)?;
        }
        if let Some(source) = source {
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        socket.connect(&target.into())?;
        Ok(socket)
    };
    make().map_err(|error| {
        let from = source.map_or(String::new(), |source| {
            format!(" from {source} (an address of this machine must be given)")
        });
        LoadError::new(format!("cannot make a socket to {target}{from}: {error}"))
    })
}

/// Makes sure that datagrams come back at all.
fn check_echo(
    plan: &Plan,
    datagrams: &Datagrams,
    stop: &AtomicBool,
    socket: &Socket,
    header: Header,
) -> Result<(), LoadError> {
    // Of another run, so that one that comes back late is not taken for a reply.
    let probe = Header {
        run: header.run.wrapping_add(1),
        ..header
    };
    let failed = |error: &io::Error| failure(&plan.target, datagrams, 0, error);
    let patience = Patience {
        timeout: (plan.timeout / PROBES).max(Duration::from_millis(1)),
        stop,
    };
    let mut buffer = [0; Header::BYTES + 1];
    for _ in 0..PROBES {
        socket.send(&probe.encode()).map_err(|error| failed(&error))?;
        let received = patience.wait(|tick| {
            socket.set_read_timeout(Some(tick.max(Duration::from_millis(1))))?;
            unless_over(io::Read::read(&mut &*socket, &mut buffer))
        });
        match received {
            Ok(length) if buffer[..length] == probe.encode() => return Ok(()),
            Ok(length) => {
                return Err(LoadError::new(format!(
                    "{} answered a datagram of {} bytes with another one, of {length} bytes; --echo needs a server \
                     that sends back what it receives, such as `quoit serve udp-echo`",
                    plan.target,
                    Header::BYTES
                )));
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Err(LoadError::new(format!(
                    "interrupted before {} had passed the check; nothing was measured",
                    plan.target
                )));
            }
            Err(error) => return Err(failed(&error)),
        }
    }
    Err(LoadError::new(format!(
        "{} answered none of {PROBES} datagrams within {:?}; is an echo server running there, such as `quoit serve \
         udp-echo --listen {}`?",
        plan.target, plan.timeout, plan.target
    )))
}

/// Says that the run is over, again and again: a sink that was overrun loses some.
fn shut_down(
    (plan, datagrams): (&Plan, &Datagrams),
    sockets: &[Socket],
    header: Header,
    tallies: &[SenderTally],
    observe: &mut dyn FnMut(Progress),
) -> Result<ShutdownReport, LoadError> {
    let mut report = ShutdownReport {
        datagrams: 0,
        bytes: datagrams.shutdown.size,
        every_seconds: datagrams.shutdown.every.as_secs_f64(),
        ended_early: false,
    };
    let mut number = 0;
    for round in 0..datagrams.shutdown.rounds {
        if round > 0 {
            std::thread::sleep(datagrams.shutdown.every);
        }
        for ((socket, tally), sender) in sockets.iter().zip(tallies).zip(0..) {
            let datagram = shutdown(
                Header { sender, ..header },
                tally.sent,
                number,
                datagrams.shutdown.size,
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
                Err(error) => return Err(failure(&plan.target, datagrams, tally.sent, &error)),
            }
        }
        observe(Progress::ShuttingDown {
            fraction: f64::from(round + 1) / f64::from(datagrams.shutdown.rounds),
        });
    }
    Ok(report)
}
