//! What is checked before a run starts: descriptors enough, and a server that answers as it should.

use std::io::{self, Read, Write};
use std::sync::atomic::AtomicBool;

use quoit_host::DescriptorLimit;
use quoit_host::ports;

use super::echo::Echo;
use super::error::LoadError;
use super::http::{Recorded, Recorder};
use super::plan::Plan;
use super::protocol::{Outcomes, Protocol, WrongKind};
use super::request_reply::{Reply, RequestReply};
use super::rpc::{Rpc, RpcStreams};
use super::target::{BlockingStream, ConnectOptions, Patience, Target, unless_over};

/// Descriptors besides those of the run: standard streams, terminal, the caller's own.
const SPARE_DESCRIPTORS: u64 = 64;

/// Descriptors per thread: its epoll instance, its timer, and the eventfd that wakes it, with one to spare.
pub(super) const DESCRIPTORS_PER_THREAD: u64 = 4;

/// Makes sure that `count` sockets, which are the run's `what`, can each have a descriptor, and `others` beside, raising
/// the limit if it is too low.
///
/// # Errors
/// The hard limit is too low, and may not be raised.
pub(super) fn ensure_descriptors(count: usize, what: &str, others: u64) -> Result<(), LoadError> {
    let needed = count as u64 + others + SPARE_DESCRIPTORS;
    let limit = DescriptorLimit::raise(needed)
        .map_err(|error| LoadError::new(format!("cannot raise the descriptor limit: {error}")))?;
    if limit.soft < needed {
        return Err(LoadError::new(format!(
            "{count} {what} need {needed} descriptors, but the hard limit is {}; use fewer {what}, or {}",
            limit.hard,
            DescriptorLimit::remedy(needed)
        )));
    }
    Ok(())
}

/// Makes sure that there are local ports enough for all connections: each takes one of its source address.
///
/// # Errors
/// There are not.
pub(super) fn ensure_ports(plan: &Plan) -> Result<(), LoadError> {
    let (Target::Ip(_), Some(range)) = (&plan.target, ports::ephemeral()) else {
        return Ok(());
    };
    let (first, last) = range.into_inner();
    let available = u64::from(last - first) + 1;
    let sources = plan.sources.len().max(1) as u64;
    if (plan.connections as u64).div_ceil(sources) <= available {
        return Ok(());
    }
    Err(LoadError::new(format!(
        "{} connections from {sources} source address(es) need more local ports than the {available} of each \
         (net.ipv4.ip_local_port_range is {first} to {last}); give more addresses with --source, on loopback for \
         example 127.0.0.2-127.0.0.9",
        plan.connections
    )))
}

/// Sends one echo message over a connection of its own and checks what comes back.
///
/// # Errors
/// The server cannot be reached, or does not echo.
pub(super) fn check_echo(plan: &Plan, stop: &AtomicBool, echo: &mut Echo) -> Result<(), LoadError> {
    // No connection of the run has this id.
    let mut state = echo.connection(u32::MAX);
    let mut message = Vec::new();
    echo.append_request(&mut state, &mut message);
    let reply = exchange(plan, stop, &message, "an echo message", |input| {
        match echo.take_reply(&mut state, input) {
            (consumed, Some(_)) if consumed < input.len() => Err("more came back than was sent".to_owned()),
            (_, Some(Reply::Wrong(wrong))) => Err(wrong.what),
            (_, Some(Reply::Right { .. })) => Ok(true),
            (_, None) => Ok(false),
        }
    });
    reply.map_err(|what| advise(&plan.target, &what, "is it an echo server (`quoit serve echo`)?"))
}

/// Sends the HTTP request over a connection of its own and records the reply.
///
/// # Errors
/// The server cannot be reached, or its reply is not a sound one with the status 200 and the expected body, if one is
/// expected.
pub(super) fn record_http(
    plan: &Plan,
    stop: &AtomicBool,
    path: &str,
    request: &[u8],
    expect: Option<&[u8]>,
) -> Result<Recorded, LoadError> {
    let mut recorder = Recorder::default();
    exchange(plan, stop, request, &format!("the request for {path}"), |input| {
        recorder.take(input)
    })
    .and_then(|()| {
        let recorded = recorder.finish().map_err(Failure::Reply)?;
        if let Some(expect) = expect {
            recorded.has_body(expect).map_err(Failure::Reply)?;
        }
        Ok(recorded)
    })
    .map_err(|what| advise(&plan.target, &what, "check the address and the path"))
}

/// Lets one message go over a stream of a connection of its own.
///
/// # Errors
/// The server cannot be reached, or does not speak the protocol.
pub(super) fn check_rpc(plan: &Plan, stop: &AtomicBool, streams: &RpcStreams) -> Result<(), LoadError> {
    let mut rpc = Rpc::new(streams.single(), 1);
    // No connection of the run has this id.
    let mut state = rpc.connection(u32::MAX, 0);
    let mut request = Vec::new();
    rpc.begin(&mut state, 0, &mut request);
    let mut found = Found::default();
    exchange(plan, stop, &request, "an rpc stream of one message", |input| {
        rpc.take(&mut state, input, 0, &mut found);
        match found.wrong.take() {
            Some(what) => Err(what),
            None => Ok(found.streams == 1),
        }
    })
    .map_err(|what| advise(&plan.target, &what, "is it an rpc server (`quoit serve rpc`)?"))
}

/// What a check finds.
#[derive(Default)]
struct Found {
    streams: u32,
    wrong: Option<String>,
}

impl Outcomes for Found {
    fn right(&mut self, _start: Option<u64>, _count: u32) {}

    fn stream(&mut self, _start: u64) {
        self.streams += 1;
    }

    fn wrong(&mut self, _kind: WrongKind, what: String) {
        self.wrong = Some(what);
    }

    fn unexpected(&mut self, what: String) {
        self.wrong = Some(what);
    }
}

enum Failure {
    /// The run is to stop.
    Interrupted,
    /// The server cannot be reached.
    Connect(io::Error),
    /// The connection failed before the reply was complete.
    Connection(String),
    /// The reply is wrong.
    Reply(String),
}

fn advise(target: &Target, failure: &Failure, about_reply: &str) -> LoadError {
    LoadError::new(match failure {
        Failure::Interrupted => {
            format!("interrupted before {target} had passed the check; nothing was measured")
        }
        Failure::Connect(error) if error.kind() == io::ErrorKind::AddrNotAvailable => format!(
            "cannot connect to {target}: {error}; --source is no address of this machine (`ip address` lists them), or the \
             local ports are used up"
        ),
        Failure::Connect(error) => {
            format!("cannot connect to {target}: {error}; is the server running and listening there?")
        }
        Failure::Connection(what) => format!("the check of {target} failed: {what}; see the server's log"),
        Failure::Reply(what) => format!("the check of {target} failed: {what}; {about_reply}"),
    })
}

/// Sends `request` over a new connection, and gives what comes back to `take` until that returns `true`.
fn exchange(
    plan: &Plan,
    stop: &AtomicBool,
    request: &[u8],
    name: &str,
    mut take: impl FnMut(&[u8]) -> Result<bool, String>,
) -> Result<(), Failure> {
    let options = ConnectOptions {
        source: plan.sources.first().copied(),
        ..ConnectOptions::default()
    };
    let patience = Patience {
        timeout: plan.timeout,
        stop,
    };
    let mut stream = plan
        .target
        .connect_blocking(options, patience)
        .map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => Failure::Interrupted,
            _ => Failure::Connect(error),
        })?;
    let mut writer = stream.duplicate().map_err(Failure::Connect)?;
    std::thread::scope(|scope| {
        // A server may send back before it has read all: writing and reading must go on side by side. If
        // writing fails, so does the connection, and reading says why.
        let writing = scope.spawn(move || writer.write_all(request));
        let read = read_reply(&mut *stream, name, patience, &mut take);
        // Ends the writer's wait for room, if the reply went wrong before the request was sent.
        drop(stream.end());
        let written = writing.join();
        read?;
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::Connection(format!("sending {name}: {error}"))),
            Err(_) => Err(Failure::Connection(format!(
                "the thread that sends {name} panicked"
            ))),
        }
    })
}

fn read_reply(
    stream: &mut dyn BlockingStream,
    name: &str,
    patience: Patience<'_>,
    take: &mut impl FnMut(&[u8]) -> Result<bool, String>,
) -> Result<(), Failure> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match patience.wait(|_| unless_over(Read::read(stream, &mut buffer))) {
            Ok(0) => return Err(Failure::Connection(format!("it closed the connection on {name}"))),
            Ok(length) => {
                if take(&buffer[..length]).map_err(Failure::Reply)? {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(Failure::Interrupted),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(Failure::Connection(format!(
                    "no reply to {name} within {:?}",
                    patience.timeout
                )));
            }
            Err(error) => {
                return Err(Failure::Connection(format!(
                    "waiting for the reply to {name}: {error}"
                )));
            }
        }
    }
}
