//! The least that a loop does for connections that end: it is told, and closes.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

use io_uring::{IoUring, opcode, types};
use rustix::event::epoll;

use super::Ending;

const READY: usize = 64;
/// Of the completion of a close; a receive's has the descriptor alone.
const CLOSED: u64 = 1 << 32;

fn listener() -> Result<(TcpListener, SocketAddr), String> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr().map(|address| (listener, address)))
        .map_err(|error| format!("a listener: {error}"))
}

fn accepted(listener: &TcpListener) -> Result<OwnedFd, String> {
    listener
        .accept()
        .map(|(stream, _)| stream.into())
        .map_err(|error| format!("accept: {error}"))
}

/// On epoll: `epoll_wait(2)`, a receive that says how it ended, and `close(2)`.
pub(super) struct Epoll {
    poll: OwnedFd,
    listener: TcpListener,
    address: SocketAddr,
    connections: HashMap<RawFd, OwnedFd>,
}

impl Epoll {
    pub(super) fn new() -> Result<Self, String> {
        let (listener, address) = listener()?;
        Ok(Self {
            poll: epoll::create(epoll::CreateFlags::CLOEXEC)
                .map_err(|error| format!("epoll_create1: {error}"))?,
            listener,
            address,
            connections: HashMap::new(),
        })
    }
}

impl Ending for Epoll {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self, connections: u32) -> Result<(), String> {
        for _ in 0..connections {
            let connection = accepted(&self.listener)?;
            let number = connection.as_raw_fd();
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let data = epoll::EventData::new_u64(u64::from(number.cast_unsigned()));
            epoll::add(&self.poll, &connection, data, flags)
                .map_err(|error| format!("epoll_ctl: {error}"))?;
            self.connections.insert(number, connection);
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<u32, String> {
        let mut room = [MaybeUninit::uninit(); READY];
        let (events, _) =
            epoll::wait(&self.poll, &mut room, None).map_err(|error| format!("epoll_wait: {error}"))?;
        let mut closed = 0;
        for event in events {
            let number = event.data.u64() as RawFd;
            let connection = self.connections.remove(&number).ok_or("an event of none")?;
            match rustix::net::recv(&connection, &mut [0; 64], rustix::net::RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(rustix::io::Errno::CONNRESET) => closed += 1,
                other => return Err(format!("recv: {other:?}")),
            }
        }
        Ok(closed)
    }
}

/// On io_uring: a receive for each connection, and a close of each that has ended.
pub(super) struct Uring {
    ring: IoUring,
    listener: TcpListener,
    address: SocketAddr,
    /// What no peer sends to.
    buffer: Box<[u8; 64]>,
}

impl Uring {
    pub(super) fn new(connections: u32) -> Result<Self, String> {
        let (listener, address) = listener()?;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(connections.next_power_of_two().max(2 * READY as u32))
            .build(READY as u32)
            .map_err(|error| format!("no ring: {error}"))?;
        Ok(Self {
            ring,
            listener,
            address,
            buffer: Box::new([0; 64]),
        })
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) -> Result<(), String> {
        if self.ring.submission().is_full() {
            self.ring
                .submit()
                .map_err(|error| format!("io_uring_enter: {error}"))?;
        }
        // SAFETY: what the entry points to is in a box, which is freed after the ring.
        unsafe { self.ring.submission().push(entry) }.map_err(|error| error.to_string())
    }
}

impl Ending for Uring {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self, connections: u32) -> Result<(), String> {
        for _ in 0..connections {
            let number = accepted(&self.listener)?.into_raw_fd();
            let buffer = self.buffer.as_mut_ptr();
            let entry = opcode::Recv::new(types::Fd(number), buffer, 64).build();
            self.push(&entry.user_data(u64::from(number.cast_unsigned())))?;
        }
        self.ring
            .submit()
            .map(drop)
            .map_err(|error| format!("io_uring_enter: {error}"))
    }

    fn turn(&mut self) -> Result<u32, String> {
        self.ring
            .submit_and_wait(1)
            .map_err(|error| format!("io_uring_enter: {error}"))?;
        let mut closed = 0;
        for _ in 0..READY {
            let Some(completion) = self.ring.completion().next() else {
                break;
            };
            let (data, result) = (completion.user_data(), completion.result());
            if data & CLOSED != 0 {
                if result != 0 {
                    return Err(format!("closing {}: {result}", data ^ CLOSED));
                }
                closed += 1;
            } else if result == 0 || result == -libc::ECONNRESET {
                let entry = opcode::Close::new(types::Fd(data as RawFd)).build();
                self.push(&entry.user_data(CLOSED | data))?;
            } else {
                return Err(format!("receiving from {data}: {result}"));
            }
        }
        Ok(closed)
    }
}
