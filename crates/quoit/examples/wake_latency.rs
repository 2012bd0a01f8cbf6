//! Wake latency: how soon a loop learns what happens, by each way in which it may learn it, on each engine. Prints the
//! median and the worst of some rounds, in microseconds, as JSON.
//!
//! A loop is told of a datagram, of a stream's bytes, of another thread's wake, and of a timer; it waits in its own turn
//! (`turn`), or parked, for a poller outside that waits on its descriptor (`parked`). Where a kernel tells a poller late or
//! never, as some with deferred work do, this shows it. The figures hold on one machine in one run only: compare the
//! engines, not the machines.

use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use quoit::{
    Address, Config, DatagramOptions, EngineChoice, EngineKind, Event, Events, ListenerOptions, Loop,
    LoopIndex, Token,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 30;
/// How long the loop has slept when something happens.
const SLEEP: Duration = Duration::from_millis(2);
const TIMER: Duration = Duration::from_millis(3);

/// How a loop waits.
#[derive(Clone, Copy)]
enum Waits {
    /// In its own turn.
    InTurn,
    /// For a poller outside.
    Parked,
}

/// What happens.
#[derive(Clone, Copy)]
enum Cause {
    Datagram,
    Stream,
    Wake,
    Timer,
}

fn main() -> Result<()> {
    let mut engines = Vec::new();
    for (name, engine) in [("epoll", EngineKind::Epoll), ("uring", EngineKind::Uring)] {
        match measure(engine) {
            Ok(figures) => engines.push(format!("\"{name}\": {{{figures}}}")),
            Err(error) => eprintln!("{name}: {error}"),
        }
    }
    println!("{{{}}}", engines.join(", "));
    Ok(())
}

fn measure(engine: EngineKind) -> Result<String> {
    let mut figures = Vec::new();
    for (waits, how) in [(Waits::InTurn, "turn"), (Waits::Parked, "parked")] {
        for (cause, what) in [
            (Cause::Datagram, "datagram"),
            (Cause::Stream, "stream"),
            (Cause::Wake, "wake"),
            (Cause::Timer, "timer"),
        ] {
            let mut delays = delays(engine, waits, cause)?;
            delays.sort_unstable();
            let median = delays[delays.len() / 2].as_micros();
            let worst = delays[delays.len() - 1].as_micros();
            figures.push(format!("\"{what}, {how}\": [{median}, {worst}]"));
        }
    }
    Ok(figures.join(", "))
}

fn delays(engine: EngineKind, waits: Waits, cause: Cause) -> Result<Vec<Duration>> {
    let mut event_loop = Loop::new(
        LoopIndex::default(),
        Config {
            engine: EngineChoice::Require(engine),
            pollable: matches!(waits, Waits::Parked),
            ..Config::default()
        },
    )?;
    let (go, begin) = mpsc::channel();
    let (when, happened) = mpsc::channel();
    let act = act(&mut event_loop, cause)?;
    let other = thread::spawn(move || cause_each(act, begin, when));
    let mut events = Events::with_capacity(16);
    // What opening the stream brings is done with before the first round.
    for _ in 0..3 {
        event_loop.turn([], &mut events, Some(SLEEP))?;
    }
    let mut delays = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        if let Cause::Timer = cause {
            let due = Instant::now() + TIMER;
            event_loop.set_named_timer(TIMER, Token(1))?;
            until(&mut event_loop, &mut events, waits, cause)?;
            delays.push(due.elapsed());
        } else {
            go.send(())?;
            until(&mut event_loop, &mut events, waits, cause)?;
            let end = Instant::now();
            delays.push(end.saturating_duration_since(happened.recv()?));
        }
    }
    drop(go);
    other.join().map_err(|_| "the other thread panicked")?;
    Ok(delays)
}

/// What the other thread does.
fn act(event_loop: &mut Loop, cause: Cause) -> Result<Box<dyn FnMut() -> std::io::Result<()> + Send>> {
    let any = "127.0.0.1:0".parse()?;
    let tcp = |address: Option<Address>| match address {
        Some(Address::Tcp(address)) => Ok(address),
        _ => Err("it is bound to an IP address"),
    };
    Ok(match cause {
        Cause::Datagram => {
            let socket = event_loop.bind_datagram(&any, &DatagramOptions::default(), Token::NONE)?;
            let address = tcp(event_loop.datagram_address(socket).cloned())?;
            let client = UdpSocket::bind("127.0.0.1:0")?;
            Box::new(move || client.send_to(b"one", address).map(drop))
        }
        Cause::Stream => {
            let listener = event_loop.listen(&any, &ListenerOptions::default())?;
            let mut client = TcpStream::connect(tcp(event_loop.listener_address(listener))?)?;
            client.set_nodelay(true)?;
            Box::new(move || client.write_all(b"one"))
        }
        Cause::Wake => {
            let remote = event_loop.remote();
            Box::new(move || {
                remote.wake();
                Ok(())
            })
        }
        Cause::Timer => Box::new(|| Ok(())),
    })
}

/// Acts once for each message, when the loop sleeps, and tells when that was.
fn cause_each(mut act: impl FnMut() -> std::io::Result<()>, begin: Receiver<()>, when: Sender<Instant>) {
    for () in begin {
        thread::sleep(SLEEP);
        let now = Instant::now();
        if act().is_err() || when.send(now).is_err() {
            return;
        }
    }
}

/// Waits and turns until it has happened.
fn until(event_loop: &mut Loop, events: &mut Events, waits: Waits, cause: Cause) -> Result<()> {
    loop {
        let wait = match waits {
            Waits::InTurn => None,
            Waits::Parked => Some(Duration::ZERO),
        };
        event_loop.turn([], events, wait)?;
        let found = events.drain().any(|event| {
            matches!(
                (cause, event),
                (Cause::Datagram, Event::Datagrams { .. })
                    | (Cause::Stream, Event::Data { .. })
                    | (Cause::Wake, Event::Woken)
                    | (Cause::Timer, Event::Timer { .. })
            )
        });
        if found {
            return Ok(());
        }
        if let Waits::Parked = waits {
            let limit = event_loop.park()?;
            if limit != Some(Duration::ZERO) {
                poll(event_loop, limit)?;
            }
        }
    }
}

/// What a poller of somebody else's does.
fn poll(event_loop: &mut Loop, limit: Option<Duration>) -> Result<()> {
    let mut poll = libc::pollfd {
        fd: event_loop.poll_descriptor()?.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let limit = limit.map_or(-1, |limit| limit.as_millis() as i32 + 1);
    // SAFETY: one valid pollfd.
    if unsafe { libc::poll(&raw mut poll, 1, limit) } < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(())
}
