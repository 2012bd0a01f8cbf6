//! Why there is no listening socket, and what to do about it.

use std::fmt;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use crate::address::{Address, AddressError};
use crate::errno::Errno;
use crate::sys::SocketOption;

/// Why a socket does not listen. The text says what failed, where, and what to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ListenError {
    /// The address has no form that the kernel reads.
    Address {
        /// The address asked for.
        address: Address,
        /// Why it has none.
        error: AddressError,
    },
    /// The address is [`Address::UnixUnnamed`], where nobody could connect.
    Unnamed,
    /// The kernel refused.
    System {
        /// The address asked for.
        address: Address,
        /// What was being done.
        step: Step,
        /// Why it was refused.
        errno: Errno,
    },
    /// Where the Unix socket's file belongs, there is a file of another kind, which is never removed.
    NotASocket {
        /// Its path.
        path: PathBuf,
    },
    /// A descriptor handed over is no listening stream socket of a supported family.
    Adopt {
        /// Its number.
        descriptor: RawFd,
        /// Why it is none.
        reason: AdoptReason,
    },
    /// The loop has as many listeners as it may ([`Config::listeners`](crate::Config::listeners)).
    Limit {
        /// The address asked for.
        address: Address,
    },
    /// The environment variables of the service manager contradict the protocol (`sd_listen_fds(3)`).
    Environment {
        /// Which variable.
        variable: &'static str,
        /// What it says.
        value: String,
        /// What is wrong with that.
        problem: &'static str,
    },
}

/// What was being done when the kernel refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Step {
    /// Making the socket (`socket(2)`).
    Socket,
    /// Setting an option (`setsockopt(2)`).
    Option(SocketOption),
    /// Binding it to the address (`bind(2)`).
    Bind,
    /// Listening (`listen(2)`).
    Listen,
    /// Reading its address (`getsockname(2)`).
    Name,
    /// Looking at, or removing, the file of a Unix socket.
    File,
    /// Setting the blocking mode that the loop's engine wants (`fcntl(2)`).
    Mode,
    /// Making another descriptor of it for another loop (`fcntl(2)`).
    Duplicate,
}

/// Why a descriptor cannot be adopted.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AdoptReason {
    /// It is a stream socket that does not listen.
    NotListening,
    /// The kernel says that it is something else.
    System(Errno),
    /// It listens on an address of a family that is not supported.
    Address(AddressError),
}

impl From<Errno> for AdoptReason {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl From<AddressError> for AdoptReason {
    fn from(error: AddressError) -> Self {
        Self::Address(error)
    }
}

impl ListenError {
    /// The kernel's error number, where there is one.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { errno, .. }
            | Self::Adopt {
                reason: AdoptReason::System(errno),
                ..
            } => Some(*errno),
            _ => None,
        }
    }
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address, error } => write!(f, "cannot listen on {address}: {error}"),
            Self::Unnamed => f.write_str(
                "cannot listen on a Unix socket without a name: nobody could connect to it; give a path or an \
                 abstract name",
            ),
            Self::System {
                address,
                step,
                errno,
            } => {
                write!(f, "cannot listen on {address}: ")?;
                explain(address, *step, *errno, f)
            }
            Self::Limit { address } => write!(
                f,
                "cannot listen on {address}: the loop has as many listeners as it may; raise its configuration's \
                 `listeners`"
            ),
            Self::NotASocket { path } => write!(
                f,
                "cannot listen on unix:{}: a file that is not a socket is there, and it is not removed; \
                 choose another path, or move the file away",
                path.display()
            ),
            Self::Adopt { descriptor, reason } => {
                write!(f, "cannot listen on descriptor {descriptor}: ")?;
                match reason {
                    AdoptReason::NotListening => f.write_str(
                        "the socket does not listen; call listen(2) before handing it over (under systemd, \
                         Accept=no and ListenStream=)",
                    ),
                    AdoptReason::System(errno) if errno.code() == libc::EPROTOTYPE => f.write_str(
                        "it is not a stream socket; hand over a TCP or Unix stream socket (under systemd, \
                         ListenStream=)",
                    ),
                    AdoptReason::System(errno) => {
                        write!(f, "{errno}; hand over an open TCP or Unix stream socket that listens")
                    }
                    AdoptReason::Address(error) => write!(f, "{error}"),
                }
            }
            Self::Environment {
                variable,
                value,
                problem,
            } => write!(
                f,
                "cannot take over the listening sockets of the service manager: {variable}={value:?} {problem}; \
                 start the service through its socket unit, or unset LISTEN_PID"
            ),
        }
    }
}

impl std::error::Error for ListenError {}

/// What the kernel's error means for this address, and what to do next.
fn explain(address: &Address, step: Step, errno: Errno, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match (address, step, errno.code()) {
        (_, _, libc::EMFILE) => f.write_str(
            "this process has as many descriptors as it may; raise its limit (`ulimit -n`, LimitNOFILE= under \
             systemd)",
        ),
        (_, _, libc::ENFILE) => f.write_str(
            "the system has as many open files as it may; raise the sysctl fs.file-max",
        ),
        (Address::Tcp(tcp), Step::Bind | Step::Listen, libc::EADDRINUSE) => write!(
            f,
            "another socket has the port; see which with `ss -ltnp 'sport = :{port}'`, or choose another port \
             (0 lets the kernel choose a free one)",
            port = tcp.port()
        ),
        (Address::Tcp(tcp), Step::Bind, libc::EACCES) => write!(
            f,
            "not allowed to bind port {}; ports below 1024 (sysctl net.ipv4.ip_unprivileged_port_start) need \
             CAP_NET_BIND_SERVICE (AmbientCapabilities= under systemd, or `setcap` on the program), or choose a \
             higher port",
            tcp.port()
        ),
        (Address::Tcp(tcp), Step::Bind, libc::EADDRNOTAVAIL) => write!(
            f,
            "{ip} is not an address of this host; `ip address` lists them, and {any} stands for all",
            ip = tcp.ip(),
            any = if tcp.is_ipv4() { "0.0.0.0" } else { "[::]" }
        ),
        (Address::Tcp(tcp), Step::Bind, libc::EINVAL) if tcp.is_ipv6() => write!(
            f,
            "a link-local address needs its interface; write, for example, [{}%2]:{}, where 2 is the number that \
             `ip link` shows",
            tcp.ip(),
            tcp.port()
        ),
        (Address::Tcp(_), Step::Socket, libc::EAFNOSUPPORT) => {
            f.write_str("this kernel has IPv6 turned off; use an IPv4 address, such as 0.0.0.0")
        }
        (Address::UnixPath(path), Step::Bind, libc::EADDRINUSE) => write!(
            f,
            "the file is there already; see whether a server has it with `ss -lxp 'src {}'`, and if none has, \
             remove the file or allow stale sockets to be removed",
            path.display()
        ),
        (Address::UnixAbstract(_), Step::Bind, libc::EADDRINUSE) => f.write_str(
            "another socket has the name; see which with `ss -lxp`, or choose another name",
        ),
        (Address::UnixPath(path), Step::Bind, libc::ENOENT | libc::ENOTDIR) => write!(
            f,
            "there is no directory {}; create it, or choose another path",
            directory(path).display()
        ),
        (Address::UnixPath(path), _, libc::EACCES | libc::EPERM | libc::EROFS) => write!(
            f,
            "not allowed to make or remove the file in {} ({errno}); check its permissions, or choose another \
             directory",
            directory(path).display()
        ),
        (_, Step::Socket, _) => write!(f, "making the socket failed: {errno}; see socket(2)"),
        (_, Step::Option(option), _) => {
            write!(f, "setting {option:?} failed: {errno}; see socket(7), or leave the option out")
        }
        (_, Step::Bind, _) => write!(f, "binding failed: {errno}; see bind(2)"),
        (_, Step::Listen, _) => write!(f, "listening failed: {errno}; see listen(2)"),
        (_, Step::Name, _) => write!(f, "reading the address failed: {errno}; see getsockname(2)"),
        (_, Step::Mode, _) => write!(f, "setting its blocking mode failed: {errno}"),
        (_, Step::Duplicate, _) => write!(f, "sharing the socket with another loop failed: {errno}"),
        (_, Step::File, _) => write!(
            f,
            "the socket's file cannot be looked at or removed: {errno}; check the path and its permissions"
        ),
    }
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_says_where_and_what_to_do() {
        let cases = [
            (
                "127.0.0.1:80",
                Step::Bind,
                libc::EADDRINUSE,
                "ss -ltnp 'sport = :80'",
            ),
            (
                "127.0.0.1:80",
                Step::Listen,
                libc::EADDRINUSE,
                "choose another port",
            ),
            ("127.0.0.1:80", Step::Bind, libc::EACCES, "CAP_NET_BIND_SERVICE"),
            (
                "192.0.2.1:80",
                Step::Bind,
                libc::EADDRNOTAVAIL,
                "0.0.0.0 stands for all",
            ),
            (
                "[2001:db8::1]:80",
                Step::Bind,
                libc::EADDRNOTAVAIL,
                "[::] stands for all",
            ),
            ("[fe80::1]:80", Step::Bind, libc::EINVAL, "[fe80::1%2]:80"),
            (
                "[::1]:80",
                Step::Socket,
                libc::EAFNOSUPPORT,
                "use an IPv4 address",
            ),
            ("127.0.0.1:80", Step::Socket, libc::EMFILE, "ulimit -n"),
            ("127.0.0.1:80", Step::Socket, libc::ENFILE, "fs.file-max"),
            ("127.0.0.1:80", Step::Socket, libc::EPERM, "socket(2)"),
            ("127.0.0.1:80", Step::Bind, libc::EPERM, "bind(2)"),
            ("127.0.0.1:80", Step::Name, libc::ENOBUFS, "getsockname(2)"),
            (
                "127.0.0.1:80",
                Step::Option(SocketOption::ReusePort(true)),
                libc::ENOPROTOOPT,
                "ReusePort",
            ),
            (
                "unix:/run/a",
                Step::Bind,
                libc::EADDRINUSE,
                "ss -lxp 'src /run/a'",
            ),
            ("unix:@a", Step::Bind, libc::EADDRINUSE, "choose another name"),
            ("unix:/no/a", Step::Bind, libc::ENOENT, "no directory /no;"),
            ("unix:no/a", Step::Bind, libc::ENOTDIR, "no directory no;"),
            ("unix:a", Step::Bind, libc::EACCES, "file in ."),
            ("unix:a", Step::File, libc::EIO, "check the path"),
            ("unix:a", Step::Listen, libc::EIO, "listen(2)"),
        ];
        for (address, step, code, expected) in cases {
            let error = ListenError::System {
                address: address.parse().unwrap(),
                step,
                errno: Errno::new(code),
            };
            let message = error.to_string();
            assert!(
                message.starts_with(&format!("cannot listen on {address}: ")),
                "{message}"
            );
            assert!(message.contains(expected), "{message}");
            assert_eq!(error.errno(), Some(Errno::new(code)));
        }
    }
}
