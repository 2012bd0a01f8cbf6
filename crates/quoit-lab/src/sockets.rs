//! Sockets of a server, as the kernel's own tables have them.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::error::{LabError, Result};

/// TCP_ESTABLISHED of include/net/tcp_states.h, as proc_pid_net(5) prints it.
const ESTABLISHED: &str = "01";

/// Established TCP connections to an address that the server has accepted, in the network namespace of `process`. An
/// address of no host, such as `0.0.0.0`, stands for every one.
///
/// The kernel establishes a connection before the server takes it, so a client's success says nothing. In the table it
/// has no inode until then (include/net/sock.h, `sock_i_ino`). Descriptors tell less: a server opens and closes others
/// as well, and io_uring can hold connections without any.
///
/// # Errors
/// The table cannot be read, for example because the process has ended.
pub(crate) fn accepted_connections(process: u32, server: SocketAddr) -> Result<u64> {
    let count = |table: &str, host: Option<String>| {
        let path = format!("/proc/{process}/net/{table}");
        let count =
            File::open(&path).and_then(|file| count(BufReader::new(file), host.as_deref(), server.port()));
        count.map_err(LabError::io(format!("reading {path}")))
    };
    let IpAddr::V4(host) = server.ip() else {
        return count("tcp6", host_in_table(server.ip()));
    };
    let of_ipv4 = count("tcp", host_in_table(server.ip()))?;
    // Virtual machines serve IPv4 on sockets of IPv6. Where there is no IPv6, there is no table either.
    let mapped = host_in_table(host.to_ipv6_mapped().into());
    let of_both = match server.ip().is_unspecified() {
        true => count("tcp6", None),
        false => count("tcp6", mapped),
    };
    Ok(of_ipv4 + of_both.unwrap_or(0))
}

fn count(table: impl BufRead, host: Option<&str>, port: u16) -> io::Result<u64> {
    // A table that changes while it is read may show a socket twice.
    let mut inodes = HashSet::new();
    for line in table.lines() {
        inodes.extend(inode_of_accepted(&line?, host, port));
    }
    Ok(inodes.len() as u64)
}

/// An address as the table has it: words of the machine's byte order in hex (`proc_pid_net(5)`). `None` for any.
fn host_in_table(host: IpAddr) -> Option<String> {
    let bytes = match host {
        _ if host.is_unspecified() => return None,
        IpAddr::V4(host) => host.octets().to_vec(),
        IpAddr::V6(host) => host.octets().to_vec(),
    };
    let (words, _) = bytes.as_chunks::<4>();
    Some(
        words
            .iter()
            .map(|word| format!("{:08X}", u32::from_ne_bytes(*word)))
            .collect(),
    )
}

/// `sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...`; addresses are `HOST:PORT`, in hex.
/// The port alone would not do: a client's may be the same, from another address.
fn inode_of_accepted(line: &str, host: Option<&str>, port: u16) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (at, number) = fields.nth(1)?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?.parse().ok()?;
    let is_it = host.is_none_or(|host| at == host) && u16::from_str_radix(number, 16) == Ok(port);
    (is_it && state == ESTABLISHED && inode != 0).then_some(inode)
}

/// What the datagram sockets at one address hold and have lost, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatagramSockets {
    /// Memory of what waits to be received, in bytes, with the kernel's overhead.
    pub(crate) held: u64,
    /// Packets dropped since they were made.
    pub(crate) drops: u64,
}

/// Of the UDP sockets at an address, in the network namespace of `process`; `None` if there is none, or if the process has
/// ended.
pub(crate) fn datagram_sockets(process: u32, server: SocketAddr) -> Option<DatagramSockets> {
    let table = if server.is_ipv4() { "udp" } else { "udp6" };
    let table = File::open(format!("/proc/{process}/net/{table}")).ok()?;
    let (host, port) = (host_in_table(server.ip()), server.port());
    let mut sum: Option<DatagramSockets> = None;
    for line in BufReader::new(table).lines() {
        if let Some(one) = datagram_socket(&line.ok()?, host.as_deref(), port) {
            let sum = sum.get_or_insert_default();
            sum.held += one.held;
            sum.drops += one.drops;
        }
    }
    sum
}

/// Whether a UDP socket has a port, at whatever address, in the network namespace of `process`.
pub(crate) fn has_datagram_socket(process: u32, port: u16) -> bool {
    let anywhere: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    anywhere
        .iter()
        .any(|host| datagram_sockets(process, SocketAddr::new(*host, port)).is_some())
}

/// Memory of all UDP sockets of the machine together, in pages, as `/proc/net/sockstat` has it (proc_pid_net(5)): what
/// they hold, and what the kernel keeps in hand for more. It is not counted by network namespace, and each processor may be
/// `net.core.mem_pcpu_rsv` pages (256) ahead of it or behind. `None` if `process` has ended.
pub(crate) fn udp_pages(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/net/sockstat")).ok()?;
    pages_of_udp(&text)
}

/// `UDP: inuse 4 mem 3`.
fn pages_of_udp(sockstat: &str) -> Option<u64> {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("UDP:"))?;
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == "mem")?;
    words.next()?.parse().ok()
}

/// As for TCP, with the count of drops as the last field.
fn datagram_socket(line: &str, host: Option<&str>, port: u16) -> Option<DatagramSockets> {
    let mut fields = line.split_ascii_whitespace();
    let (at, number) = fields.nth(1)?.rsplit_once(':')?;
    let is_it = host.is_none_or(|host| at == host) && u16::from_str_radix(number, 16) == Ok(port);
    let (_, held) = fields.nth(2)?.split_once(':')?;
    is_it.then_some(())?;
    Some(DatagramSockets {
        held: u64::from_str_radix(held, 16).ok()?,
        drops: fields.next_back()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn only_what_was_accepted_and_is_still_open_counts() {
        for host in ["127.0.64.5", "::1"] {
            let listener = TcpListener::bind((host, 0)).expect("a port is free");
            let address = listener.local_addr().expect("it is bound");
            let accepted =
                || accepted_connections(std::process::id(), address).expect("the table is readable");
            let connect = || TcpStream::connect(address).expect("it is listening");
            let clients = [connect(), connect(), connect()];
            assert_eq!(accepted(), 0);
            let accept = || listener.accept().expect("one is waiting").0;
            let (first, second) = (accept(), accept());
            assert_eq!(accepted(), 2);
            drop(first);
            assert_eq!(accepted(), 1);
            drop((second, clients));
            assert_eq!(accepted(), 0);
        }
    }

    /// As virtual machines listen. At an address of this test's own: a socket of IPv4 that another test has accepted may
    /// have the same port, if its listener is gone.
    #[test]
    fn what_came_by_ipv4_to_a_socket_of_ipv6_counts() {
        let listener = TcpListener::bind("[::ffff:127.0.64.6]:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let address = SocketAddr::from(([127, 0, 64, 6], port));
        let accepted =
            |address| accepted_connections(std::process::id(), address).expect("the tables are readable");
        let _client = TcpStream::connect(address).expect("it is listening");
        assert_eq!(accepted(address), 0);
        let _server = listener.accept().expect("one is waiting");
        assert_eq!(accepted(address), 1);
        assert!(accepted(SocketAddr::from(([0, 0, 0, 0], port))) >= 1);
    }

    #[test]
    fn a_socket_that_the_table_shows_twice_is_one() {
        let line = "  0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1\n";
        let other = line.replace("4711", "4712");
        let table = format!("{line}{other}{line}");
        assert_eq!(count(table.as_bytes(), None, 8080).expect("it is readable"), 2);
    }

    #[test]
    fn the_same_port_of_another_address_is_somebody_elses() {
        let line = |local: &str| {
            format!(
                "  0: {local}:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1"
            )
        };
        let host = host_in_table("127.0.0.1".parse().expect("an address"));
        let here = if cfg!(target_endian = "little") {
            "0100007F"
        } else {
            "7F000001"
        };
        assert_eq!(inode_of_accepted(&line(here), host.as_deref(), 8080), Some(4711));
        assert_eq!(inode_of_accepted(&line("0200007F"), host.as_deref(), 8080), None);
        assert_eq!(inode_of_accepted(&line(here), host.as_deref(), 8081), None);
        assert_eq!(inode_of_accepted(&line("0200007F"), None, 8080), Some(4711));
    }

    #[test]
    fn what_datagram_sockets_hold_and_drop_is_seen() {
        for host in ["127.0.0.1", "::1"] {
            let receiver = UdpSocket::bind((host, 0)).expect("a port is free");
            let address = receiver.local_addr().expect("it is bound");
            let seen = || datagram_sockets(std::process::id(), address);
            assert_eq!(seen(), Some(DatagramSockets::default()));
            assert!(has_datagram_socket(std::process::id(), address.port()));
            let sender = UdpSocket::bind((host, 0)).expect("a port is free");
            let mut sent = 0;
            while seen().is_some_and(|seen| seen.drops == 0) {
                sender.send_to(&[0; 1000], address).expect("it is sent");
                sent += 1;
            }
            let full = seen().expect("it is open");
            assert!(full.held > 1000 * (sent - full.drops), "{full:?} of {sent}");
            // What they hold need not be in it yet.
            assert!(udp_pages(std::process::id()).is_some());
            drop(receiver);
            assert_eq!(seen(), None);
            assert!(!has_datagram_socket(std::process::id(), address.port()));
        }
    }

    #[test]
    fn the_memory_of_udp_is_found_among_others() {
        let text = "sockets: used 9\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 7\nUDP: inuse 2 mem 51\nUDPLITE: inuse 0\n";
        assert_eq!(pages_of_udp(text), Some(51));
        assert_eq!(pages_of_udp("UDPLITE: inuse 0\n"), None);
    }

    #[test]
    fn a_table_that_cannot_be_read_is_named() {
        // Above the kernel's PID_MAX_LIMIT, so that no process can have it.
        let error = accepted_connections(1 << 23, "127.0.0.1:80".parse().expect("an address"))
            .expect_err("there is no such process");
        assert!(error.to_string().contains("/proc/8388608/net/tcp"), "{error}");
    }
}
