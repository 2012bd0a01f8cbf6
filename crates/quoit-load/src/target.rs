//! Where the load goes: the address forms that the program understands, and sockets opened to them.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net as unix;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::{Interest, Registry, Token};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Type};

use super::system::bind_address_only;
use super::unix_name::{self, Shown};

/// The address of a server. Names are not resolved: a run must know which of a name's addresses it loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// An IPv4 or IPv6 address and port: of TCP, or of UDP if datagrams are sent.
    Ip(SocketAddr),
    /// A Unix stream socket in the file system.
    UnixPath(PathBuf),
    /// A Unix stream socket in the abstract name space (unix(7)), without the leading NUL.
    UnixAbstract(Vec<u8>),
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Ip(address) => write!(formatter, "{address}"),
            Target::UnixPath(path) => write!(formatter, "unix:{}", Shown(path.as_os_str().as_bytes())),
            Target::UnixAbstract(name) => write!(formatter, "unix:@{}", Shown(name)),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(rest) = text.strip_prefix("unix:") {
            let target = match rest.strip_prefix('@') {
                Some(name) => Target::UnixAbstract(unix_name::parse(name)?),
                None => Target::UnixPath(OsString::from_vec(unix_name::parse(rest)?).into()),
            };
            return match target.unix_address() {
                _ if matches!(rest, "" | "@") => Err("the name after `unix:` is empty".to_owned()),
                Err(error) => Err(format!("`{text}` cannot name a Unix socket: {error}")),
                Ok(_) => Ok(target),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => Err("port 0 cannot be connected to".to_owned()),
            Ok(address) => Ok(Target::Ip(address)),
            Err(_) => Err(format!(
                "`{text}` is not an address; expected an IP address and port such as 127.0.0.1:8080 or \
                 [::1]:8080 (names are not resolved), unix:/path or unix:@abstract-name"
            )),
        }
    }
}

impl Target {
    fn unix_address(&self) -> io::Result<unix::SocketAddr> {
        match self {
            Target::Ip(address) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{address} is a TCP address"),
            )),
            Target::UnixPath(path) => unix::SocketAddr::from_pathname(path),
            Target::UnixAbstract(name) => unix::SocketAddr::from_abstract_name(name),
        }
    }

    /// That of any target, for a socket that is made before it is connected.
    fn socket_address(&self) -> io::Result<SockAddr> {
        match self {
            Target::UnixAbstract(name) => {
                let name = [&[0], &name[..]].concat();
                SockAddr::unix(OsStr::from_bytes(&name))
            }
            Target::UnixPath(path) => SockAddr::unix(path),
            Target::Ip(address) => Ok((*address).into()),
        }
    }

    /// Starts a connection that does not block. Its outcome arrives as writability.
    ///
    /// # Errors
    /// Those of socket(2), bind(2) and connect(2). `WouldBlock` means that a Unix listener's queue is full.
    pub(crate) fn connect(&self, options: ConnectOptions) -> io::Result<Socket> {
        let Target::Ip(address) = self else {
            return mio::net::UnixStream::connect_addr(&self.unix_address()?).map(Socket::Unix);
        };
        let socket = tcp_socket(*address, options)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&(*address).into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(Socket::Tcp(mio::net::TcpStream::from_std(socket.into()))),
        }
    }

    /// Opens a connection that blocks, for the check before a run. A read of it waits for no longer than [`TICK`].
    ///
    /// # Errors
    /// Those of socket(2), bind(2) and connect(2), and of [`Patience`].
    pub(crate) fn connect_blocking(
        &self,
        options: ConnectOptions,
        patience: Patience<'_>,
    ) -> io::Result<Box<dyn BlockingStream>> {
        let (read, write) = (Some(patience.timeout.min(TICK)), Some(patience.timeout));
        match self {
            Target::Ip(address) => {
                let socket = tcp_socket(*address, options)?;
                socket.set_nonblocking(true)?;
                match socket.connect(&self.socket_address()?) {
                    Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
                    _ => patience.wait(|tick| established(&socket, tick))?,
                }
                socket.set_nonblocking(false)?;
                let stream = std::net::TcpStream::from(socket);
                stream.set_read_timeout(read)?;
                stream.set_write_timeout(write)?;
                Ok(Box::new(stream))
            }
            _ => {
                let address = self.socket_address()?;
                let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
                let stream = unix::UnixStream::from(OwnedFd::from(socket));
                let connected = patience.wait(|tick| {
                    // Connecting waits for room in the listener's queue as long as a send may wait (unix(7), EAGAIN).
                    stream.set_write_timeout(Some(tick))?;
                    unless_over(socket2::SockRef::from(&stream).connect(&address))
                });
                connected.map_err(|error| match error.kind() {
                    io::ErrorKind::TimedOut => io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!(
                            "its queue is full, and it accepted nobody within {:?}",
                            patience.timeout
                        ),
                    ),
                    _ => error,
                })?;
                stream.set_read_timeout(read)?;
                stream.set_write_timeout(write)?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// Between two looks at the order to stop.
const TICK: Duration = Duration::from_millis(100);

/// How long something that blocks is waited for, and the order to stop that ends the wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience<'a> {
    pub(crate) timeout: Duration,
    pub(crate) stop: &'a AtomicBool,
}

impl Patience<'_> {
    /// Lets `piece` wait for a part of the time, again and again, until it has something.
    ///
    /// # Errors
    /// Those of `piece`; `TimedOut` when the time is over; `Interrupted` when the run is to stop.
    pub(crate) fn wait<T>(self, mut piece: impl FnMut(Duration) -> io::Result<Option<T>>) -> io::Result<T> {
        let begun = Instant::now();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let left = self.timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if let Some(found) = piece(left.min(TICK))? {
                return Ok(found);
            }
        }
    }
}

/// What a call that blocks has come to; nothing yet, if its time was over or a signal came.
pub(crate) fn unless_over<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Waits until a connection attempt has come to its end, which may be an error.
fn established(socket: &socket2::Socket, tick: Duration) -> io::Result<Option<()>> {
    let mut polled = [PollFd::new(socket, PollFlags::OUT)];
    // What is longer than it holds is longer than a tick.
    let tick = Timespec::try_from(tick).ok();
    match poll(&mut polled, tick.as_ref()) {
        Ok(0) | Err(Errno::INTR) => Ok(None),
        Ok(_) => socket.take_error()?.map_or(Ok(Some(())), Err),
        Err(error) => Err(error.into()),
    }
}

/// How a TCP connection is made; it means nothing to Unix sockets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConnectOptions {
    /// The local address, with a port of the kernel's choice.
    pub(crate) source: Option<IpAddr>,
    /// Whether closing resets the connection (SO_LINGER with no time, socket(7)). Its port is free at once; an
    /// orderly close would keep it for a minute in TIME_WAIT.
    pub(crate) resets: bool,
    /// The size of the receive buffer, as far as the kernel goes along: a slow reader must not have a large one.
    pub(crate) receive_buffer: Option<usize>,
}

/// A TCP socket for a connection to `address`.
fn tcp_socket(address: SocketAddr, options: ConnectOptions) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if options.resets {
        socket.set_linger(Some(Duration::ZERO))?;
    }
    if let Some(bytes) = options.receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(source) = options.source {
        bind_address_only(&socket)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    Ok(socket)
}

/// A blocking connection whose two directions can be used by two threads.
pub(crate) trait BlockingStream: Read + Write + Send {
    /// Another handle to the same connection.
    fn duplicate(&self) -> io::Result<Box<dyn BlockingStream>>;

    /// Ends both directions, which wakes whoever waits for either.
    fn end(&self) -> io::Result<()>;
}

impl BlockingStream for std::net::TcpStream {
    fn duplicate(&self) -> io::Result<Box<dyn BlockingStream>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Both)
    }
}

impl BlockingStream for unix::UnixStream {
    fn duplicate(&self) -> io::Result<Box<dyn BlockingStream>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Both)
    }
}

/// A stream socket that does not block.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(mio::net::TcpStream),
    Unix(mio::net::UnixStream),
}

impl Socket {
    pub(crate) fn register(&mut self, registry: &Registry, token: Token, wanted: Interest) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => registry.register(stream, token, wanted),
            Socket::Unix(stream) => registry.register(stream, token, wanted),
        }
    }

    pub(crate) fn reregister(
        &mut self,
        registry: &Registry,
        token: Token,
        wanted: Interest,
    ) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => registry.reregister(stream, token, wanted),
            Socket::Unix(stream) => registry.reregister(stream, token, wanted),
        }
    }

    /// The outcome of the connection attempt: `Ok(false)` while it goes on. Once established, Nagle's
    /// algorithm is off (it would hold back the second small write of a pipeline).
    pub(crate) fn finish_connecting(&self) -> io::Result<bool> {
        let (failure, peer_known) = match self {
            Socket::Tcp(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
            Socket::Unix(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
        };
        if let Some(error) = failure {
            return Err(error);
        }
        match peer_known {
            Ok(()) => {
                if let Socket::Tcp(stream) = self {
                    stream.set_nodelay(true)?;
                }
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_form_is_understood_and_printed_back() {
        for text in [
            "127.0.0.1:8080",
            "[::1]:8080",
            "unix:/run/quoit.sock",
            "unix:@quoit",
            "unix:/run/a\\\\b\\x0a\\xff",
            "unix:@a\\x00b ä",
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), text);
        }
    }

    #[test]
    fn what_is_not_an_address_is_refused_with_the_forms_that_are() {
        for text in [
            "localhost:80",
            "127.0.0.1",
            "127.0.0.1:0",
            "unix:",
            "unix:@",
            "unix:/a\\b",
            "unix:/a\\x+1",
            "unix:@a\\",
            "",
            ":80",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
        let long = format!("unix:/{}", "x".repeat(200));
        assert!(
            long.parse::<Target>()
                .unwrap_err()
                .contains("cannot name a Unix socket")
        );
    }
}
