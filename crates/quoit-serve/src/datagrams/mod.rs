//! The servers of datagrams: what they share is the sockets, their options, and what they count.

mod arguments;
mod dns;
mod dns_figures;
mod echo;
mod figures;
mod sink;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Mutex;

use quoit::{Address, DatagramOptions, DatagramSocket, DatagramSocketId, Loop, LoopIndex, Steering, Token};

use quoit_host::console::say;

pub(super) use arguments::DatagramArguments;
pub(super) use dns::{Dns, DnsArguments};
pub(super) use dns_figures::DnsFigures;
pub(super) use echo::UdpEcho;
pub(super) use figures::DatagramFigures;
pub(super) use sink::{SinkRun, UdpSink};

/// Sockets that are bound and not yet open: one group per port, and in it one socket per loop.
#[derive(Debug)]
pub(super) struct Sockets {
    /// By loop; empty once the loop has taken them.
    waiting: Mutex<Vec<Vec<DatagramSocket>>>,
    addresses: Vec<Address>,
}

impl Sockets {
    /// Binds a socket for each loop to each of the addresses. What comes from now on waits in them. One that is bound to
    /// a wildcard tells of each datagram the address that it was sent to: answers leave from there.
    ///
    /// # Errors
    /// What failed, on what address, and what to do.
    pub(super) fn bind(
        addresses: &[Address],
        options: &DatagramOptions,
        steering: Steering,
        loops: u16,
    ) -> Result<Self, String> {
        let mut waiting: Vec<Vec<DatagramSocket>> = (0..loops).map(|_| Vec::new()).collect();
        let mut bound = Vec::new();
        for address in addresses {
            if let Address::UnixPath(path) = address {
                remove_stale(path);
            }
            let options = &DatagramOptions {
                receive_local_address: matches!(address, Address::Tcp(address) if address.ip().is_unspecified()),
                ..options.clone()
            };
            // A single socket has its port for itself: a second server gets an error.
            let group = match loops {
                1 => DatagramSocket::bind(address, options).map(|socket| vec![socket]),
                _ => DatagramSocket::bind_group(address, options, loops, steering),
            };
            let group = group.map_err(|error| error.to_string())?;
            bound.extend(group.first().map(|socket| socket.address().clone()));
            for (place, socket) in waiting.iter_mut().zip(group) {
                place.push(socket);
            }
        }
        Ok(Self {
            waiting: Mutex::new(waiting),
            addresses: bound,
        })
    }

    /// The addresses, ports resolved.
    pub(super) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Opens those of a loop on it. One that cannot be opened is said and left closed.
    fn open(&self, event_loop: &mut Loop) -> Vec<DatagramSocketId> {
        let taken = self.of(event_loop.index());
        let open = taken.into_iter().filter_map(|socket| {
            let address = socket.address().clone();
            event_loop
                .open_datagram(socket, Token::NONE)
                .map_err(|error| say(format_args!("quoit serve: {address} is not served: {error}")))
                .ok()
        });
        open.collect()
    }

    fn of(&self, index: LoopIndex) -> Vec<DatagramSocket> {
        let mut waiting = self.waiting.lock().expect("nobody panics while it is locked");
        waiting
            .get_mut(usize::from(index.get()))
            .map(std::mem::take)
            .unwrap_or_default()
    }
}

/// Removes the file of a Unix socket that nobody has any more: a server that was killed leaves it, and the next one could
/// not start. Whatever else is there, binding says that it is in the way.
fn remove_stale(path: &Path) {
    let identity = || {
        let file = fs::symlink_metadata(path).ok()?;
        file.file_type().is_socket().then(|| (file.dev(), file.ino()))
    };
    let Some(found) = identity() else {
        return;
    };
    // One of a stream is of the wrong type, and so it is told from one that nobody has.
    let is_stale = UnixDatagram::unbound()
        .and_then(|probe| probe.connect(path))
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if is_stale && identity() == Some(found) {
        // One that cannot be removed is in the way.
        let _ = fs::remove_file(path);
    }
}
