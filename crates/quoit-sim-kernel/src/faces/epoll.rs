//! The calls of epoll.

use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use quoit::Errno;
use quoit::address::SocketAddress;
use quoit::internals::engine::epoll::sys::{EpollSys, ReadyEvent};

use super::{call, owned, transfer};
use crate::faults::Fault;
use crate::kernel::{Kind, Step, do_jobs, with};
use crate::memory;

/// One simulated epoll instance.
#[derive(Debug)]
pub struct SimEpoll {
    poll: usize,
}

impl EpollSys for SimEpoll {
    fn create() -> Result<Self, Errno> {
        Ok(with(|kernel| Self {
            poll: kernel.add_poll(),
        }))
    }

    /// The simulated kernel knows its instances by number.
    fn descriptor(&self) -> RawFd {
        self.poll as RawFd
    }

    fn add(&mut self, descriptor: RawFd, events: u32, value: u64) -> Result<(), Errno> {
        call(descriptor, "epoll_ctl", |kernel, object| {
            kernel.poll_add(self.poll, object, events, value)
        })
    }

    fn modify(&mut self, descriptor: RawFd, events: u32, value: u64) -> Result<(), Errno> {
        call(descriptor, "epoll_ctl", |kernel, object| {
            kernel.poll_modify(self.poll, object, events, value)
        })
    }

    fn remove(&mut self, descriptor: RawFd) -> Result<(), Errno> {
        call(descriptor, "epoll_ctl", |kernel, object| {
            kernel.poll_remove(self.poll, object)
        })
    }

    fn wait(&mut self, events: &mut [ReadyEvent], timeout: Option<Duration>) -> Result<usize, Errno> {
        do_jobs();
        let end = with(|kernel| {
            kernel.pass();
            kernel.waits += u64::from(timeout != Some(Duration::ZERO));
            let nanoseconds = |timeout: Duration| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            timeout.map(|timeout| kernel.now().saturating_add(nanoseconds(timeout)))
        });
        loop {
            let step = with(|kernel| {
                if kernel.strikes(Fault::Interrupted) {
                    return Err(Errno::EINTR);
                }
                let mut count = 0;
                let room = events.len();
                kernel.poll_events(self.poll, room, |mask, value| {
                    events[count] = ReadyEvent {
                        events: mask,
                        u64: value,
                    };
                    count += 1;
                });
                if count > 0 {
                    return Ok(Err(count));
                }
                if kernel.has_events(self.poll) && end.is_none_or(|end| kernel.now() < end) {
                    // They were put off.
                    kernel.pass();
                    return Ok(Ok(Step::Moved));
                }
                Ok(Ok(kernel.step(end)))
            })?;
            match step {
                Err(count) => return Ok(count),
                Ok(Step::Moved) => {}
                Ok(Step::Job(job)) => job(),
                Ok(Step::TimedOut) => return Ok(0),
                Ok(Step::Never) => return Err(Errno::EINTR),
            }
        }
    }

    fn accept(&mut self, listener: RawFd) -> Result<OwnedFd, Errno> {
        transfer(listener, "accept", |kernel, object| {
            kernel.accept_now(object, true)
        })
        .map(owned)
    }

    fn connect(&mut self, socket: RawFd, address: &SocketAddress) -> Result<(), Errno> {
        let address = quoit::Address::try_from(address).map_err(|_| Errno::EINVAL)?;
        call(socket, "connect", |kernel, object| {
            kernel.connect(object, &address)
        })
    }

    fn protocol(&mut self, socket: RawFd) -> Result<i32, Errno> {
        call(socket, "getsockopt", |kernel, object| {
            match &kernel.object(object).kind {
                Kind::Stream(stream) if stream.unix => Ok(0),
                Kind::Stream(_) => Ok(libc::IPPROTO_TCP),
                _ => Err(libc::ENOTSOCK),
            }
        })
    }

    fn receive(&mut self, socket: RawFd, address: *mut u8, length: usize) -> Result<usize, Errno> {
        let mut at = address.expose_provenance();
        transfer(socket, "recv", |kernel, object| {
            kernel.receive(object, length, |bytes| {
                memory::write(at, bytes);
                at += bytes.len();
            })
        })
    }

    fn send(&mut self, socket: RawFd, address: *const u8, length: usize) -> Result<usize, Errno> {
        let bytes = memory::read(address.expose_provenance(), length);
        transfer(socket, "send", |kernel, object| {
            kernel.send_at_once(object, std::iter::once(bytes), length)
        })
    }

    fn send_message(&mut self, socket: RawFd, header: *const libc::msghdr) -> Result<usize, Errno> {
        let pieces = memory::pieces(header.expose_provenance());
        let length = pieces.iter().map(|&(_, length)| length).sum();
        transfer(socket, "sendmsg", |kernel, object| {
            let pieces = pieces
                .iter()
                .map(|&(address, length)| memory::read(address, length));
            kernel.send_at_once(object, pieces, length)
        })
    }

    fn receive_messages(&mut self, socket: RawFd, messages: &mut [libc::mmsghdr]) -> Result<usize, Errno> {
        transfer(socket, "recvmmsg", |kernel, object| {
            if kernel.fails_to_receive(object) {
                return Err(libc::ENOMEM);
            }
            let mut count = 0;
            for message in messages {
                let header = (&raw mut message.msg_hdr).expose_provenance();
                if count > 0 {
                    kernel.receive_error_meanwhile(object);
                }
                match kernel.receive_message(object, header) {
                    Ok(length) => message.msg_len = length as u32,
                    Err(error) if count == 0 => return Err(error),
                    Err(libc::EAGAIN) => break,
                    // Kept for the next call (`do_recvmmsg`).
                    Err(error) => {
                        kernel.keep_datagram_error(object, error);
                        break;
                    }
                }
                count += 1;
            }
            Ok(count)
        })
    }
}

impl Drop for SimEpoll {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            with(|kernel| kernel.polls[self.poll] = None);
        }
    }
}
