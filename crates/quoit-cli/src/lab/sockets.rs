//! Connections of a server, as the kernel's own table has them.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use super::error::{LabError, Result};

/// TCP_ESTABLISHED of include/net/tcp_states.h, as proc_pid_net(5) prints it.
const ESTABLISHED: &str = "01";

/// Established TCP connections to a port that the server has accepted, in the network namespace of `process`.
///
/// The kernel establishes a connection before the server takes it, so a client's success says nothing. In the table it
/// has no inode until then (include/net/sock.h, `sock_i_ino`). Descriptors tell less: a server opens and closes others
/// as well, and io_uring can hold connections without any.
///
/// # Errors
/// The table cannot be read, for example because the process has ended.
pub(crate) fn accepted_connections(process: u32, port: u16) -> Result<u64> {
    let mut accepted = 0;
    for table in ["tcp", "tcp6"] {
        let path = format!("/proc/{process}/net/{table}");
        let count = match File::open(&path) {
            // A kernel without IPv6.
            Err(error) if table == "tcp6" && error.kind() == io::ErrorKind::NotFound => Ok(0),
            file => file.and_then(|file| count(BufReader::new(file), port)),
        };
        accepted += count.map_err(LabError::io(format!("reading {path}")))?;
    }
    Ok(accepted)
}

fn count(table: impl BufRead, port: u16) -> io::Result<u64> {
    let mut accepted = 0;
    for line in table.lines() {
        accepted += u64::from(is_accepted(&line?, port));
    }
    Ok(accepted)
}

/// `sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...`; addresses end with `:PORT`, in hex.
fn is_accepted(line: &str, port: u16) -> bool {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1).and_then(|address| address.rsplit(':').next());
    let state = fields.nth(1);
    let inode = fields.nth(5);
    local.is_some_and(|local| u16::from_str_radix(local, 16) == Ok(port))
        && state == Some(ESTABLISHED)
        && inode.is_some_and(|inode| inode != "0")
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn only_what_was_accepted_and_is_still_open_counts() {
        for host in ["127.0.0.1", "::1"] {
            let listener = TcpListener::bind((host, 0)).expect("a port is free");
            let address = listener.local_addr().expect("it is bound");
            let accepted =
                || accepted_connections(std::process::id(), address.port()).expect("the table is readable");
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

    #[test]
    fn a_table_that_cannot_be_read_is_named() {
        // Above the kernel's PID_MAX_LIMIT, so that no process can have it.
        let error = accepted_connections(1 << 23, 80).expect_err("there is no such process");
        assert!(error.to_string().contains("/proc/8388608/net/tcp"), "{error}");
    }
}
