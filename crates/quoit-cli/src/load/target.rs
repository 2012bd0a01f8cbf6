//! Where the load goes: the address forms that the program understands, and sockets opened to them.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net as unix;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use mio::{Interest, Registry, Token};

/// The address of a server. Names are not resolved: a run must know which of a name's addresses it loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// An IPv4 or IPv6 address and port.
    Tcp(SocketAddr),
    /// A Unix stream socket in the file system.
    UnixPath(PathBuf),
    /// A Unix stream socket in the abstract name space (unix(7)), without the leading NUL.
    UnixAbstract(String),
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Tcp(address) => write!(formatter, "{address}"),
            Target::UnixPath(path) => write!(formatter, "unix:{}", path.display()),
            Target::UnixAbstract(name) => write!(formatter, "unix:@{name}"),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(rest) = text.strip_prefix("unix:") {
            let target = match rest.strip_prefix('@') {
                Some(name) => Target::UnixAbstract(name.to_owned()),
                None => Target::UnixPath(PathBuf::from(rest)),
            };
            return match target.unix_address() {
                _ if matches!(rest, "" | "@") => Err("the name after `unix:` is empty".to_owned()),
                Err(error) => Err(format!("`{text}` cannot name a Unix socket: {error}")),
                Ok(_) => Ok(target),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => Err("port 0 cannot be connected to".to_owned()),
            Ok(address) => Ok(Target::Tcp(address)),
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
            Target::Tcp(address) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{address} is a TCP address"),
            )),
            Target::UnixPath(path) => unix::SocketAddr::from_pathname(path),
            Target::UnixAbstract(name) => unix::SocketAddr::from_abstract_name(name),
        }
    }

    /// Starts a connection that does not block. Its outcome arrives as writability.
    ///
    /// # Errors
    /// Those of socket(2) and connect(2). `WouldBlock` means that a Unix listener's queue is full.
    pub(crate) fn connect(&self) -> io::Result<Socket> {
        match self {
            Target::Tcp(address) => mio::net::TcpStream::connect(*address).map(Socket::Tcp),
            _ => mio::net::UnixStream::connect_addr(&self.unix_address()?).map(Socket::Unix),
        }
    }

    /// Opens a connection that blocks, for the check before a run.
    ///
    /// # Errors
    /// Those of socket(2) and connect(2), and `TimedOut` for TCP.
    pub(crate) fn connect_blocking(&self, timeout: Duration) -> io::Result<Box<dyn BlockingStream>> {
        match self {
            Target::Tcp(address) => {
                let stream = std::net::TcpStream::connect_timeout(address, timeout)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Ok(Box::new(stream))
            }
            _ => {
                let stream = unix::UnixStream::connect_addr(&self.unix_address()?)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Ok(Box::new(stream))
            }
        }
    }
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
