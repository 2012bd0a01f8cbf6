//! The calls on sockets, and the clock.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use quoit::address::SocketAddress;
use quoit::internals::sys::{DatagramFamily, DatagramOption, SocketOption, SocketSys, Time};
use quoit::{Address, Errno, Unreachable};

use super::{call, errno, object, owned, transfer};
use crate::faults::Fault;
use crate::kernel::{Kernel, Kind, ObjectId, Step, do_jobs, with};
use crate::memory;
use crate::pattern;

/// The calling thread's simulated kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimSockets;

fn read_address(address: &SocketAddress) -> Result<Address, Errno> {
    Address::try_from(address).map_err(|_| Errno::EINVAL)
}

fn written(address: &Address) -> Result<SocketAddress, Errno> {
    SocketAddress::try_from(address).map_err(|_| Errno::EINVAL)
}

/// `sendmmsg(2)`: how many were sent, or why not the first.
fn send_messages(
    kernel: &mut Kernel,
    object: ObjectId,
    messages: &mut [libc::mmsghdr],
) -> Result<usize, i32> {
    let mut count = 0;
    for message in messages {
        // A signal ends it behind some.
        if count > 0 && kernel.strikes(Fault::ShortSend) {
            break;
        }
        let header = (&raw mut message.msg_hdr).expose_provenance();
        match kernel.send_message(object, header, &mut false) {
            Ok(length) => message.msg_len = length as u32,
            Err(error) if count == 0 => return Err(error),
            // Forgotten, as in Linux.
            Err(_) => break,
        }
        count += 1;
    }
    Ok(count)
}

impl SocketSys for SimSockets {
    fn now(&self) -> Time {
        Time::from_nanos(with(|kernel| kernel.now()))
    }

    /// As if it never slept.
    fn processor_time(&self) -> Duration {
        Duration::from_nanos(with(|kernel| kernel.now()))
    }

    fn sleep(&self, time: Duration) {
        do_jobs();
        let end = with(|kernel| {
            kernel.pass();
            kernel.now() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2)
        });
        loop {
            match with(|kernel| kernel.step(Some(end))) {
                Step::Moved => {}
                Step::Job(job) => job(),
                Step::TimedOut | Step::Never => return,
            }
        }
    }

    fn stream_socket(&self, address: &SocketAddress) -> Result<OwnedFd, Errno> {
        let unix = read_address(address)?.is_unix();
        with(|kernel| kernel.socket(unix)).map(owned).map_err(errno)
    }

    fn datagram_socket(&self, address: &SocketAddress) -> Result<OwnedFd, Errno> {
        let family = match address.family() {
            libc::AF_INET => DatagramFamily::V4,
            libc::AF_INET6 => DatagramFamily::V6,
            libc::AF_UNIX => DatagramFamily::Unix,
            _ => return Err(Errno::new(libc::EAFNOSUPPORT)),
        };
        with(|kernel| kernel.datagram_socket(family))
            .map(owned)
            .map_err(errno)
    }

    fn datagram_family(&self, socket: BorrowedFd<'_>) -> Result<DatagramFamily, Errno> {
        call(socket, "getsockopt", |kernel, object| {
            match &kernel.object(object).kind {
                Kind::Datagram(socket) => Ok(socket.family),
                Kind::Stream(_) | Kind::Fresh { .. } | Kind::Listener(_) => Err(libc::EPROTOTYPE),
                _ => Err(libc::ENOTSOCK),
            }
        })
    }

    fn set_datagram_option(&self, socket: BorrowedFd<'_>, option: DatagramOption) -> Result<(), Errno> {
        call(socket, "setsockopt", |kernel, object| {
            kernel.set_datagram_option(object, option)
        })
    }

    fn datagram_drops(&self, socket: BorrowedFd<'_>) -> Result<u32, Errno> {
        call(socket, "getsockopt", |kernel, object| {
            kernel.datagram_drops(object)
        })
    }

    fn datagram_error(&self, socket: BorrowedFd<'_>) -> Result<Option<Unreachable>, Errno> {
        let (receiver, error) = call(socket, "recvmsg", Kernel::take_queued_error)?;
        Ok(Some(Unreachable::new(receiver, errno(error))))
    }

    fn bind(&self, socket: BorrowedFd<'_>, address: &SocketAddress) -> Result<(), Errno> {
        let address = read_address(address)?;
        call(socket, "bind", |kernel, object| kernel.bind(object, &address))
    }

    fn listen(&self, socket: BorrowedFd<'_>, backlog: u32) -> Result<(), Errno> {
        call(socket, "listen", |kernel, object| kernel.listen(object, backlog))
    }

    fn connect_now(&self, socket: BorrowedFd<'_>, address: &SocketAddress) -> Result<(), Errno> {
        let address = read_address(address)?;
        call(socket, "connect", |kernel, object| {
            kernel.connect(object, &address)
        })
    }

    fn accept_now(&self, socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        call(socket, "accept", |kernel, object| {
            if kernel.mask(object) == 0 {
                return Err(libc::EAGAIN);
            }
            kernel.accept_now(object, false)
        })
        .map(owned)
    }

    fn send_now(&self, socket: RawFd, header: &libc::msghdr) -> Result<usize, Errno> {
        let pieces = memory::pieces(std::ptr::from_ref(header).expose_provenance());
        let length = pieces.iter().map(|&(_, length)| length).sum();
        let bytes = pieces
            .iter()
            .map(|&(address, length)| memory::read(address, length));
        transfer(socket, "sendmsg", |kernel, object| {
            kernel.send_at_once(object, bytes, length)
        })
    }

    fn send_now_from_any_thread(&self) -> fn(RawFd, &libc::msghdr) -> Result<usize, Errno> {
        |socket, header| {
            with(|kernel| kernel.counts.incidents.direct_sends += 1);
            Self.send_now(socket, header)
        }
    }

    fn send_messages_now(&self, socket: RawFd, messages: &mut [libc::mmsghdr]) -> Result<usize, Errno> {
        transfer(socket, "sendmmsg", |kernel, object| {
            send_messages(kernel, object, messages)
        })
    }

    fn local_address(&self, socket: BorrowedFd<'_>) -> Result<SocketAddress, Errno> {
        let address = call(socket, "getsockname", |kernel, object| {
            match &kernel.object(object).kind {
                Kind::Fresh {
                    bound: Some(address), ..
                } => Ok(address.clone()),
                Kind::Listener(listener) => Ok(listener.address.clone()),
                Kind::Stream(stream) => Ok(stream.local.clone()),
                Kind::Datagram(socket) => Ok(socket.local.clone().unwrap_or(Address::UnixUnnamed)),
                _ => Err(libc::ENOTSOCK),
            }
        })?;
        written(&address)
    }

    fn connected_peer(&self, socket: BorrowedFd<'_>) -> Result<SocketAddress, Errno> {
        let address = call(socket, "getpeername", |kernel, object| {
            match &kernel.object(object).kind {
                Kind::Stream(stream) if stream.dead && !stream.unix => Err(libc::ENOTCONN),
                Kind::Stream(stream) => Ok(stream.remote.clone()),
                Kind::Datagram(socket) => socket.peer.clone().ok_or(libc::ENOTCONN),
                _ => Err(libc::ENOTCONN),
            }
        })?;
        written(&address)
    }

    fn former_peer(&self, socket: BorrowedFd<'_>) -> Result<SocketAddress, Errno> {
        let address = call(socket, "getsockopt", |kernel, object| {
            match &kernel.object(object).kind {
                Kind::Stream(stream) => Ok(stream.remote.clone()),
                _ => Err(libc::ENOTCONN),
            }
        })?;
        written(&address)
    }

    fn set_option(&self, socket: BorrowedFd<'_>, option: SocketOption) -> Result<(), Errno> {
        call(socket, "setsockopt", |kernel, object| {
            let unix = match &kernel.object(object).kind {
                Kind::Datagram(_) => {
                    kernel.set_option_of_datagrams(object, option);
                    return Ok(());
                }
                Kind::Fresh { unix, .. } => *unix,
                Kind::Listener(listener) => listener.address.is_unix(),
                Kind::Stream(stream) => stream.unix,
                _ => return Err(libc::ENOTSOCK),
            };
            match option {
                SocketOption::NoDelay(_) | SocketOption::Keepalive { .. } if unix => Err(libc::EOPNOTSUPP),
                _ => Ok(()),
            }
        })
    }

    fn set_nonblocking(&self, socket: BorrowedFd<'_>, nonblocking: bool) -> Result<(), Errno> {
        call(socket, "fcntl", |kernel, object| {
            kernel.object(object).nonblocking = nonblocking;
            Ok(())
        })
    }

    fn is_listening(&self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        call(socket, "getsockopt", |kernel, object| {
            match &kernel.object(object).kind {
                Kind::Listener(_) => Ok(true),
                Kind::Stream(_) | Kind::Fresh { .. } => Ok(false),
                Kind::Datagram(_) => Err(libc::EPROTOTYPE),
                _ => Err(libc::ENOTSOCK),
            }
        })
    }

    fn shutdown_send(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        call(socket, "shutdown", |kernel, object| {
            kernel.note(|| format!("shutdown of object {object}"));
            kernel.shutdown_send(object)
        })
    }

    fn reset(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        call(socket, "reset", |kernel, object| {
            kernel.reset(object);
            Ok(())
        })
    }

    fn poll_now(&self, polled: &mut [libc::pollfd]) -> Result<usize, Errno> {
        let mut found = 0;
        for one in polled {
            let mask = call(one.fd, "poll", |kernel, object| Ok(kernel.mask(object)))?;
            let always = (libc::POLLERR | libc::POLLHUP) as u32;
            one.revents = (mask & (one.events as u32 | always)) as libc::c_short;
            found += usize::from(one.revents != 0);
        }
        Ok(found)
    }

    fn unread(&self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        call(socket, "ioctl", |kernel, object| {
            match &kernel.object(object).kind {
                Kind::Stream(stream) => Ok(stream.available()),
                _ => Err(libc::EINVAL),
            }
        })
    }

    fn take_error(&self, socket: RawFd) -> Option<Errno> {
        match call(socket, "getsockopt", |kernel, object| {
            Ok(kernel.pending_error(object))
        }) {
            Ok(pending) => pending.map(errno),
            Err(error) => Some(error),
        }
    }

    fn taken_by_peer(&self, socket: BorrowedFd<'_>) -> u64 {
        let taken = call(socket, "getsockopt", |kernel, object| {
            Ok(kernel.taken_by_other(object))
        });
        taken.unwrap_or(0)
    }

    fn duplicate(&self, socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        call(socket, "dup", |kernel, object| kernel.duplicate(object)).map(owned)
    }

    fn send_file(&self, socket: RawFd, file: RawFd, offset: u64, length: u64) -> Result<usize, Errno> {
        call(socket, "sendfile", |kernel, socket| {
            let file = object(kernel, file, "sendfile")?;
            let (stream, size) = match &kernel.object(file).kind {
                Kind::File { stream, length } => (*stream, *length),
                _ => return Err(libc::EINVAL),
            };
            let length = length
                .min(size.saturating_sub(offset))
                .min(pattern::LONGEST as u64) as usize;
            if length == 0 {
                return Ok(0);
            }
            let bytes = pattern::bytes(stream, offset, length);
            kernel.send_at_once(socket, std::iter::once(bytes), length)
        })
    }
}
