//! The least that a loop on io_uring does for this work: one enter submits the sends and the receives, and waits.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{IntoRawFd, RawFd};

use io_uring::{IoUring, opcode, types};

use super::{REQUEST, RESPONSE, Turns, Work};

static ANSWER: [u8; RESPONSE] = [9; RESPONSE];
const SOCKETS: usize = 64;
const SENT: u64 = 1 << 32;

pub(super) struct Served {
    ring: IoUring,
    listener: Option<TcpListener>,
    address: SocketAddr,
    work: Work,
    #[expect(
        clippy::vec_box,
        reason = "the kernel has pointers into them, so they must not move"
    )]
    slots: Vec<Box<Slot>>,
}

/// A connection, or one of the receives of a datagram socket. In a box: the kernel has pointers into it.
struct Slot {
    socket: RawFd,
    incoming: [u8; REQUEST],
    /// What is on its way out while the next request comes in.
    outgoing: [u8; REQUEST],
    name: libc::sockaddr_in,
    to: libc::sockaddr_in,
    part: libc::iovec,
    reply_part: libc::iovec,
    message: libc::msghdr,
    reply: libc::msghdr,
}

impl Slot {
    fn new(socket: RawFd) -> Box<Self> {
        // SAFETY: zeroes are valid for these structures of the C library and for bytes.
        let mut slot: Box<Self> = Box::new(unsafe { std::mem::zeroed() });
        slot.socket = socket;
        let slot_at = &raw mut *slot;
        // SAFETY: the fields of a box that does not move.
        unsafe {
            for (part, buffer, message, name) in [
                (
                    &raw mut (*slot_at).part,
                    &raw mut (*slot_at).incoming,
                    &raw mut (*slot_at).message,
                    &raw mut (*slot_at).name,
                ),
                (
                    &raw mut (*slot_at).reply_part,
                    &raw mut (*slot_at).outgoing,
                    &raw mut (*slot_at).reply,
                    &raw mut (*slot_at).to,
                ),
            ] {
                (*part).iov_base = buffer.cast();
                (*part).iov_len = REQUEST;
                (*message).msg_iov = part;
                (*message).msg_iovlen = 1;
                (*message).msg_name = name.cast();
                (*message).msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
        }
        slot
    }
}

impl Served {
    pub(super) fn new(work: Work) -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(4 * SOCKETS as u32)
            .build(2 * SOCKETS as u32)
            .map_err(|error| format!("no ring: {error}"))?;
        let mut served = Self {
            ring,
            listener: None,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            work,
            slots: Vec::new(),
        };
        if work == Work::Datagram {
            let socket = UdpSocket::bind("127.0.0.1:0").map_err(text)?;
            served.address = socket.local_addr().map_err(text)?;
            let socket = socket.into_raw_fd();
            for index in 0..SOCKETS {
                served.slots.push(Slot::new(socket));
                served.receive(index)?;
            }
        } else {
            let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
            served.address = listener.local_addr().map_err(text)?;
            served.listener = Some(listener);
        }
        Ok(served)
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) -> Result<(), String> {
        // SAFETY: what the entry points to is in a slot's box or static, and is there until the process ends.
        unsafe { self.ring.submission().push(entry) }.map_err(|error| error.to_string())
    }

    fn receive(&mut self, index: usize) -> Result<(), String> {
        let slot = &mut self.slots[index];
        let entry = if self.work == Work::Datagram {
            opcode::RecvMsg::new(types::Fd(slot.socket), &raw mut slot.message).build()
        } else {
            opcode::Recv::new(types::Fd(slot.socket), slot.incoming.as_mut_ptr(), REQUEST as u32).build()
        };
        self.push(&entry.user_data(index as u64))
    }

    fn answer(&mut self, index: usize) -> Result<(), String> {
        let slot = &mut self.slots[index];
        slot.outgoing = slot.incoming;
        let entry = match self.work {
            Work::Echo => {
                opcode::Send::new(types::Fd(slot.socket), slot.outgoing.as_ptr(), REQUEST as u32).build()
            }
            Work::Response => {
                opcode::Send::new(types::Fd(slot.socket), ANSWER.as_ptr(), RESPONSE as u32).build()
            }
            Work::Datagram => {
                slot.to = slot.name;
                opcode::SendMsg::new(types::Fd(slot.socket), &raw const slot.reply).build()
            }
        };
        let entry = entry
            .flags(io_uring::squeue::Flags::SKIP_SUCCESS)
            .user_data(SENT | index as u64);
        self.push(&entry)
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
        self.slots.push(Slot::new(stream.into_raw_fd()));
        self.receive(self.slots.len() - 1)
    }

    fn turn(&mut self) -> Result<usize, String> {
        self.ring.submit_and_wait(1).map_err(|error| error.to_string())?;
        let mut taken = 0;
        loop {
            let Some(completion) = self.ring.completion().next() else {
                return Ok(taken);
            };
            let index = completion.user_data();
            if index & SENT != 0 || completion.result() != REQUEST as i32 {
                return Err(format!("{index:#x}: {}", completion.result()));
            }
            self.answer(index as usize)?;
            self.receive(index as usize)?;
            taken += 1;
        }
    }
}
