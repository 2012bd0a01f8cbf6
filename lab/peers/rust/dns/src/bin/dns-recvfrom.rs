//! The plain responder: recvfrom(2) and sendto(2), a call each for every query. It answers as `quoit serve dns` does
//! without `--record`, by the same code.

use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lab_dns::Options;
use quoit_workload::Work;
use quoit_workload::dns::{MOST_BYTES, Outcome, Responder, Zone};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Between two looks whether a signal came.
const TICK: Duration = Duration::from_millis(100);
/// Seconds for which answers may be kept.
const TTL: u32 = 300;

struct Arguments {
    listen: SocketAddr,
    work: Duration,
}

fn main() -> ExitCode {
    let arguments = match arguments(Options::of_process()) {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("dns-recvfrom: {what}; usage: dns-recvfrom --listen ADDR [--work NS]");
            return ExitCode::from(2);
        }
    };
    match serve(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dns-recvfrom: serving {}: {error}", arguments.listen);
            ExitCode::FAILURE
        }
    }
}

fn arguments(mut options: Options) -> Result<Arguments, String> {
    let arguments = Arguments {
        listen: options.need("--listen")?,
        work: Duration::from_nanos(options.take("--work")?.unwrap_or(0)),
    };
    options.end()?;
    Ok(arguments)
}

fn serve(arguments: &Arguments) -> io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let work = Work::of(arguments.work);
    let mut responder = Responder::new(Zone::documentation(), TTL);
    let socket = UdpSocket::bind(arguments.listen)?;
    socket.set_read_timeout(Some(TICK))?;
    println!("listening on {} engine=recvfrom loops=1", socket.local_addr()?);
    io::stdout().flush()?;
    // One byte more than a query may have: what is longer comes cut, and is refused by its length.
    let mut query = [0; MOST_BYTES as usize + 1];
    while !stop.load(Ordering::Relaxed) {
        let (length, peer) = match socket.recv_from(&mut query) {
            Ok(received) => received,
            Err(error) if is_nothing(&error) => continue,
            Err(error) => return Err(error),
        };
        work.burn();
        let (outcome, response) = responder.answer(&query[..length]);
        if outcome != Outcome::Ignored {
            // What cannot be sent is lost, as datagrams may be.
            let _ = socket.send_to(response, peer);
        }
    }
    Ok(())
}

/// Whether an error means that nothing came.
fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
