//! What the rivals share: the command line, the listeners, the ready line and the end, so that each rival is
//! nothing but its framework at work.

mod arguments;
mod http;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use socket2::{Domain, Protocol, Socket, Type};

pub use arguments::{Arguments, Service};
pub use http::{JSON, PLAINTEXT, answer, json};

/// Bytes of one receive of an echoed stream: as many as Quoit's floors take at once.
pub const ECHO_BYTES: usize = 64 * 1024;
/// Bytes of one receive of HTTP requests: more than the deepest pipelined batch of the lab.
pub const HTTP_BYTES: usize = 16 * 1024;

/// Connections that may wait to be accepted. The kernel lowers it to net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// A server to be run.
pub struct Rival {
    /// Its name, as in `target/peers` and the ready line.
    pub name: &'static str,
    /// The crate whose version the ready line says.
    pub framework: &'static str,
    /// What it serves.
    pub services: &'static [Service],
    /// The names that `--engine` takes, the default first; empty if there is no choice.
    pub engines: &'static [&'static str],
}

/// One loop's share of the work: a thread of its own calls it with a listener of its own.
pub struct Loop {
    /// What was asked for on the command line.
    pub arguments: Arc<Arguments>,
    /// Bound and listening, blocking. Its connections inherit TCP_NODELAY.
    pub listener: TcpListener,
    started: Sender<io::Result<()>>,
}

impl Loop {
    /// Says that the loop's runtime stands: all that can be refused has been granted.
    pub fn started(&self) {
        // Fails only when another loop has failed and the process is about to end.
        let _ = self.started.send(Ok(()));
    }
}

/// Runs a rival until SIGTERM or SIGINT: `serve` is called on one thread a loop and does not return, but with
/// an error.
///
/// Exit status: 0 after a signal, 1 when it cannot serve, 2 for wrong usage.
pub fn run(rival: &Rival, serve: fn(Loop) -> io::Result<()>) -> ExitCode {
    let arguments = match Arguments::parse(rival, std::env::args().skip(1)) {
        Ok(arguments) => Arc::new(arguments),
        Err(message) => {
            eprintln!("{}: {message}", rival.name);
            return ExitCode::from(2);
        }
    };
    match serve_until_signal(rival, &arguments, serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: serving on {}: {error}", rival.name, arguments.listen);
            ExitCode::FAILURE
        }
    }
}

fn serve_until_signal(
    rival: &Rival,
    arguments: &Arc<Arguments>,
    serve: fn(Loop) -> io::Result<()>,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let listeners = listeners(arguments.listen, arguments.loops)?;
    let address = listeners[0].local_addr()?;
    let (started, starts) = mpsc::channel();
    for listener in listeners {
        let share = Loop {
            arguments: Arc::clone(arguments),
            listener,
            started: started.clone(),
        };
        let started = started.clone();
        let name = rival.name;
        thread::Builder::new().name("loop".to_owned()).spawn(move || {
            let Err(error) = serve(share) else { return };
            eprintln!("{name}: a loop ended: {error}");
            // Once the server is ready nobody listens any more, and a server without a loop must not live on.
            if started.send(Err(error)).is_err() {
                std::process::exit(1);
            }
        })?;
    }
    drop(started);
    for _ in 0..arguments.loops {
        starts.recv().map_err(io::Error::other)??;
    }
    drop(starts);

    let engine = match arguments.engine {
        Some(engine) if Some(&engine) != rival.engines.first() => format!("{}-{engine}", rival.name),
        _ => rival.name.to_owned(),
    };
    let (loops, version) = (arguments.loops, locked_version(rival.framework));
    println!("listening on {address} engine={engine} loops={loops} version={version}");
    io::stdout().flush()?;
    signals.forever().next();
    Ok(())
}

/// One listener per loop on the same address; more than one share the port with SO_REUSEPORT, as each of these
/// frameworks advises for a thread a core.
fn listeners(address: SocketAddr, loops: usize) -> io::Result<Vec<TcpListener>> {
    let mut address = address;
    let mut listeners = Vec::with_capacity(loops);
    for _ in 0..loops {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(loops > 1)?;
        socket.set_tcp_nodelay(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from(socket);
        // Port 0 is resolved by the first.
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// The version of a crate that the workspace's lock file states.
fn locked_version(name: &str) -> &'static str {
    let name = format!("name = \"{name}\"");
    let mut lines = include_str!("../../Cargo.lock").lines();
    lines.find(|line| *line == name);
    lines
        .next()
        .and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
        .unwrap_or("unknown")
}
