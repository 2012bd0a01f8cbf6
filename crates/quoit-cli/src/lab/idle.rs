//! What connections cost that do nothing.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::cpu;
use super::error::{LabError, Result};
use super::measure::{Rig, Usage};
use super::server::ServerCommand;
use crate::descriptors::DescriptorLimit;

/// Idle connections that are opened.
const CONNECTIONS: usize = 10_000;
/// Source addresses that they come from (127.0.0.2 and so on): one address has fewer ports than a server
/// may have clients.
const SOURCE_ADDRESSES: usize = 4;
/// How long they are watched.
const WATCHED: Duration = Duration::from_secs(5);
/// Descriptors that the lab and the server need beside the connections.
const SPARE_DESCRIPTORS: u64 = 200;

/// The cost of idle connections on one server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct IdleFigures {
    pub(crate) server: String,
    pub(crate) connections: usize,
    /// Descriptors that the server held more at the end than before: fewer than the connections if it
    /// closed some.
    pub(crate) still_open: u64,
    /// Memory of the process in RAM, before and after the connections were opened.
    pub(crate) resident_bytes_before: u64,
    pub(crate) resident_bytes_after: u64,
    /// CPU time of the server a second, while nothing happened.
    pub(crate) cpu_ns_per_second: f64,
}

impl IdleFigures {
    pub(crate) fn resident_bytes_per_connection(&self) -> f64 {
        self.resident_bytes_after
            .saturating_sub(self.resident_bytes_before) as f64
            / self.connections as f64
    }
}

/// Opens the connections, watches the server and closes them.
///
/// # Errors
/// The limit of open files is too low, or a connection is refused.
pub(crate) fn measure(rig: &Rig, command: &ServerCommand) -> Result<IdleFigures> {
    // Before the server is started, which inherits the limit.
    raise_descriptor_limit(CONNECTIONS as u64 + SPARE_DESCRIPTORS)?;
    let server = rig.start(command)?;
    let process = server.process_id();
    // One connection first, so that what a server sets up once is not charged to the connections.
    connect(0, server.address())?;
    let resident_bytes_before = cpu::resident_bytes(process)?;
    let descriptors_before = cpu::open_descriptors(process)?;

    let mut connections = Vec::with_capacity(CONNECTIONS);
    for index in 0..CONNECTIONS {
        connections.push(connect(index, server.address())?);
    }
    let before = Usage::of(&server)?;
    thread::sleep(WATCHED);
    let (cpu_ns, wall_ns) = before.elapsed_ns(&server)?;
    let figures = IdleFigures {
        server: command.name.clone(),
        connections: connections.len(),
        still_open: cpu::open_descriptors(process)?.saturating_sub(descriptors_before),
        resident_bytes_before,
        resident_bytes_after: cpu::resident_bytes(process)?,
        cpu_ns_per_second: cpu_ns as f64 * 1e9 / wall_ns as f64,
    };
    drop(connections);
    server.stop()?;
    Ok(figures)
}

/// Connects from one of the source addresses.
fn connect(index: usize, server: SocketAddr) -> Result<TcpStream> {
    let source = Ipv4Addr::new(127, 0, 0, 2 + (index % SOURCE_ADDRESSES) as u8);
    let SocketAddr::V4(to) = server else {
        return Err(LabError::new(format!(
            "idle connections need an IPv4 server, not {server}"
        )));
    };
    connect_from(source, *to.ip(), to.port()).map_err(LabError::io(format!(
        "opening idle connection {} from {source} to {server}",
        index + 1
    )))
}

fn connect_from(source: Ipv4Addr, to: Ipv4Addr, port: u16) -> io::Result<TcpStream> {
    let check = |result: libc::c_int| {
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(result)
        }
    };
    let address = |ip: Ipv4Addr, port: u16| libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(ip).to_be(),
        },
        sin_zero: [0; 8],
    };
    let (source, to) = (address(source, 0), address(to, port));
    let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    let one: libc::c_int = 1;
    // SAFETY: the descriptor is new and ours alone; addresses and option live through the calls, which
    // are given their sizes.
    unsafe {
        let socket = check(libc::socket(
            libc::AF_INET,
            libc::SOCK_STREAM | libc::SOCK_CLOEXEC,
            0,
        ))?;
        let socket = OwnedFd::from_raw_fd(socket);
        // The port is chosen at connect(2), where only the pair of addresses has to be free (ip(7)).
        check(libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const one).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        ))?;
        check(libc::bind(socket.as_raw_fd(), (&raw const source).cast(), size))?;
        check(libc::connect(socket.as_raw_fd(), (&raw const to).cast(), size))?;
        Ok(socket.into())
    }
}

/// Raises this process's soft limit of open files.
fn raise_descriptor_limit(needed: u64) -> Result<()> {
    let limit = DescriptorLimit::raise(needed).map_err(LabError::io("raising the limit of open files"))?;
    if limit.soft < needed {
        return Err(LabError::new(format!(
            "{CONNECTIONS} idle connections need a limit of {needed} open files, and {} is the most allowed: \
             raise it with `ulimit -Hn`",
            limit.hard
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn connections_come_from_several_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        for index in 0..=SOURCE_ADDRESSES {
            let _connection = connect(index, address).expect("it connects");
            let (_, from) = listener.accept().expect("it is accepted");
            let last = 2 + (index % SOURCE_ADDRESSES) as u8;
            assert_eq!(from.ip(), Ipv4Addr::new(127, 0, 0, last));
        }
    }

    #[test]
    fn memory_is_divided_by_the_connections() {
        let figures = IdleFigures {
            server: "x".to_owned(),
            connections: 100,
            still_open: 100,
            resident_bytes_before: 1000,
            resident_bytes_after: 51_000,
            cpu_ns_per_second: 0.0,
        };
        assert_eq!(figures.resident_bytes_per_connection(), 500.0);
    }
}
