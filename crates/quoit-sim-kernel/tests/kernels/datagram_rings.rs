//! Operations on datagram sockets as the io_uring engine submits them.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use linux_raw_sys::io_uring as abi;
use linux_raw_sys::io_uring::io_uring_op as Opcode;
use quoit::Address;
use quoit::address::SocketAddress;
use quoit::internals::engine::epoll::Epoll;
use quoit::internals::engine::epoll::sys::EpollSys;
use quoit::internals::engine::uring::Ring;
use quoit::internals::engine::uring::sys::{ProvidedBuffer, STREAM_GROUP, SubmissionEntry, UringSys};
use quoit::internals::sys::{DatagramFamily, Linux, SocketSys};
use quoit_sim_kernel::faces::{SimEpoll, SimRing, SimSockets};

use super::datagrams::{DatagramScript, ROOM, TOO_LONG, zeroed};
use super::rings::{RingScript, SELECTS, cancel, describe, entry, lacking, set_up};
use super::sockets::IN;
use super::{Notes, compare};

const LINKS: u8 = 1 << abi::io_uring_sqe_flags_bit::IOSQE_IO_LINK_BIT as u8;
/// What is in front of the payload (`struct io_uring_recvmsg_out`): four words, and room for the peer's address.
const HEAD: usize = 16;
const NAME: usize = 128;
const BUFFER: usize = HEAD + NAME + ROOM;

/// One script's ring, sockets and notes.
struct RingDatagrams<S, P, K> {
    /// The notes are in here.
    ring: RingScript<S, P, K>,
    sockets: DatagramScript<P, K>,
    memory: Box<[u8]>,
}

/// A message, which stays in place.
struct Message {
    header: libc::msghdr,
    piece: libc::iovec,
}

/// The header of a receive into provided buffers.
fn receiving() -> Box<Message> {
    let mut message: Box<Message> = Box::new(zeroed());
    message.header.msg_namelen = NAME as u32;
    message
}

/// That of a send of these bytes to a connected peer, or of a receive into them.
fn carrying(bytes: *const u8, length: usize) -> Box<Message> {
    let mut message: Box<Message> = Box::new(zeroed());
    message.piece.iov_base = bytes.cast_mut().cast();
    message.piece.iov_len = length;
    message.header.msg_iov = &raw mut message.piece;
    message.header.msg_iovlen = 1;
    message
}

fn with_message(opcode: Opcode, socket: &OwnedFd, message: &Message, data: u64) -> SubmissionEntry {
    let mut entry = entry(opcode, socket.as_raw_fd(), data);
    entry.__bindgen_anon_2.addr = (&raw const message.header).expose_provenance() as u64;
    entry.len = 1;
    entry
}

fn receive_multishot(socket: &OwnedFd, message: &Message, data: u64) -> SubmissionEntry {
    let mut entry = with_message(Opcode::IORING_OP_RECVMSG, socket, message, data);
    entry.flags = SELECTS;
    entry.ioprio = abi::IORING_RECV_MULTISHOT as u16;
    entry.__bindgen_anon_4.buf_group = STREAM_GROUP;
    entry
}

fn send(socket: &OwnedFd, message: &Message, flags: i32, data: u64) -> SubmissionEntry {
    let mut entry = with_message(Opcode::IORING_OP_SENDMSG, socket, message, data);
    entry.__bindgen_anon_3.msg_flags = (libc::MSG_NOSIGNAL | flags) as u32;
    entry
}

impl<S: UringSys, P: EpollSys, K: SocketSys> RingDatagrams<S, P, K> {
    /// A socket in blocking mode, as the engine wants it, that is connected to another.
    fn connected(&mut self) -> (OwnedFd, Address, OwnedFd) {
        let (near, near_address, far) = self.sockets.connected();
        let system = &self.sockets.base.system;
        system.set_nonblocking(near.as_fd(), false).unwrap();
        (near, near_address, far)
    }

    fn provide(&mut self, ids: std::ops::Range<u16>) {
        for id in ids {
            let at = usize::from(id) * BUFFER;
            let buffer = ProvidedBuffer {
                address: self.memory[at..at + BUFFER].as_mut_ptr(),
                length: BUFFER as u32,
                id,
            };
            self.ring.ring.provide_buffer(STREAM_GROUP, buffer);
        }
        self.ring.ring.publish_buffers(STREAM_GROUP);
    }

    /// The next completion, with what is in the buffer that it names.
    fn note_datagram(&mut self, from: &OwnedFd) {
        let entry = self.ring.next_entry();
        let completion = describe(entry.user_data, entry.res, entry.flags);
        if entry.flags & abi::IORING_CQE_F_BUFFER == 0 {
            self.ring.sockets.notes.push(completion);
            return;
        }
        let id = (entry.flags >> abi::IORING_CQE_BUFFER_SHIFT) as usize;
        let buffer = &self.memory[id * BUFFER..][..BUFFER];
        let word = |at: usize| u32::from_ne_bytes(buffer[at..at + 4].try_into().unwrap()) as usize;
        let (name, control, payload, flags) = (word(0), word(4), word(8), word(12) as i32);
        let from = self.sockets.base.system.local_address(from.as_fd()).unwrap();
        let from = SocketAddress::try_from(&Address::try_from(&from).unwrap()).unwrap();
        let is_from = buffer[HEAD..HEAD + name] == *from.as_bytes();
        let bytes = String::from_utf8_lossy(&buffer[HEAD + NAME..][..payload]).into_owned();
        let cut = flags & libc::MSG_TRUNC != 0;
        self.ring.sockets.note(
            &completion,
            format!("{bytes:?}, cut {cut}, control {control}, from far {is_from}"),
        );
    }

    fn multishot(&mut self) {
        let (near, near_address, far) = self.connected();
        self.provide(0..6);
        let header = receiving();
        self.ring.push(&receive_multishot(&near, &header, 1));
        self.ring.submit();
        for bytes in [&b"hello"[..], &[b'x'; ROOM + 1], b""] {
            self.sockets.send(&far, Some(&near_address), bytes).unwrap();
            self.note_datagram(&far);
        }
        // One without bytes has ended it.
        self.sockets.send(&far, Some(&near_address), b"after").unwrap();
        self.ring.note_nothing();
        self.ring.push(&receive_multishot(&near, &header, 2));
        self.note_datagram(&far);
        self.ring.push(&cancel(2, 3));
        self.ring.note_some(2);
    }

    fn no_buffers(&mut self) {
        let (near, near_address, far) = self.connected();
        let header = receiving();
        self.ring.push(&receive_multishot(&near, &header, 1));
        self.ring.note_next();
        self.sockets.send(&far, Some(&near_address), b"one").unwrap();
        self.sockets.send(&far, Some(&near_address), b"two").unwrap();
        self.sockets.wait(&near, IN);
        self.provide(0..1);
        self.ring.push(&receive_multishot(&near, &header, 2));
        self.note_datagram(&far);
        self.ring.note_next();
        // Nothing is lost meanwhile.
        self.provide(1..4);
        self.ring.push(&receive_multishot(&near, &header, 3));
        self.note_datagram(&far);
        self.ring.push(&cancel(3, 4));
        self.ring.note_some(2);
    }

    /// The completion queue has room for four: the multishot ends with the fifth, and what waits behind it comes to the
    /// next one.
    fn a_full_queue(&mut self) {
        let (near, near_address, far) = self.connected();
        self.provide(0..8);
        for number in b'0'..b'7' {
            self.sockets.send(&far, Some(&near_address), &[number]).unwrap();
        }
        self.sockets.wait(&near, IN);
        let header = receiving();
        self.ring.push(&receive_multishot(&near, &header, 1));
        self.ring.submit();
        for _ in 0..5 {
            self.note_datagram(&far);
        }
        self.ring.note_nothing();
        self.ring.push(&receive_multishot(&near, &header, 2));
        for _ in 0..2 {
            self.note_datagram(&far);
        }
        self.ring.push(&cancel(2, 3));
        self.ring.note_some(2);
    }

    fn cancelling(&mut self) {
        let (near, near_address, far) = self.connected();
        self.provide(0..4);
        let header = receiving();
        self.ring.push(&receive_multishot(&near, &header, 1));
        self.ring.submit();
        self.ring.push(&cancel(1, 2));
        self.ring.note_some(2);
        self.ring.push(&cancel(1, 3));
        self.ring.note_next();
        self.sockets
            .send(&far, Some(&near_address), b"still there")
            .unwrap();
        self.ring.push(&receive_multishot(&near, &header, 4));
        self.note_datagram(&far);
        self.ring.push(&cancel(4, 5));
        self.ring.note_some(2);
    }

    fn refused(&mut self) {
        if self.sockets.is_unix() {
            return;
        }
        let (near, _, far) = self.connected();
        drop(far);
        self.provide(0..2);
        let header = receiving();
        self.ring.push(&receive_multishot(&near, &header, 1));
        self.ring.submit();
        self.sockets.send(&near, None, b"anybody?").unwrap();
        self.ring.note_next();
        // The next send tells of the answer to the one before it.
        self.sockets.send(&near, None, b"anybody?").unwrap();
        self.sockets.wait(&near, IN);
        let message = carrying(b"nobody".as_ptr(), 6);
        self.ring.push(&send(&near, &message, 0, 2));
        self.ring.note_next();
        self.ring.push(&receive_multishot(&near, &header, 3));
        self.ring.submit();
        self.ring.push(&cancel(3, 4));
        self.ring.note_some(2);
    }

    fn one_by_one(&mut self) {
        let (near, near_address, far) = self.connected();
        let mut room = [0u8; ROOM];
        for (data, bytes) in [(1, &b"hello"[..]), (2, b""), (3, &[b'x'; ROOM + 1])] {
            let message = carrying(room.as_mut_ptr(), ROOM);
            let receive = with_message(Opcode::IORING_OP_RECVMSG, &near, &message, data);
            self.ring.push(&receive);
            self.ring.submit();
            self.ring.note_nothing();
            self.sockets.send(&far, Some(&near_address), bytes).unwrap();
            self.ring.note_next();
            let cut = message.header.msg_flags & libc::MSG_TRUNC != 0;
            self.ring.sockets.note("cut", cut);
        }
        assert_eq!(room, [b'x'; ROOM]);
    }

    fn a_chain_of_sends(&mut self) {
        let (near, _, far) = self.connected();
        let long = vec![b'x'; TOO_LONG];
        let messages = [&b"one"[..], &long, b"three"].map(|bytes| carrying(bytes.as_ptr(), bytes.len()));
        for (number, message) in messages.iter().enumerate() {
            let mut send = send(&near, message, 0, number as u64);
            send.flags = if number < 2 { LINKS } else { 0 };
            self.ring.push(&send);
        }
        self.ring.note_some(3);
        self.sockets.wait(&far, IN);
        self.note_received(&far);
    }

    /// What waits in a socket.
    fn note_received(&mut self, socket: &OwnedFd) {
        let got = self.sockets.receive_now(socket).unwrap();
        let got: Vec<_> = got.iter().map(super::datagrams::Got::describe).collect();
        self.ring.sockets.note("far receives", format!("{got:?}"));
    }

    fn a_full_unix_receiver(&mut self) {
        if !self.sockets.is_unix() {
            return;
        }
        let (near, _, far) = self.connected();
        while self.sockets.send(&near, None, b"a").is_ok() {}
        let message = carrying(b"whole".as_ptr(), 5);
        self.ring.push(&send(&near, &message, 0, 1));
        self.ring.submit();
        self.ring.note_nothing();
        self.ring.push(&send(&near, &message, libc::MSG_DONTWAIT, 2));
        self.ring.note_next();
        self.sockets.receive_now(&far).unwrap();
        // Linux 6.18 has used the message up when it finds the receiver full: now it sends an empty one.
        self.ring.note_next();
        self.note_received(&far);
        while self.sockets.send(&near, None, b"a").is_ok() {}
        self.ring.push(&send(&near, &message, 0, 3));
        self.ring.submit();
        self.ring.push(&cancel(3, 4));
        self.ring.note_some(2);
    }
}

/// A script, to be run on either kernel with each family, where the real one has all that scripts need.
macro_rules! scripts {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            if lacking().is_some() {
                return;
            }
            for family in [DatagramFamily::V4, DatagramFamily::V6, DatagramFamily::Unix] {
                let real = run::<Ring, Epoll, _>(Linux, family, RingDatagrams::$name);
                let name = format!("{} on {family:?}", stringify!($name));
                compare(&name, &real, &|| {
                    run::<SimRing, SimEpoll, _>(SimSockets, family, RingDatagrams::$name)
                });
            }
        }
    )* };
}

fn run<S: UringSys, P: EpollSys, K: SocketSys + Copy>(
    system: K,
    family: DatagramFamily,
    body: fn(&mut RingDatagrams<S, P, K>),
) -> Notes {
    let mut script = RingDatagrams {
        ring: set_up(system, family == DatagramFamily::Unix),
        sockets: DatagramScript::new(system, family),
        memory: vec![0; 8 * BUFFER].into(),
    };
    body(&mut script);
    script.ring.sockets.notes
}

scripts! {
    multishot no_buffers a_full_queue cancelling refused one_by_one a_chain_of_sends a_full_unix_receiver
}
