//! The peers: a process that connects as many as it is told to, and ends all connections when it is told to.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use socket2::SockRef;

use super::End;

/// The order to end all connections. The other orders are numbers: connect as many more.
const END: &str = "end";
/// What follows an order that was carried out.
const DONE: &str = "done";

/// The process of the peers. Dropping it lets it end.
pub(super) struct Peers {
    process: Child,
    orders: Option<ChildStdin>,
    reports: BufReader<ChildStdout>,
}

impl Peers {
    /// Starts the process. It has no connection yet.
    pub(super) fn new(address: SocketAddr, end: End) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("the process of the peers: {error}");
        let end = end.to_possible_value().ok_or("an end without a name")?;
        let mut process = Command::new(std::env::current_exe().map_err(failed)?)
            .arg("peers")
            .args(["--connect", &address.to_string(), "--end", end.get_name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let orders = process.stdin.take();
        let reports = process.stdout.take().ok_or("the peers have no output")?;
        Ok(Self {
            process,
            orders,
            reports: BufReader::new(reports),
        })
    }

    /// Connects as many more. No more than the server's backlog has room for.
    pub(super) fn connect(&mut self, connections: u32) -> Result<(), String> {
        self.order(&connections.to_string())
    }

    /// Ends all connections. Returns when the kernel has told the server's sockets.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.order(END)
    }

    fn order(&mut self, order: &str) -> Result<(), String> {
        let orders = self.orders.as_mut().ok_or("the peers have ended")?;
        writeln!(orders, "{order}").map_err(|error| format!("telling the peers: {error}"))?;
        let mut line = String::new();
        self.reports
            .read_line(&mut line)
            .map_err(|error| format!("reading from the peers: {error}"))?;
        if line.trim_end() == DONE {
            Ok(())
        } else {
            Err(format!("the peers did not do {order:?}; they said {line:?}"))
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.orders = None;
        // It ends by itself without its input; how it ended is known from what it reported.
        let _ = self.process.wait();
    }
}

/// Is the process of the peers.
pub(crate) fn serve(address: SocketAddr, end: End) -> Result<(), String> {
    let mut streams = Vec::new();
    for order in std::io::stdin().lines() {
        let order = order.map_err(|error| format!("reading an order: {error}"))?;
        if order == END {
            streams.clear();
        } else {
            let count: u32 = order.parse().map_err(|_| format!("no order: {order:?}"))?;
            for _ in 0..count {
                streams.push(connected(address, end)?);
            }
        }
        let mut output = std::io::stdout().lock();
        writeln!(output, "{DONE}")
            .and_then(|()| output.flush())
            .map_err(|error| format!("reporting: {error}"))?;
    }
    Ok(())
}

fn connected(address: SocketAddr, end: End) -> Result<TcpStream, String> {
    let failed = |error: std::io::Error| format!("connecting to {address}: {error}");
    let stream = TcpStream::connect(address).map_err(failed)?;
    if end == End::Reset {
        // Closing resets then (socket(7)).
        SockRef::from(&stream)
            .set_linger(Some(Duration::ZERO))
            .map_err(failed)?;
    }
    Ok(stream)
}
