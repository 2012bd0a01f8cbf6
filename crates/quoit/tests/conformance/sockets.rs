//! The client's side: plain blocking sockets of the standard library.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use quoit::Address;

/// Ends a test that hangs; nothing is expected to take as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A client's socket, of either family.
#[derive(Debug)]
pub(crate) enum Client {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! either {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self {
            Client::Tcp($stream) => $call,
            Client::Unix($stream) => $call,
        }
    };
}

impl Client {
    pub(crate) fn connect(address: &Address) -> Self {
        let client = match address {
            Address::Tcp(address) => Self::Tcp(TcpStream::connect(address).unwrap()),
            Address::UnixPath(path) => Self::Unix(UnixStream::connect(path).unwrap()),
            Address::UnixAbstract(name) => {
                let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
                Self::Unix(UnixStream::connect_addr(&address).unwrap())
            }
            Address::UnixUnnamed => panic!("nothing to connect to"),
        };
        client.patient()
    }

    fn patient(self) -> Self {
        either!(&self, stream => {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
        });
        self
    }

    /// Two ends of one TCP connection, none of them of a loop.
    pub(crate) fn tcp_pair() -> (Self, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        (Self::Tcp(client).patient(), other.into())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        either!(self, stream => stream.write_all(bytes)).unwrap();
    }

    pub(crate) fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        either!(self, stream => stream.read_exact(&mut bytes)).unwrap();
        bytes
    }

    /// What has come, as far as that goes without waiting.
    pub(crate) fn receive_queued(&mut self, into: &mut Vec<u8>) {
        either!(&*self, stream => stream.set_nonblocking(true)).unwrap();
        let result = either!(self, stream => stream.read_to_end(into));
        either!(&*self, stream => stream.set_nonblocking(false)).unwrap();
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => drop(result.unwrap()),
        }
    }

    /// All bytes up to the end of the stream, or the error that came instead of the end.
    pub(crate) fn receive_rest(&mut self) -> (Vec<u8>, io::Result<()>) {
        let mut bytes = Vec::new();
        let result = either!(self, stream => stream.read_to_end(&mut bytes));
        (bytes, result.map(drop))
    }

    pub(crate) fn expect_end(&mut self) {
        let (bytes, result) = self.receive_rest();
        result.unwrap();
        assert!(bytes.is_empty(), "{} more bytes before the end", bytes.len());
    }

    pub(crate) fn expect_reset(&mut self) {
        let (_, result) = self.receive_rest();
        let error = result.expect_err("a reset, not the end of the stream");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    }

    pub(crate) fn shutdown(&self) {
        either!(self, stream => stream.shutdown(Shutdown::Write)).unwrap();
    }

    /// Closes with a reset (TCP).
    pub(crate) fn reset(self) {
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &linger);
    }

    /// Waits until a reset has come; what was received before stays to be read.
    pub(crate) fn wait_reset(&self) {
        wait_reset(self.as_fd());
    }

    /// Makes the kernel's buffers small, so that little is under way.
    /// Whether there is nothing to read: neither bytes nor an end.
    pub(crate) fn is_silent(&self) -> bool {
        let descriptor = either!(self, stream => stream.as_raw_fd());
        let mut polled = libc::pollfd {
            fd: descriptor,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry; the descriptor is open.
        let ready = unsafe { libc::poll(&raw mut polled, 1, 0) };
        assert!(ready >= 0, "{}", io::Error::last_os_error());
        ready == 0
    }

    pub(crate) fn set_receive_buffer(&self, bytes: i32) {
        set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes);
    }

    pub(crate) fn try_clone(&self) -> Self {
        match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone().unwrap()),
            Self::Unix(stream) => Self::Unix(stream.try_clone().unwrap()),
        }
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        match self {
            Self::Tcp(stream) => stream.local_addr().unwrap(),
            Self::Unix(_) => panic!("no TCP address"),
        }
    }
}

impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => stream.read(buffer))
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, stream => stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        either!(self, stream => stream.as_fd())
    }
}

impl From<Client> for OwnedFd {
    fn from(client: Client) -> Self {
        match client {
            Client::Tcp(stream) => stream.into(),
            Client::Unix(stream) => stream.into(),
        }
    }
}

/// Waits until a reset has come to a socket. It is on its way when its sender's call has ended: a kernel with much to do
/// leaves the rest to a thread of its own.
pub(crate) fn wait_reset(socket: BorrowedFd<'_>) {
    let mut awaited = libc::pollfd {
        fd: socket.as_raw_fd(),
        // POLLHUP and POLLERR are always told.
        events: 0,
        revents: 0,
    };
    // SAFETY: one valid structure.
    let ready = unsafe { libc::poll(&raw mut awaited, 1, PATIENCE.as_millis() as i32) };
    assert_eq!(ready, 1, "no reset has come");
}

pub(crate) fn set_option<T>(socket: BorrowedFd<'_>, level: i32, option: i32, value: &T) {
    // SAFETY: the value is `size_of::<T>()` readable bytes for the time of the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// An option whose value is an `int`.
pub(crate) fn option(socket: BorrowedFd<'_>, level: i32, option: i32) -> i32 {
    let mut value = -1_i32;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value and its length are live and writable for the time of the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    value
}

/// Bytes that tell where they belong: a different one at every position of any short distance.
pub(crate) fn pattern(start: usize, length: usize) -> Vec<u8> {
    (start..start + length)
        .map(|position| {
            let mixed = (position as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (mixed >> 56) as u8
        })
        .collect()
}
