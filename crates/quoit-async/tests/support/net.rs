//! Sockets by the names that both have, with what makes them alike where only their types differ.

/// What scenarios begin with.
macro_rules! beginnings {
    () => {
        /// A listener on a port of its own.
        pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            (listener, address)
        }

        /// Two ends of one connection: who connected, and who accepted.
        pub(crate) async fn pair() -> (TcpStream, TcpStream) {
            let (listener, address) = listen().await;
            let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
            (one.unwrap(), other.unwrap().0)
        }

        /// A stream that connected to one of the standard library.
        pub(crate) async fn to_std() -> (TcpStream, std::net::TcpStream) {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let stream = TcpStream::connect(address).await.unwrap();
            (stream, listener.accept().unwrap().0)
        }

        /// A stream that was accepted from one of the standard library.
        pub(crate) async fn from_std() -> (TcpStream, std::net::TcpStream) {
            let (listener, address) = listen().await;
            let peer = std::net::TcpStream::connect(address).unwrap();
            (listener.accept().await.unwrap().0, peer)
        }

        /// A socket on a port of its own.
        pub(crate) async fn udp() -> (UdpSocket, SocketAddr) {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let address = socket.local_addr().unwrap();
            (socket, address)
        }
    };
}

/// Bytes that the kernel holds for a socket.
pub(crate) fn unread(socket: &impl std::os::fd::AsRawFd) -> std::io::Result<usize> {
    count(socket, libc::FIONREAD)
}

/// Bytes of a socket that its peer has not acknowledged.
pub(crate) fn unacknowledged(socket: &impl std::os::fd::AsRawFd) -> std::io::Result<usize> {
    count(socket, libc::TIOCOUTQ)
}

fn count(socket: &impl std::os::fd::AsRawFd, what: libc::Ioctl) -> std::io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both requests write an int, for which there is room.
    match unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut bytes) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(bytes as usize),
    }
}

pub(crate) mod stock {
    use std::net::SocketAddr;
    use std::path::PathBuf;

    pub(crate) use tokio::net::unix::SocketAddr as UnixAddress;
    pub(crate) use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket, UnixListener, UnixStream};

    beginnings!();

    /// Waits until a stream whose peer has sent so many bytes holds as many as it may. Here the kernel does.
    pub(crate) async fn is_full(_: &TcpStream, _: usize) {}

    /// The path of a Unix address, if it has one.
    pub(crate) fn path(address: &UnixAddress) -> Option<PathBuf> {
        address.as_pathname().map(Into::into)
    }

    /// The abstract name of a Unix address, if it has one.
    pub(crate) fn name(address: &UnixAddress) -> Option<Vec<u8>> {
        address.as_abstract_name().map(Into::into)
    }

    /// Process, user and group of the peer.
    pub(crate) fn credentials(stream: &UnixStream) -> (Option<i32>, u32, u32) {
        let credentials = stream.peer_cred().unwrap();
        (credentials.pid(), credentials.uid(), credentials.gid())
    }
}

pub(crate) mod ours {
    use std::net::SocketAddr;
    use std::path::PathBuf;

    pub(crate) use quoit_async::Address as UnixAddress;
    pub(crate) use quoit_async::{TcpListener, TcpSocket, TcpStream, UdpSocket, UnixListener, UnixStream};

    beginnings!();

    /// Waits until the loop has taken what a stream may hold, and left the rest to the kernel.
    pub(crate) async fn is_full(stream: &TcpStream, sent: usize) {
        let left = || stream.with_socket(|socket| super::unread(&*socket)).unwrap();
        let (mut before, mut quiet) = (sent, 0);
        while before == sent || quiet < 20 {
            tokio::task::yield_now().await;
            let now = left();
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
        }
        assert!(before > 0, "the loop holds all of {sent} bytes");
    }

    pub(crate) fn path(address: &UnixAddress) -> Option<PathBuf> {
        match address {
            UnixAddress::UnixPath(path) => Some(path.clone()),
            _ => None,
        }
    }

    pub(crate) fn name(address: &UnixAddress) -> Option<Vec<u8>> {
        match address {
            UnixAddress::UnixAbstract(name) => Some(name.to_vec()),
            _ => None,
        }
    }

    pub(crate) fn credentials(stream: &UnixStream) -> (Option<i32>, u32, u32) {
        let credentials = stream.peer_cred().unwrap();
        let process = credentials.process.map(|process| process.try_into().unwrap());
        (process, credentials.user, credentials.group)
    }
}
