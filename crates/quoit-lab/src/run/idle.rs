//! What connections cost that do nothing.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use quoit_host::monotonic_now;
use quoit_report::results::model::{Figures, Slice};

use super::Halt;
use super::interrupt::{Interrupts, Woken};
use super::launch::Launched;
use super::process_tree::ProcessTree;
use crate::cpu;
use crate::error::{LabError, Result};
use crate::placement::site::Site;
use crate::sockets;

/// Connections between two looks whether the run was interrupted.
const INTERRUPTIBLE_AFTER: usize = 1024;
/// How long a server may take to accept what is connected, and how often is looked.
const ACCEPT_PATIENCE: Duration = Duration::from_secs(10);
const ACCEPT_TICK: Duration = Duration::from_millis(10);
/// How long is looked again where connections seem to be missing afterwards: while others come and go, reading the
/// kernel's table can miss some.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Opens the connections, leaves them alone for so many seconds, and closes them. The unit is a connection: CPU is
/// that of opening one, memory that of holding it; what the server uses while nothing happens is told apart.
///
/// # Errors
/// The run was interrupted, a connection is refused, or the server has closed some.
pub(crate) fn measure(
    launched: &Launched,
    connections: u32,
    seconds: f64,
    site: &Site,
    interrupts: &Interrupts,
) -> std::result::Result<Slice, Halt> {
    let server = &launched.server;
    // One connection first, so that what a server sets up once is not charged to the connections.
    let address = site.address_for_generator(server.address());
    let sources = sources(site)?;
    let first = open(address, &sources, 1, site, interrupts)?;
    let accepted = |least: u64, patience| {
        let (process, address) = (server.process_id(), server.address());
        accepted_within(process, address, least, patience, interrupts)
    };
    // With the first.
    let all = u64::from(connections) + 1;
    accepted(1, ACCEPT_PATIENCE)?;
    let mut tree = ProcessTree::of(server.process_id());
    let before = tree.usage(true)?;
    let started = Instant::now();
    let held_open = open(address, &sources, connections as usize, site, interrupts)?;
    // It may have connections yet to accept, which is no idling.
    let taken = accepted(all, ACCEPT_PATIENCE)?;
    if taken < all {
        let all = "connections that were opened";
        return Err(LabError::new(format!(
            "it has accepted {} of {connections} {all}, and {ACCEPT_PATIENCE:?} later no more: does it limit them?",
            taken.saturating_sub(1)
        ))
        .into());
    }
    let opening = started.elapsed().as_secs_f64();
    let opened = tree.usage(false)?;
    let observer = cpu::cpu_time_ns(std::process::id())?;
    let watched = Instant::now();
    wait(interrupts, Duration::from_secs_f64(seconds))?;
    let elapsed = watched.elapsed().as_secs_f64();
    let observed = cpu::cpu_time_ns(std::process::id())?.saturating_sub(observer);
    tree.find_members();
    let after = tree.usage(true)?;
    let held = accepted(all, LOOK_AGAIN)?;
    if held < all {
        return Err(LabError::new(format!(
            "it holds {} of {connections} connections after {seconds} s in which nothing happened",
            held.saturating_sub(1)
        ))
        .into());
    }
    drop((first, held_open));
    let units = f64::from(connections);
    let memory = after.resident_bytes as f64 - before.resident_bytes as f64;
    let while_idle = after.since(&opened);
    Ok(Slice {
        server: server.name().to_owned(),
        figures: Figures {
            units,
            units_per_second: units / opening,
            server_cpu_ns_per_unit: opened.since(&before).cpu_ns / units,
            server_user_share: after.since(&before).user_share(),
            kernel_thread_cpu_ns_per_unit: None,
            resident_bytes: Some(after.resident_bytes),
            peak_resident_bytes: after.peak_resident_bytes,
            bytes_per_connection: Some(memory / units),
            idle_cpu_ns_per_second: Some(while_idle.cpu_ns / elapsed),
            minor_faults: Some(after.since(&before).minor_faults),
            major_faults: Some(after.since(&before).major_faults),
            ..Figures::default()
        },
        observer_cpu_share: Some(observed as f64 / 1e9 / elapsed),
        ..Slice::default()
    })
}

fn wait(interrupts: &Interrupts, time: Duration) -> std::result::Result<(), Halt> {
    match interrupts
        .wait(None, monotonic_now() + time)
        .map_err(LabError::io("waiting while connections are idle"))?
    {
        Woken::Interrupted => Err(Halt::Interrupted),
        Woken::Time | Woken::Ended => Ok(()),
    }
}

/// Connections to an address that a server has accepted: looks until there are `least`, or the patience is over.
fn accepted_within(
    process: u32,
    server: SocketAddr,
    least: u64,
    patience: Duration,
    interrupts: &Interrupts,
) -> std::result::Result<u64, Halt> {
    let until = monotonic_now() + patience;
    loop {
        let accepted = sockets::accepted_connections(process, server)?;
        if accepted >= least || monotonic_now() >= until {
            return Ok(accepted);
        }
        wait(interrupts, ACCEPT_TICK)?;
    }
}

/// Addresses that the connections come from.
fn sources(site: &Site) -> Result<Vec<Ipv4Addr>> {
    let sources: Vec<Ipv4Addr> = site
        .sources()
        .into_iter()
        .filter_map(|source| match source {
            IpAddr::V4(source) => Some(source),
            IpAddr::V6(_) => None,
        })
        .collect();
    if sources.is_empty() {
        return Err(LabError::new(
            "idle connections are opened by the lab itself, which has no address of its own in this placement; use same-core, split-core or veth",
        ));
    }
    Ok(sources)
}

/// Opens connections in the generator's place, from the source addresses in turn.
fn open(
    address: SocketAddr,
    sources: &[Ipv4Addr],
    connections: usize,
    site: &Site,
    interrupts: &Interrupts,
) -> std::result::Result<Vec<TcpStream>, Halt> {
    let SocketAddr::V4(to) = address else {
        return Err(LabError::new(format!("idle connections need an IPv4 server, not {address}")).into());
    };
    let open = || {
        let mut open = Vec::with_capacity(connections);
        for (index, source) in sources.iter().cycle().take(connections).enumerate() {
            if index % INTERRUPTIBLE_AFTER == 0 && interrupts.arrived() {
                return Ok(None);
            }
            let connection = connect_from(*source, *to.ip(), to.port()).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("connection {} from {source}: {error}", index + 1),
                )
            })?;
            open.push(connection);
        }
        Ok(Some(open))
    };
    site.near_generator(open)
        .map_err(LabError::io(format!("opening idle connections to {address}")))?
        .ok_or(Halt::Interrupted)
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::experiment;

    #[test]
    fn connections_come_from_several_addresses() {
        let (experiment, _) = experiment::find("idle").expect("it is built in");
        let site = Site::prepare(&experiment).expect("there is a core");
        let listener = site.near_server(|| TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let sources = sources(&site).expect("there are some on loopback");
        assert!(sources.len() > 1);
        let interrupts = Interrupts::listen().expect("signals can be handled");
        let count = sources.len() + 1;
        let open = open(address, &sources, count, &site, &interrupts).expect("they connect");
        assert_eq!(open.len(), count);
        for source in sources.iter().cycle().take(count) {
            let (_, from) = listener.accept().expect("it is accepted");
            assert_eq!(from.ip(), *source);
        }
    }

    #[test]
    fn what_is_connected_is_waited_for_until_it_is_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let _clients = [(); 3].map(|()| TcpStream::connect(address).expect("it is listening"));
        let first = listener.accept().expect("one is waiting");
        let interrupts = Interrupts::listen().expect("signals can be handled");
        let accepted = |patience| {
            accepted_within(std::process::id(), address, 3, patience, &interrupts)
                .expect("the table is readable")
        };
        assert_eq!(accepted(Duration::ZERO), 1);
        thread::scope(|scope| {
            let late = scope.spawn(|| [(); 2].map(|()| listener.accept().expect("one is waiting")));
            assert_eq!(accepted(Duration::from_secs(60)), 3);
            drop(late.join().expect("it does not panic"));
        });
        drop(first);
    }
}
