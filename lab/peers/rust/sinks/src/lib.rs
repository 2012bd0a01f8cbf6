//! What the lab's sinks share: the command line, the socket, the messages, and the end.
//!
//! A sink takes the datagrams of one run of `quoit load udp`, works for each, and prints one JSON line when all
//! senders are done: a [`quoit_workload::SinkReport`]. There are no limits, counters or abstractions beyond that.

mod messages;

use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quoit_workload::{Sink, Taken, Work};
use signal_hook::consts::{SIGINT, SIGTERM};

pub use messages::Messages;

/// The longest wait for a datagram: between two looks at whether a signal came.
pub const TICK: Duration = Duration::from_millis(100);

/// Bytes of a message with GRO: the most that UDP and IP can carry.
const GRO_BYTES: usize = 65_536;

/// What the command line says.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// How to receive: one of the kinds that the program has.
    pub kind: String,
    listen: SocketAddr,
    work: Duration,
    /// Whether the kernel joins datagrams (UDP_GRO, udp(7)).
    pub gro: bool,
    receive_buffer: Option<usize>,
    largest: usize,
    /// Receives that are outstanding at once, where the kind has such.
    pub depth: usize,
    /// How long each receive is put off, so that it finds more: what `--wait coalesce` is of Quoit's.
    pause: Duration,
}

impl Arguments {
    fn parse(kinds: &[&str], words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut words = words.peekable();
        let kind = words.next().filter(|kind| kinds.contains(&kind.as_str()));
        let mut arguments = Self {
            kind: kind.ok_or_else(|| format!("expected one of {}", kinds.join(", ")))?,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            work: Duration::ZERO,
            gro: false,
            receive_buffer: None,
            largest: 2048,
            depth: 1,
            pause: Duration::ZERO,
        };
        while let Some(word) = words.next() {
            if word == "--gro" {
                arguments.gro = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            let wrong = |_| format!("`{value}` is no value for {word}");
            match word.as_str() {
                "--listen" => arguments.listen = value.parse().map_err(|_| wrong(()))?,
                "--work" => arguments.work = Duration::from_nanos(value.parse().map_err(|_| wrong(()))?),
                "--receive-buffer" => arguments.receive_buffer = Some(value.parse().map_err(|_| wrong(()))?),
                "--max-datagram" => arguments.largest = value.parse().map_err(|_| wrong(()))?,
                "--depth" => arguments.depth = value.parse().map_err(|_| wrong(()))?,
                "--pause" => arguments.pause = Duration::from_micros(value.parse().map_err(|_| wrong(()))?),
                _ => return Err(format!("{word} is not known")),
            }
        }
        if !(64..=65_536).contains(&arguments.largest) || !(1..=1024).contains(&arguments.depth) {
            return Err(
                "--max-datagram must lie between 64 and 65536, --depth between 1 and 1024".to_owned(),
            );
        }
        Ok(arguments)
    }

    /// Bytes of the largest message that can come.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.gro { GRO_BYTES } else { self.largest }
    }

    fn bind(&self) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(self.listen)?;
        socket.set_read_timeout(Some(TICK))?;
        if let Some(bytes) = self.receive_buffer {
            set_receive_buffer(&socket, bytes)?;
        }
        if self.gro {
            set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1)?;
        }
        Ok(socket)
    }
}

/// Beyond net.core.rmem_max where this process may (CAP_NET_ADMIN), else up to it.
fn set_receive_buffer(socket: &UdpSocket, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).map_err(io::Error::other)?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value)
        .or_else(|_| socket2::SockRef::from(socket).set_recv_buffer_size(bytes))
}

fn set_option(
    socket: &UdpSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: `value` is a c_int that outlives the call, and its size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Receives once, for as long as a [`TICK`], and gives each message to the sink; none is no error.
pub trait Receive {
    /// Returns whether the last datagram that was waited for has come.
    ///
    /// # Errors
    /// Those of the system call, but for those that mean that nothing came.
    fn receive(&mut self, sink: &mut Sink) -> io::Result<Taken>;

    /// Bytes that are received into.
    fn pool(&self) -> usize;
}

/// A sink's `main`: `program KIND [--listen ADDR] ...`. `make` makes what receives from the socket.
pub fn main<R: Receive>(
    program: &str,
    kinds: &[&str],
    make: impl FnOnce(&Arguments, UdpSocket) -> io::Result<R>,
) -> ExitCode {
    let arguments = match Arguments::parse(kinds, std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!(
                "{program}: {what}; usage: {program} {} [--listen ADDR] [--work NS] [--gro] [--receive-buffer BYTES] \
                 [--max-datagram BYTES] [--depth N] [--pause US]",
                kinds.join("|")
            );
            return ExitCode::from(2);
        }
    };
    match serve(&arguments, make) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: receiving on {}: {error}", arguments.listen);
            ExitCode::FAILURE
        }
    }
}

fn serve<R: Receive>(
    arguments: &Arguments,
    make: impl FnOnce(&Arguments, UdpSocket) -> io::Result<R>,
) -> io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut sink =
        Sink::new(Work::of(arguments.work)).asking_for(arguments.receive_buffer.map(|bytes| bytes as u64));
    let socket = arguments.bind()?;
    let address = socket.local_addr()?;
    let own = socket.try_clone()?;
    let mut receiver = make(arguments, socket)?;
    println!("listening on {address} engine={} loops=1", arguments.kind);
    io::stdout().flush()?;
    while !stop.load(Ordering::Relaxed) {
        if !arguments.pause.is_zero() {
            std::thread::sleep(arguments.pause);
        }
        if receiver.receive(&mut sink)? == Taken::Last {
            break;
        }
    }
    sink.look(own.as_fd())?;
    let name = format!("{}{}", arguments.kind, if arguments.gro { "+gro" } else { "" });
    let report = sink.report(&name, arguments.work, receiver.pool() as u64)?;
    println!("{}", serde_json::to_string(&report)?);
    io::stdout().flush()
}

/// Whether an error of a receive means that nothing came.
#[must_use]
pub fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
