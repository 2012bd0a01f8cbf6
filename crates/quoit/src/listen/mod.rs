//! Listening sockets: made here, adopted from the caller or inherited from a service manager. No loop is
//! involved; a loop takes the descriptor.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::address::{Address, SocketAddress};
use crate::errno::Errno;
use crate::sys::{Linux, SocketOption, SocketSys};

mod error;
mod inherited;

pub use error::{AdoptReason, ListenError, Step};
pub use inherited::inherited;
#[cfg(any(test, fuzzing))]
pub(crate) use inherited::listen_environment as fuzzing;

/// How to make a listening socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenOptions {
    /// Connections that may wait to be accepted (`listen(2)`). Default 4,096, which is also what the kernel caps
    /// it at by default: `net.core.somaxconn` has the last word. When the queue is full, TCP drops the
    /// connection attempts, which are repeated after a second; Unix clients wait.
    pub backlog: u32,
    /// `SO_REUSEPORT`: several TCP sockets of one user listen on the same address and port, and the kernel
    /// spreads connections among them by hash. Default off, for two reasons: a second server on the port gets no
    /// error, and what is queued on a socket is reset when that socket closes. Ignored for Unix sockets, which
    /// do not have it.
    pub reuse_port: bool,
    /// `IPV6_V6ONLY`: an IPv6 socket takes IPv6 only. Default off: `[::]` takes IPv4 as well, whatever
    /// `net.ipv6.bindv6only` says. Without effect on other addresses.
    pub ipv6_only: bool,
    /// `SO_RCVBUF` in bytes, which accepted connections inherit; the kernel doubles it and caps it at
    /// `net.core.rmem_max`. It is set before listening, as TCP's window scale depends on it (`tcp(7)`). Default
    /// none: the kernel sizes it as needed, up to `net.ipv4.tcp_rmem`, which a fixed size turns off.
    pub receive_buffer: Option<u32>,
    /// `SO_SNDBUF` in bytes, as above, with `net.core.wmem_max` and `net.ipv4.tcp_wmem`. Default none.
    pub send_buffer: Option<u32>,
    /// Whether to remove a Unix socket file that a server has left behind. It is removed only if it is a socket
    /// and connecting to it is refused: nobody listens. A server that listens sees a connection that ends at
    /// once. Two servers that start at the same moment can take each other's file for a stale one, so leave
    /// that to whoever starts them. Default off: an existing file is an error.
    pub unlink_existing: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 4096,
            reuse_port: false,
            ipv6_only: false,
            receive_buffer: None,
            send_buffer: None,
            unlink_existing: false,
        }
    }
}

/// A socket that listens.
///
/// Dropping it closes the descriptor; connections that are queued are reset, unless another process or a
/// duplicate still has the socket. A Unix socket's file that [`bind`] made is removed, unless the path names
/// another file by then.
#[derive(Debug)]
pub struct ListenSocket {
    descriptor: OwnedFd,
    address: Address,
    name: Option<String>,
    file: Option<SocketFile>,
}

impl ListenSocket {
    /// Takes over a socket that listens already, in whatever way it was made.
    ///
    /// # Errors
    /// [`ListenError::Adopt`] where it is no listening stream socket of a supported family; the descriptor is
    /// closed then.
    pub fn adopt(descriptor: OwnedFd) -> Result<Self, ListenError> {
        let system = &Linux;
        let refuse = |reason| ListenError::Adopt {
            descriptor: descriptor.as_raw_fd(),
            reason,
        };
        let listening = system.is_listening(descriptor.as_fd());
        if !listening.map_err(|errno| refuse(errno.into()))? {
            return Err(refuse(AdoptReason::NotListening));
        }
        let address = system
            .local_address(descriptor.as_fd())
            .map_err(|errno| refuse(errno.into()))?;
        let address = Address::try_from(&address).map_err(|error| refuse(error.into()))?;
        Ok(Self {
            descriptor,
            address,
            name: None,
            file: None,
        })
    }

    /// Where it listens, as the kernel says: a port 0 that was asked for has become the chosen one.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// The name that the service manager gave it (`FileDescriptorName=` in `systemd.socket(5)`), if it was
    /// inherited with one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The same socket once more, for another loop to accept from. The file of a Unix socket stays with the
    /// first: keep that one as long as there are others.
    ///
    /// # Errors
    /// [`ListenError::System`], for want of descriptors.
    pub fn try_clone(&self) -> Result<Self, ListenError> {
        let descriptor = self.descriptor.try_clone().map_err(|error| ListenError::System {
            address: self.address.clone(),
            step: Step::Duplicate,
            errno: Errno::from_io(&error),
        })?;
        Ok(Self {
            descriptor,
            address: self.address.clone(),
            name: self.name.clone(),
            file: None,
        })
    }

    /// The descriptor, and the file to be removed when nobody listens any more, if there is one.
    #[must_use]
    pub fn into_parts(self) -> (OwnedFd, Option<SocketFile>) {
        (self.descriptor, self.file)
    }
}

impl AsFd for ListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The file of a Unix socket, removed on drop unless the path names another file by then.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

/// What makes a file the same: its device and inode number.
type Identity = (u64, u64);

fn identity(metadata: &fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

impl SocketFile {
    /// The file that was just bound at `path`.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self {
            identity: identity(&fs::symlink_metadata(path)?),
            // The working directory may have changed when this is dropped.
            path: std::path::absolute(path)?,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_own = fs::symlink_metadata(&self.path).is_ok_and(|file| identity(&file) == self.identity);
        if is_own {
            // A file that cannot be removed is found stale by the next server.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes a socket that listens on `address`. TCP sockets have `SO_REUSEADDR`, so that connections of an earlier
/// server that linger in TIME_WAIT are no obstacle.
///
/// # Errors
/// [`ListenError`], which says what failed and what to do.
pub fn bind(address: &Address, options: &ListenOptions) -> Result<ListenSocket, ListenError> {
    bind_on(&Linux, address, options)
}

/// As [`bind`], by the calls of `system`.
#[doc(hidden)]
pub fn bind_on(
    system: &impl SocketSys,
    address: &Address,
    options: &ListenOptions,
) -> Result<ListenSocket, ListenError> {
    if matches!(address, Address::UnixUnnamed) {
        return Err(ListenError::Unnamed);
    }
    let raw = SocketAddress::try_from(address).map_err(|error| ListenError::Address {
        address: address.clone(),
        error,
    })?;
    let failed = |step| {
        move |errno| ListenError::System {
            address: address.clone(),
            step,
            errno,
        }
    };

    if let Address::UnixPath(path) = address
        && options.unlink_existing
    {
        remove_stale(system, path, &raw, address)?;
    }
    let descriptor = system.stream_socket(&raw).map_err(failed(Step::Socket))?;
    for option in socket_options(address, options) {
        system
            .set_option(descriptor.as_fd(), option)
            .map_err(failed(Step::Option(option)))?;
    }
    system
        .bind(descriptor.as_fd(), &raw)
        .map_err(failed(Step::Bind))?;
    let file = match address {
        Address::UnixPath(path) => {
            let file = SocketFile::of(path);
            Some(file.map_err(|error| failed(Step::File)(Errno::from_io(&error)))?)
        }
        _ => None,
    };
    system
        .listen(descriptor.as_fd(), options.backlog)
        .map_err(failed(Step::Listen))?;
    let bound = match address {
        Address::Tcp(_) => {
            let raw = system
                .local_address(descriptor.as_fd())
                .map_err(failed(Step::Name))?;
            Address::try_from(&raw).map_err(|error| ListenError::Address {
                address: address.clone(),
                error,
            })?
        }
        _ => address.clone(),
    };
    Ok(ListenSocket {
        descriptor,
        address: bound,
        name: None,
        file,
    })
}

fn socket_options(address: &Address, options: &ListenOptions) -> impl Iterator<Item = SocketOption> {
    let tcp = matches!(address, Address::Tcp(_));
    let v6 = matches!(address, Address::Tcp(address) if address.is_ipv6());
    [
        tcp.then_some(SocketOption::ReuseAddress(true)),
        (tcp && options.reuse_port).then_some(SocketOption::ReusePort(true)),
        v6.then_some(SocketOption::Ipv6Only(options.ipv6_only)),
        options.receive_buffer.map(SocketOption::ReceiveBuffer),
        options.send_buffer.map(SocketOption::SendBuffer),
    ]
    .into_iter()
    .flatten()
}

/// Removes a socket file on which nobody listens.
fn remove_stale(
    system: &impl SocketSys,
    path: &Path,
    raw: &SocketAddress,
    address: &Address,
) -> Result<(), ListenError> {
    let failed = |step, errno| ListenError::System {
        address: address.clone(),
        step,
        errno,
    };
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(Step::File, Errno::from_io(&error))),
    };
    if !found.file_type().is_socket() {
        return Err(ListenError::NotASocket { path: path.into() });
    }
    let probe = system
        .stream_socket(raw)
        .map_err(|errno| failed(Step::Socket, errno))?;
    match system.connect_now(probe.as_fd(), raw) {
        Err(Errno::ECONNREFUSED) => {}
        Err(Errno::ENOENT) => return Ok(()),
        // Connected, or would be but for a full queue: somebody listens. A datagram socket is in use as well.
        _ => return Err(failed(Step::Bind, Errno::new(libc::EADDRINUSE))),
    }
    let unchanged = fs::symlink_metadata(path).is_ok_and(|now| identity(&now) == identity(&found));
    if !unchanged {
        return Err(failed(Step::Bind, Errno::new(libc::EADDRINUSE)));
    }
    fs::remove_file(path).map_err(|error| failed(Step::File, Errno::from_io(&error)))
}

#[cfg(test)]
mod tests;
