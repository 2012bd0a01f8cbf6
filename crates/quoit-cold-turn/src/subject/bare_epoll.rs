//! The least that a loop on epoll does for this work: `epoll_wait(2)`, and a receive and a send for what is ready.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use super::{REQUEST, RESPONSE, Turns, Work};

static ANSWER: [u8; RESPONSE] = [9; RESPONSE];
const READY: usize = 64;

pub(super) struct Served {
    poll: OwnedFd,
    listener: Option<TcpListener>,
    address: SocketAddr,
    work: Work,
    events: Box<[libc::epoll_event; READY]>,
    buffer: Box<[u8; 4096]>,
    messages: Box<Messages>,
}

/// Room for datagrams, in a box: the messages point into it.
struct Messages {
    buffers: [[u8; REQUEST]; READY],
    names: [libc::sockaddr_in; READY],
    parts: [libc::iovec; READY],
    headers: [libc::mmsghdr; READY],
}

impl Messages {
    fn new() -> Box<Self> {
        // SAFETY: zeroes are valid for bytes and for these structures of the C library.
        let mut messages: Box<Self> = Box::new(unsafe { std::mem::zeroed() });
        for index in 0..READY {
            messages.parts[index] = libc::iovec {
                iov_base: messages.buffers[index].as_mut_ptr().cast(),
                iov_len: REQUEST,
            };
            let part = &raw mut messages.parts[index];
            let name = &raw mut messages.names[index];
            let header = &mut messages.headers[index].msg_hdr;
            header.msg_iov = part;
            header.msg_iovlen = 1;
            header.msg_name = name.cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        }
        messages
    }
}

fn failed(what: &str) -> String {
    format!("{what}: {}", io::Error::last_os_error())
}

impl Served {
    pub(super) fn new(work: Work) -> Result<Self, String> {
        // SAFETY: no pointers; the descriptor that it returns is new.
        let poll = unsafe {
            let poll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if poll < 0 {
                return Err(failed("epoll_create1"));
            }
            OwnedFd::from_raw_fd(poll)
        };
        let text = |error: io::Error| error.to_string();
        let mut served = Self {
            poll,
            listener: None,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            work,
            events: Box::new([libc::epoll_event { events: 0, u64: 0 }; READY]),
            buffer: Box::new([0; 4096]),
            messages: Messages::new(),
        };
        if work == Work::Datagram {
            let socket = UdpSocket::bind("127.0.0.1:0").map_err(text)?;
            served.address = socket.local_addr().map_err(text)?;
            socket.set_nonblocking(true).map_err(text)?;
            served.watch(socket.into_raw_fd())?;
        } else {
            let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
            served.address = listener.local_addr().map_err(text)?;
            served.listener = Some(listener);
        }
        Ok(served)
    }

    /// The descriptor is never closed: it is there until the process ends.
    fn watch(&self, socket: RawFd) -> Result<(), String> {
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET).cast_unsigned(),
            u64: socket as u64,
        };
        // SAFETY: both descriptors are open, and the event is valid for the call.
        if unsafe { libc::epoll_ctl(self.poll.as_raw_fd(), libc::EPOLL_CTL_ADD, socket, &raw mut event) } < 0
        {
            return Err(failed("epoll_ctl"));
        }
        Ok(())
    }

    /// A request of a stream, and its response.
    fn serve(&mut self, socket: RawFd) -> Result<(), String> {
        let buffer = &mut self.buffer;
        // SAFETY: the buffer is valid for the call.
        let received = unsafe { libc::recv(socket, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if received != REQUEST.cast_signed() {
            return Err(failed("recv"));
        }
        let answer = match self.work {
            Work::Echo | Work::Datagram => &buffer[..REQUEST],
            Work::Response => &ANSWER,
        };
        // SAFETY: the answer is valid for the call.
        let sent = unsafe { libc::send(socket, answer.as_ptr().cast(), answer.len(), libc::MSG_NOSIGNAL) };
        if sent != answer.len().cast_signed() {
            return Err(failed("send"));
        }
        Ok(())
    }

    /// All datagrams that are there, each sent back.
    fn serve_datagrams(&mut self, socket: RawFd) -> Result<usize, String> {
        let messages = &mut self.messages.headers;
        // SAFETY: every message points to memory that is valid for the call.
        let count = unsafe {
            libc::recvmmsg(
                socket,
                messages.as_mut_ptr(),
                READY as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if count < 0 {
            return Err(failed("recvmmsg"));
        }
        // SAFETY: as above; each message has the name it came from.
        let sent = unsafe { libc::sendmmsg(socket, messages.as_mut_ptr(), count.cast_unsigned(), 0) };
        if sent != count {
            return Err(failed("sendmmsg"));
        }
        Ok(count.cast_unsigned() as usize)
    }
}

impl Turns for Served {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> Result<(), String> {
        let Some(stream) = super::accept(self.listener.as_ref())? else {
            return Ok(());
        };
        stream.set_nonblocking(true).map_err(|error| error.to_string())?;
        self.watch(stream.into_raw_fd())
    }

    fn turn(&mut self) -> Result<usize, String> {
        let room = self.events.as_mut_ptr();
        // SAFETY: the events are valid for the call.
        let ready = unsafe { libc::epoll_wait(self.poll.as_raw_fd(), room, READY as i32, -1) };
        if ready < 0 {
            return Err(failed("epoll_wait"));
        }
        let ready = ready.cast_unsigned() as usize;
        let mut taken = 0;
        for index in 0..ready {
            let socket = self.events[index].u64 as RawFd;
            if self.work == Work::Datagram {
                taken += self.serve_datagrams(socket)?;
            } else {
                self.serve(socket)?;
                taken += 1;
            }
        }
        Ok(taken)
    }
}
