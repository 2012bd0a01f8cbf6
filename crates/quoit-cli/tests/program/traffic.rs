//! Echo traffic of several clients at once, every byte checked, for servers under faults.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use crate::support::{PATIENCE, Server};

const CLIENTS: usize = 6;
/// Exchanges that each client must complete.
const ROUNDS: usize = 20;
/// Exchanges before a client ends its connection and makes another.
const ROUNDS_PER_CONNECTION: usize = 4;
/// From less than one buffer to more than the sockets hold.
const SIZES: [usize; 5] = [1, 17, 4_096, 70_000, 400_000];
/// Failed exchanges in a row after which the service is taken to be gone.
const MOST_FAILURES: usize = 100;

/// Whether a fault may end the connection that it meets, or lose the datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Harm {
    /// It passes: nobody may notice.
    None,
    /// One connection may end early, with nothing wrong before that, or one datagram be lost. The others and the
    /// service go on.
    One,
}

/// Has all clients complete their exchanges, each with what it sent. Returns how many connections broke.
///
/// # Panics
/// If a byte is wrong, a connection is stuck, one ends that may not, or the service does not go on.
pub(crate) fn exchange(address: &str, harm: Harm) -> usize {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || exchange_alone(address, client, harm)))
            .collect();
        clients
            .into_iter()
            .map(|client| {
                client
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .sum()
    })
}

fn exchange_alone(address: &str, client: usize, harm: Harm) -> usize {
    let mut broken = 0;
    let mut failures = 0;
    let mut round = 0;
    while round < ROUNDS {
        let result = one_connection(address, client, &mut round);
        match result {
            Ok(()) => failures = 0,
            Err(error) => {
                assert!(
                    !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
                    "client {client} is stuck in round {round}: {error}"
                );
                assert_eq!(harm, Harm::One, "client {client}, round {round}: {error}");
                broken += 1;
                failures += 1;
                assert!(
                    failures < MOST_FAILURES,
                    "{failures} connections in a row broke, the last by {error}"
                );
            }
        }
    }
    broken
}

/// Goes on from `round` for some rounds, then ends the connection in an orderly way.
fn one_connection(address: &str, client: usize, round: &mut usize) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    for _ in 0..ROUNDS_PER_CONNECTION {
        let size = SIZES[(client + *round) % SIZES.len()];
        one_exchange(&mut stream, client * ROUNDS + *round, size)?;
        *round += 1;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest)?;
    assert!(rest.is_empty(), "{} bytes that nobody sent", rest.len());
    Ok(())
}

/// Sends a message and reads it back at the same time, since the two directions of a large one wait for each other.
fn one_exchange(stream: &mut TcpStream, number: usize, size: usize) -> io::Result<()> {
    // Of a prime's length, so that bytes that come twice, or from elsewhere, do not fit.
    let message: Vec<u8> = (0..size)
        .map(|position| (position % 251 + number) as u8)
        .collect();
    let mut back = vec![0; size];
    let mut writer = stream.try_clone()?;
    thread::scope(|scope| {
        let message = &message;
        let writing = scope.spawn(move || writer.write_all(message));
        let mut received = 0;
        let result = loop {
            match stream.read(&mut back[received..]) {
                Ok(0) => break Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
                Ok(length) => {
                    assert!(
                        back[received..received + length] == message[received..received + length],
                        "message {number} of {size} bytes came back wrong after {received}"
                    );
                    received += length;
                    if received == size {
                        break Ok(());
                    }
                }
            }
        };
        if result.is_err() {
            // The writer must not wait for a server that has gone. It may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let written = writing.join().expect("writing does not panic");
        result.and(written)
    })
}

/// Descriptors that the server has open.
pub(crate) fn open_descriptors(server: &Server) -> usize {
    server.proc_entries("fd").len()
}

/// Waits until the server has no more descriptors open than it had `before`: all its connections are gone.
#[track_caller]
pub(crate) fn wait_for_descriptors(server: &Server, before: usize) {
    let begin = std::time::Instant::now();
    loop {
        let now = open_descriptors(server);
        if now <= before {
            return;
        }
        assert!(
            begin.elapsed() < PATIENCE,
            "{now} descriptors are open, {before} were before: {:?}",
            server.proc_entries("fd")
        );
        thread::yield_now();
    }
}
