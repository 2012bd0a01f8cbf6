//! The classic sinks: `recvfrom`, a call per datagram; `recvmmsg`, many per call; `epoll`, readiness first, as a server has
//! it that does other things besides.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::ExitCode;

use lab_sinks::{Arguments, Messages, Receive, TICK, is_nothing};
use quoit_workload::{Sink, Taken};

/// Datagrams that one recvmmsg(2) takes at most; with GRO fewer, for each may hold 64.
const BATCH: usize = 64;
const GRO_BATCH: usize = 16;

fn main() -> ExitCode {
    lab_sinks::main("sink-classic", &["recvfrom", "recvmmsg", "epoll"], Classic::new)
}

struct Classic {
    socket: UdpSocket,
    how: How,
    messages: Messages,
}

enum How {
    /// A call each; with GRO recvmsg(2), which tells the segment size.
    Single {
        gro: bool,
    },
    Many,
    /// With the epoll descriptor.
    Ready(OwnedFd),
}

impl Classic {
    fn new(arguments: &Arguments, socket: UdpSocket) -> io::Result<Self> {
        let batch = if arguments.gro { GRO_BATCH } else { BATCH };
        let (how, count) = match arguments.kind.as_str() {
            "recvfrom" => (How::Single { gro: arguments.gro }, 1),
            "recvmmsg" => (How::Many, batch),
            _ => (How::Ready(watch(&socket)?), batch),
        };
        Ok(Self {
            socket,
            how,
            messages: Messages::new(count, arguments.room()),
        })
    }

    /// One recvfrom(2).
    fn receive_one(&mut self, sink: &mut Sink) -> io::Result<Taken> {
        let part = self.messages.headers()[0].msg_hdr.msg_iov;
        // SAFETY: the part points to a buffer of its length. No address is asked for: nobody is answered. MSG_TRUNC lets
        // the call answer the datagram's whole length.
        let length = unsafe {
            let (base, room) = ((*part).iov_base, (*part).iov_len);
            libc::recvfrom(
                self.socket.as_raw_fd(),
                base,
                room,
                libc::MSG_TRUNC,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        let length = check(length)?;
        self.note(sink, 1)?;
        let (message, ..) = self.messages.message(0, length);
        Ok(sink.take(message, message.len() == length))
    }

    /// One recvmsg(2), for the segment size.
    fn receive_message(&mut self, sink: &mut Sink) -> io::Result<Taken> {
        self.messages.reset(0);
        let header = &mut self.messages.headers()[0].msg_hdr;
        // SAFETY: the header points to memory that lives as long as `messages`.
        let length = check(unsafe { libc::recvmsg(self.socket.as_raw_fd(), header, 0) })?;
        self.note(sink, 1)?;
        let (message, segment, whole) = self.messages.message(0, length);
        Ok(sink.take_message(message, segment, whole))
    }

    /// One recvmmsg(2).
    fn receive_many(&mut self, sink: &mut Sink, flags: libc::c_int) -> io::Result<Taken> {
        let count = self.messages.headers().len();
        for index in 0..count {
            self.messages.reset(index);
        }
        let headers = self.messages.headers();
        // SAFETY: `count` headers point to memory that lives as long as `messages`.
        let received = check(unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count as libc::c_uint,
                flags,
                std::ptr::null_mut(),
            ) as isize
        })?;
        self.note(sink, received as u32)?;
        for index in 0..received {
            let length = self.messages.headers()[index].msg_len as usize;
            let (message, segment, whole) = self.messages.message(index, length);
            if sink.take_message(message, segment, whole) == Taken::Last {
                return Ok(Taken::Last);
            }
        }
        Ok(Taken::Counted)
    }

    fn note(&self, sink: &mut Sink, messages: u32) -> io::Result<()> {
        use std::os::fd::AsFd;
        if sink.received(messages) {
            sink.look(self.socket.as_fd())?;
        }
        Ok(())
    }

    /// Waits for readiness, then receives until nothing is there.
    fn receive_ready(&mut self, epoll: libc::c_int, sink: &mut Sink) -> io::Result<Taken> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for the one event that is asked for.
        check(unsafe { libc::epoll_wait(epoll, &mut event, 1, TICK.as_millis() as libc::c_int) } as isize)?;
        loop {
            // Ends with an error: that nothing is there.
            if self.receive_many(sink, libc::MSG_DONTWAIT)? == Taken::Last {
                return Ok(Taken::Last);
            }
        }
    }
}

impl Receive for Classic {
    fn receive(&mut self, sink: &mut Sink) -> io::Result<Taken> {
        let taken = match &self.how {
            How::Single { gro: false } => self.receive_one(sink),
            How::Single { gro: true } => self.receive_message(sink),
            How::Many => self.receive_many(sink, libc::MSG_WAITFORONE),
            How::Ready(epoll) => {
                let epoll = epoll.as_raw_fd();
                self.receive_ready(epoll, sink)
            }
        };
        match taken {
            Err(error) if is_nothing(&error) => Ok(Taken::Counted),
            taken => taken,
        }
    }

    fn pool(&self) -> usize {
        self.messages.pool()
    }
}

/// An epoll instance that tells, once for each time that datagrams come, that the socket has some (EPOLLET).
fn watch(socket: &UdpSocket) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } as isize)? as libc::c_int;
    // SAFETY: the call has just made the descriptor, and nobody else has it.
    let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
    let mut event = libc::epoll_event {
        events: (libc::EPOLLIN | libc::EPOLLET) as u32,
        u64: 0,
    };
    // SAFETY: the event is valid and only read.
    check(unsafe {
        libc::epoll_ctl(
            epoll.as_raw_fd(),
            libc::EPOLL_CTL_ADD,
            socket.as_raw_fd(),
            &mut event,
        )
    } as isize)?;
    Ok(epoll)
}

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
