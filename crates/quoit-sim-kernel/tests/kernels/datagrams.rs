//! Datagram sockets as the epoll engine uses them.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use quoit::address::SocketAddress;
use quoit::internals::engine::epoll::Epoll;
use quoit::internals::engine::epoll::sys::EpollSys;
use quoit::internals::sys::{DatagramFamily, DatagramOption, Linux, SocketOption, SocketSys};
use quoit::{Address, Errno};
use quoit_sim_kernel::faces::{SimEpoll, SimSockets};

use super::sockets::{EDGE, IN, LONG, OUT, Script, names, show};
use super::{Notes, compare, fresh_address};

/// Bytes for the payload and for the control messages of one receive.
pub(crate) const ROOM: usize = 64;
const CONTROL: usize = 64;
/// More than any datagram may have.
pub(crate) const TOO_LONG: usize = 400_000;

/// One datagram that was received.
pub(crate) struct Got {
    pub(crate) bytes: Vec<u8>,
    pub(crate) from: Vec<u8>,
    pub(crate) flags: i32,
    pub(crate) control: Vec<u8>,
}

impl Got {
    /// What was received, but for who sent it.
    pub(crate) fn describe(&self) -> String {
        let cut = if self.flags & libc::MSG_TRUNC == 0 {
            ""
        } else {
            ", cut"
        };
        format!("{:?}{cut}", String::from_utf8_lossy(&self.bytes))
    }

    /// The drops that were told with it, 0 if none were.
    fn drops(&self) -> u32 {
        // A header of a length, a level and a type, and the count.
        let kind = self.control.get(12..16);
        if kind != Some(&libc::SO_RXQ_OVFL.to_ne_bytes()) {
            return 0;
        }
        u32::from_ne_bytes(self.control[16..20].try_into().unwrap())
    }
}

/// One script's calls and notes.
pub(crate) struct DatagramScript<P, K> {
    pub(crate) family: DatagramFamily,
    pub(crate) base: Script<P, K>,
}

/// An address of the family that nobody has.
pub(crate) fn fresh(family: DatagramFamily) -> Address {
    match family {
        DatagramFamily::V4 => fresh_address(false),
        DatagramFamily::V6 => "[::1]:0".parse().unwrap(),
        DatagramFamily::Unix => fresh_address(true),
    }
}

pub(crate) fn zeroed<T>() -> T {
    // SAFETY: used for structures of integers and pointers only, for which all zeroes is a valid value.
    unsafe { std::mem::zeroed() }
}

impl<P: EpollSys, K: SocketSys> DatagramScript<P, K> {
    pub(crate) fn new(system: K, family: DatagramFamily) -> Self {
        Self {
            family,
            base: Script::new(system, family == DatagramFamily::Unix),
        }
    }

    pub(crate) fn is_unix(&self) -> bool {
        self.family == DatagramFamily::Unix
    }

    pub(crate) fn note(&mut self, what: &str, answer: impl std::fmt::Display) {
        self.base.note(what, answer);
    }

    /// A socket without a name.
    pub(crate) fn nameless(&mut self) -> OwnedFd {
        let address = SocketAddress::try_from(&fresh(self.family)).unwrap();
        let socket = self.base.system.datagram_socket(&address).unwrap();
        self.base.system.set_nonblocking(socket.as_fd(), true).unwrap();
        socket
    }

    pub(crate) fn bound(&mut self) -> (OwnedFd, Address) {
        let socket = self.nameless();
        let wanted = SocketAddress::try_from(&fresh(self.family)).unwrap();
        self.base.system.bind(socket.as_fd(), &wanted).unwrap();
        let bound = self.base.system.local_address(socket.as_fd()).unwrap();
        (socket, Address::try_from(&bound).unwrap())
    }

    pub(crate) fn connect(&mut self, socket: &OwnedFd, to: &Address) -> Result<(), Errno> {
        let to = SocketAddress::try_from(to).unwrap();
        self.base.system.connect_now(socket.as_fd(), &to)
    }

    /// A socket with a name, connected to another.
    pub(crate) fn connected(&mut self) -> (OwnedFd, Address, OwnedFd) {
        let (far, far_address) = self.bound();
        let (near, near_address) = self.bound();
        self.connect(&near, &far_address).unwrap();
        (near, near_address, far)
    }

    /// `sendmmsg(2)`.
    fn send_all(
        &mut self,
        socket: &OwnedFd,
        to: Option<&Address>,
        payloads: &[&[u8]],
    ) -> Result<usize, Errno> {
        let to = to.map(|to| SocketAddress::try_from(to).unwrap());
        let mut pieces: Vec<_> = payloads
            .iter()
            .map(|payload| libc::iovec {
                iov_base: payload.as_ptr().cast_mut().cast(),
                iov_len: payload.len(),
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = payloads.iter().map(|_| zeroed()).collect();
        for (message, piece) in messages.iter_mut().zip(&mut pieces) {
            let header = &mut message.msg_hdr;
            if let Some(to) = &to {
                let (raw, length) = to.as_raw();
                header.msg_name = raw.cast_mut().cast();
                header.msg_namelen = length;
            }
            header.msg_iov = piece;
            header.msg_iovlen = 1;
        }
        loop {
            match self
                .base
                .system
                .send_messages_now(socket.as_raw_fd(), &mut messages)
            {
                Err(Errno::EINTR) => {}
                result => return result,
            }
        }
    }

    pub(crate) fn send(&mut self, socket: &OwnedFd, to: Option<&Address>, bytes: &[u8]) -> Result<(), Errno> {
        self.send_all(socket, to, &[bytes]).map(|_| ())
    }

    fn note_send(&mut self, who: &str, socket: &OwnedFd, to: Option<&Address>, payloads: &[&[u8]]) {
        let result = self.send_all(socket, to, payloads);
        self.note(&format!("{who} sends"), show(result));
    }

    /// `recvmmsg(2)`; the one of this number has no memory for its payload.
    fn receive_some(
        &mut self,
        socket: &OwnedFd,
        count: usize,
        without: Option<usize>,
    ) -> Result<Vec<Got>, Errno> {
        let mut room = vec![[0u8; 128 + CONTROL + ROOM]; count];
        let mut pieces: Vec<libc::iovec> = (0..count).map(|_| zeroed()).collect();
        let mut messages: Vec<libc::mmsghdr> = (0..count).map(|_| zeroed()).collect();
        for (number, (message, piece)) in messages.iter_mut().zip(&mut pieces).enumerate() {
            let place = room[number].as_mut_ptr();
            piece.iov_base = if without == Some(number) {
                std::ptr::null_mut()
            } else {
                place.wrapping_add(128 + CONTROL).cast()
            };
            piece.iov_len = ROOM;
            let header = &mut message.msg_hdr;
            header.msg_name = place.cast();
            header.msg_namelen = 128;
            header.msg_control = place.wrapping_add(128).cast();
            header.msg_controllen = CONTROL;
            header.msg_iov = piece;
            header.msg_iovlen = 1;
        }
        let received = loop {
            match self
                .base
                .calls
                .receive_messages(socket.as_raw_fd(), &mut messages)
            {
                Err(Errno::EINTR) => {}
                result => break result?,
            }
        };
        let got = messages[..received].iter().zip(&room).map(|(message, place)| {
            let header = &message.msg_hdr;
            Got {
                bytes: place[128 + CONTROL..][..message.msg_len as usize].to_vec(),
                from: place[..header.msg_namelen as usize].to_vec(),
                flags: header.msg_flags,
                control: place[128..][..header.msg_controllen].to_vec(),
            }
        });
        Ok(got.collect())
    }

    pub(crate) fn receive_now(&mut self, socket: &OwnedFd) -> Result<Vec<Got>, Errno> {
        self.receive_some(socket, 8, None)
    }

    pub(crate) fn note_receive(&mut self, who: &str, socket: &OwnedFd) {
        let result = self.receive_now(socket);
        self.note_received(who, &result);
    }

    fn note_received(&mut self, who: &str, result: &Result<Vec<Got>, Errno>) {
        let answer = match result {
            Ok(got) => format!("{:?}", got.iter().map(Got::describe).collect::<Vec<_>>()),
            Err(error) => format!("error {}", error.code()),
        };
        self.note(&format!("{who} receives"), answer);
    }

    pub(crate) fn wait(&mut self, socket: &OwnedFd, bits: u32) {
        self.base.wait_for(socket, bits, LONG);
    }

    /// What the socket is ready for now.
    fn note_mask(&mut self, who: &str, socket: &OwnedFd) {
        let mask = self.base.wait_for(socket, 0, Some(Duration::ZERO));
        self.note(&format!("{who} is ready for"), names(mask));
    }

    fn exchange(&mut self) {
        let (near, near_address) = self.bound();
        let (far, far_address) = self.bound();
        self.note_mask("far", &far);
        self.note_receive("far", &far);
        let long = [b'x'; ROOM + 1];
        self.note_send("near", &near, Some(&far_address), &[b"hello", b"", &long, b"end"]);
        self.wait(&far, IN);
        self.note_mask("far", &far);
        let got = self.receive_now(&far);
        self.note_received("far", &got);
        let expected = SocketAddress::try_from(&near_address).unwrap();
        for got in got.unwrap() {
            self.note("its sender is near", got.from == expected.as_bytes());
        }
        self.note_receive("far", &far);
        self.note_mask("far", &far);
        let nameless = self.nameless();
        self.note_send("nameless", &nameless, Some(&far_address), &[b"who?"]);
        self.wait(&far, IN);
        let got = self.receive_now(&far).unwrap();
        self.note("it has a sender", !got[0].from.is_empty());
    }

    fn peers(&mut self) {
        let (near, near_address, far) = self.connected();
        self.note_send("near", &near, None, &[b"to the peer"]);
        self.wait(&far, IN);
        self.note_receive("far", &far);
        self.note_send("far", &far, None, &[b"to whom?"]);
        self.note_send("far", &far, Some(&near_address), &[b"an answer"]);
        self.wait(&near, IN);
        self.note_receive("near", &near);
        let (third, _) = self.bound();
        self.note_send("third", &third, Some(&near_address), &[b"not the peer"]);
        self.note_receive("near", &near);
        self.note_mask("near", &near);
        let (_other, other_address) = self.bound();
        self.note_send("near", &near, Some(&other_address), &[b"to another"]);
        let nobody = self.bound().1;
        let connected = self.connect(&third, &nobody);
        self.note("connected to nobody", show(connected.map(|()| 0)));
    }

    fn refused(&mut self) {
        let (near, near_address, far) = self.connected();
        self.note_send("far", &far, Some(&near_address), &[b"before", b"the end"]);
        self.wait(&near, IN);
        drop(far);
        self.note_mask("near", &near);
        let mut poll = P::create().unwrap();
        poll.add(near.as_raw_fd(), IN | EDGE, 0).unwrap();
        self.base.next_event(&mut poll, LONG);
        self.note_send("near", &near, None, &[b"anybody?"]);
        if !self.is_unix() {
            let edge = self.base.next_event(&mut poll, LONG);
            self.note("the edge is", names(edge));
        }
        self.note_mask("near", &near);
        // An error is told before what is queued.
        self.note_receive("near", &near);
        self.note_receive("near", &near);
        self.note_receive("near", &near);
        self.note_send("near", &near, None, &[b"anybody?"]);
        if !self.is_unix() {
            self.wait(&near, IN);
            // Told by the next send too, instead of its own end.
            self.note_send("near", &near, None, &[b"nobody"]);
            self.note_send("near", &near, None, &[b"nobody"]);
            self.wait(&near, IN);
            let error = self.base.system.take_error(near.as_raw_fd());
            self.note("error", format!("{error:?}"));
        }
        self.note_receive("near", &near);
        self.note_mask("near", &near);
    }

    fn a_full_unix_receiver(&mut self) {
        if !self.is_unix() {
            return;
        }
        let (near, _, far) = self.connected();
        let far_address = self.base.system.local_address(far.as_fd()).unwrap();
        let far_address = Address::try_from(&far_address).unwrap();
        let mut poll = P::create().unwrap();
        poll.add(near.as_raw_fd(), OUT | EDGE, 0).unwrap();
        self.base.next_event(&mut poll, LONG);
        let mut sent = 0;
        let partial = loop {
            match self.send_all(&near, None, &[&b"a"[..]; 4]) {
                Ok(4) => sent += 4,
                Ok(count) => {
                    sent += count;
                    break true;
                }
                Err(error) => {
                    assert_eq!(error, Errno::EAGAIN);
                    break false;
                }
            }
        };
        self.note("a part was sent", partial);
        self.note_send("near", &near, None, &[&b"b"[..]; 4]);
        self.note_mask("near", &near);
        let stranger = self.nameless();
        self.note_send("stranger", &stranger, Some(&far_address), &[b"c"]);
        self.note_mask("stranger", &stranger);
        let edge = self.base.next_event(&mut poll, Some(Duration::ZERO));
        self.note("edge while full", names(edge));
        let got = self.receive_some(&far, 1, None);
        self.note_received("far", &got);
        let edge = self.base.next_event(&mut poll, LONG);
        self.note("edge of room", names(edge));
        self.note_mask("near", &near);
        self.note_send("near", &near, None, &[&b"d"[..]; 2]);
        let mut received = 1;
        while let Ok(got) = self.receive_now(&far) {
            received += got.len();
        }
        self.note("all arrived", received == sent + 1);
        let edge = self.base.next_event(&mut poll, LONG);
        self.note("edge of more room", names(edge));
        // Its end is room too.
        while self.send(&near, None, b"e").is_ok() {}
        drop(far);
        let edge = self.base.next_event(&mut poll, LONG);
        self.note("edge of the end", names(edge));
        self.note_send("near", &near, None, &[b"f"]);
        self.note_send("near", &near, None, &[b"f"]);
    }

    fn drops(&mut self) {
        let (near, near_address, far) = self.connected();
        let counted = self
            .base
            .system
            .set_datagram_option(near.as_fd(), DatagramOption::CountDrops);
        self.note("drops are counted", show(counted.map(|()| 0)));
        self.base
            .system
            .set_option(near.as_fd(), SocketOption::ReceiveBuffer(4096))
            .unwrap();
        if self.is_unix() {
            return;
        }
        for _ in 0..300 {
            self.send(&far, Some(&near_address), &[b'x'; ROOM]).unwrap();
        }
        self.wait(&near, IN);
        let drops = self.base.system.datagram_drops(near.as_fd()).unwrap();
        self.note("some were dropped", drops > 0);
        let (mut received, mut told) = (0, 0);
        while let Ok(got) = self.receive_now(&near) {
            received += got.len() as u32;
            told += got.iter().map(Got::drops).sum::<u32>();
        }
        self.note("all others came", received + drops == 300);
        self.note("told with what came before", told);
        self.send(&far, Some(&near_address), b"later").unwrap();
        self.wait(&near, IN);
        let got = self.receive_now(&near).unwrap();
        self.note("told with what came later", got[0].drops() == drops);
    }

    fn an_error_behind_others(&mut self) {
        let (near, near_address, far) = self.connected();
        let payloads: [&[u8]; 4] = [b"one", b"two", b"three", b"four"];
        self.note_send("far", &far, Some(&near_address), &payloads);
        self.wait(&near, IN);
        let drops = self.base.system.datagram_drops(near.as_fd()).unwrap();
        // The one before it is returned, and the next call tells of the error.
        let got = self.receive_some(&near, 4, Some(1));
        self.note_received("near", &got);
        self.note_mask("near", &near);
        self.note_receive("near", &near);
        self.note_receive("near", &near);
        self.note_receive("near", &near);
        let dropped = self.base.system.datagram_drops(near.as_fd()).unwrap();
        self.note("dropped", dropped - drops);
        // In front it is told at once, and not again.
        self.note_send("far", &far, Some(&near_address), &payloads);
        self.wait(&near, IN);
        let got = self.receive_some(&near, 4, Some(0));
        self.note_received("near", &got);
        self.note_receive("near", &near);
        // A send tells of one that was kept.
        self.note_send("far", &far, Some(&near_address), &payloads);
        self.wait(&near, IN);
        let got = self.receive_some(&near, 4, Some(2));
        self.note_received("near", &got);
        self.note_send("near", &near, None, &[b"back"]);
        self.note_receive("near", &near);
    }

    /// Reads an entry of the error queue: which of these it is about, and why.
    fn note_answer(&mut self, socket: &OwnedFd, gone: &[Address]) {
        let answer = self.base.system.datagram_error(socket.as_fd());
        let text = match answer {
            Ok(Some(told)) => {
                let place = gone.iter().position(|one| *one == Address::Tcp(told.receiver()));
                format!("{place:?}, error {}", told.errno().code())
            }
            Ok(None) => "nothing of the network".to_owned(),
            Err(errno) => format!("error {}", errno.code()),
        };
        self.note("the error queue has", text);
    }

    fn who_is_gone(&mut self) {
        if self.is_unix() {
            return;
        }
        let (near, near_address) = self.bound();
        let v6 = self.family == DatagramFamily::V6;
        let told = self
            .base
            .system
            .set_datagram_option(near.as_fd(), DatagramOption::Errors { v6 });
        self.note("answers are kept", show(told.map(|()| 0)));
        let gone = [self.bound().1, self.bound().1];
        self.note_answer(&near, &gone);
        self.note_send("near", &near, Some(&gone[0]), &[b"anybody?"]);
        self.note_mask("near", &near);
        // Told of the first, in place of being made.
        self.note_send("near", &near, Some(&gone[1]), &[b"anybody?"]);
        self.note_mask("near", &near);
        self.note_answer(&near, &gone);
        self.note_mask("near", &near);
        self.note_answer(&near, &gone);
        self.note_send("near", &near, Some(&gone[1]), &[b"anybody?"]);
        // Told once, though it is in the queue still.
        self.note_receive("near", &near);
        self.note_receive("near", &near);
        self.note_mask("near", &near);
        self.note_send("near", &near, Some(&gone[0]), &[b"anybody?"]);
        // Behind the entry that is read is another, which is told.
        self.note_answer(&near, &gone);
        self.note_send("near", &near, Some(&near_address), &[b"to itself"]);
        self.note_send("near", &near, Some(&near_address), &[b"to itself"]);
        self.note_answer(&near, &gone);
        self.note_mask("near", &near);
        self.note_receive("near", &near);
        // What is read is told no more.
        self.note_send("near", &near, Some(&gone[0]), &[b"anybody?"]);
        self.note_answer(&near, &gone);
        self.note_receive("near", &near);
    }

    fn a_part_of_several(&mut self) {
        let (near, _, far) = self.connected();
        let long = vec![b'x'; TOO_LONG];
        self.note_send("near", &near, None, &[b"one", &long, b"three"]);
        self.note_send("near", &near, None, &[&long, b"three"]);
        self.note_send("near", &near, None, &[b"three"]);
        self.wait(&far, IN);
        self.note_receive("far", &far);
        self.note_mask("near", &near);
    }
}

/// A script, to be run on either kernel with each family.
macro_rules! scripts {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            for family in [DatagramFamily::V4, DatagramFamily::V6, DatagramFamily::Unix] {
                let real = run::<Epoll, _>(Linux, family, DatagramScript::$name);
                let name = format!("{} on {family:?}", stringify!($name));
                compare(&name, &real, &|| {
                    run::<SimEpoll, _>(SimSockets, family, DatagramScript::$name)
                });
            }
        }
    )* };
}

fn run<P: EpollSys, K: SocketSys>(
    system: K,
    family: DatagramFamily,
    body: fn(&mut DatagramScript<P, K>),
) -> Notes {
    let mut script = DatagramScript::new(system, family);
    body(&mut script);
    script.base.notes
}

scripts! {
    exchange peers refused a_full_unix_receiver drops an_error_behind_others a_part_of_several
    who_is_gone several_on_one_port
}
