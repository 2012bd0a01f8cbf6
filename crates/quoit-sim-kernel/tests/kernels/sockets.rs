//! Sockets as the epoll engine uses them.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use quoit::address::SocketAddress;
use quoit::internals::engine::epoll::Epoll;
use quoit::internals::engine::epoll::sys::{EpollSys, ReadyEvent};
use quoit::internals::sys::{Linux, SocketSys};
use quoit::{Address, Errno};
use quoit_sim_kernel::faces::{SimEpoll, SimSockets};

use super::{Notes, compare, fresh_address};

pub(crate) const IN: u32 = libc::EPOLLIN as u32;
pub(crate) const OUT: u32 = libc::EPOLLOUT as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
pub(crate) const EDGE: u32 = libc::EPOLLET as u32;
/// Far longer than anything takes; whoever waits so long waits for something that does not come.
pub(crate) const LONG: Option<Duration> = Some(Duration::from_secs(30));

/// One script's calls and notes.
pub(crate) struct Script<P, K> {
    pub(crate) unix: bool,
    pub(crate) calls: P,
    pub(crate) system: K,
    pub(crate) notes: Notes,
}

pub(crate) fn show(result: Result<usize, Errno>) -> String {
    match result {
        Ok(count) => count.to_string(),
        Err(errno) => format!("error {}", errno.code()),
    }
}

pub(crate) fn names(mask: u32) -> String {
    let bits = [
        (IN, "in"),
        (OUT, "out"),
        (RDHUP, "rdhup"),
        (libc::EPOLLHUP as u32, "hup"),
        (libc::EPOLLERR as u32, "err"),
    ];
    let set: Vec<_> = bits
        .iter()
        .filter(|(bit, _)| mask & bit != 0)
        .map(|(_, name)| *name)
        .collect();
    set.join("+")
}

impl<P: EpollSys, K: SocketSys> Script<P, K> {
    pub(crate) fn new(system: K, unix: bool) -> Self {
        Self {
            unix,
            calls: P::create().unwrap(),
            system,
            notes: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, what: &str, answer: impl std::fmt::Display) {
        self.notes.push(format!("{what}: {answer}"));
    }

    pub(crate) fn socket(&mut self, address: &Address) -> OwnedFd {
        let address = SocketAddress::try_from(address).unwrap();
        let socket = self.system.stream_socket(&address).unwrap();
        self.system.set_nonblocking(socket.as_fd(), true).unwrap();
        socket
    }

    pub(crate) fn listen(&mut self) -> (OwnedFd, Address) {
        let address = fresh_address(self.unix);
        let listener = self.socket(&address);
        let wanted = SocketAddress::try_from(&address).unwrap();
        self.system.bind(listener.as_fd(), &wanted).unwrap();
        self.system.listen(listener.as_fd(), 16).unwrap();
        let bound = self.system.local_address(listener.as_fd()).unwrap();
        (listener, Address::try_from(&bound).unwrap())
    }

    /// Waits until one of `bits` is there; answers all that is.
    pub(crate) fn wait_for(&mut self, socket: &OwnedFd, bits: u32, timeout: Option<Duration>) -> u32 {
        let mut poll = P::create().unwrap();
        // Only those are waited for; the others are asked for afterwards.
        if timeout != Some(Duration::ZERO) {
            poll.add(socket.as_raw_fd(), bits, 0).unwrap();
            self.next_event(&mut poll, timeout);
            poll.remove(socket.as_raw_fd()).unwrap();
        }
        poll.add(socket.as_raw_fd(), IN | OUT | RDHUP, 0).unwrap();
        self.next_event(&mut poll, Some(Duration::ZERO))
    }

    /// The next event of an instance, 0 if there is none within the time.
    pub(crate) fn next_event(&mut self, poll: &mut P, timeout: Option<Duration>) -> u32 {
        let mut events = [ReadyEvent { events: 0, u64: 0 }];
        loop {
            match poll.wait(&mut events, timeout) {
                Ok(0) => return 0,
                Ok(_) => return events[0].events,
                Err(Errno::EINTR) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn connect(&mut self, to: &Address) -> OwnedFd {
        let socket = self.socket(to);
        let to = SocketAddress::try_from(to).unwrap();
        match self.calls.connect(socket.as_raw_fd(), &to) {
            Ok(()) => {}
            Err(error) if error.code() == libc::EINPROGRESS => {
                self.wait_for(&socket, OUT, LONG);
                assert_eq!(self.system.take_error(socket.as_raw_fd()), None);
            }
            Err(error) => panic!("{error}"),
        }
        socket
    }

    pub(crate) fn accept(&mut self, listener: &OwnedFd) -> OwnedFd {
        loop {
            match self.calls.accept(listener.as_raw_fd()) {
                Ok(socket) => return socket,
                Err(Errno::EAGAIN) => {
                    self.wait_for(listener, IN, LONG);
                }
                Err(Errno::EINTR) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Two connected sockets.
    pub(crate) fn pair(&mut self) -> (OwnedFd, OwnedFd) {
        let (listener, address) = self.listen();
        let near = self.connect(&address);
        let far = self.accept(&listener);
        (near, far)
    }

    pub(crate) fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
        loop {
            match self.calls.send(socket.as_raw_fd(), bytes.as_ptr(), bytes.len()) {
                Err(Errno::EINTR) => {}
                result => return result,
            }
        }
    }

    /// Receives without waiting.
    pub(crate) fn receive_now(&mut self, socket: &OwnedFd) -> Result<usize, Errno> {
        let mut room = [0u8; 4096];
        loop {
            match self
                .calls
                .receive(socket.as_raw_fd(), room.as_mut_ptr(), room.len())
            {
                Err(Errno::EINTR) => {}
                result => return result,
            }
        }
    }

    /// Receives what comes next, however long that takes.
    pub(crate) fn receive(&mut self, socket: &OwnedFd) -> Result<usize, Errno> {
        loop {
            match self.receive_now(socket) {
                Err(Errno::EAGAIN) => {
                    self.wait_for(socket, IN | RDHUP, LONG);
                }
                result => return result,
            }
        }
    }

    fn note_receive(&mut self, who: &str, socket: &OwnedFd) {
        let result = self.receive(socket);
        self.note(&format!("{who} receives"), show(result));
    }

    fn note_send(&mut self, who: &str, socket: &OwnedFd, bytes: &[u8]) {
        let result = self.send(socket, bytes);
        self.note(&format!("{who} sends"), show(result));
    }

    fn note_mask(&mut self, who: &str, socket: &OwnedFd, awaited: u32) {
        let mask = self.wait_for(socket, awaited, LONG);
        self.note(&format!("{who} is ready for"), names(mask));
    }

    fn echo(&mut self) {
        let (near, far) = self.pair();
        self.note_mask("near", &near, OUT);
        self.note_send("near", &near, b"hello");
        self.note_mask("far", &far, IN);
        self.note_receive("far", &far);
        let again = self.receive_now(&far);
        self.note("far receives again", show(again));
        self.note_mask("far", &far, OUT);
        self.note_send("far", &far, b"hi");
        self.note_receive("near", &near);
    }

    fn half_close(&mut self) {
        let (near, far) = self.pair();
        self.note_send("near", &near, b"last");
        self.system.shutdown_send(near.as_fd()).unwrap();
        self.note_mask("far", &far, RDHUP);
        self.note_receive("far", &far);
        self.note_receive("far", &far);
        self.note_receive("far", &far);
        self.note_send("near", &near, b"more");
        self.note_send("far", &far, b"still");
        self.note_receive("near", &near);
        self.system.shutdown_send(far.as_fd()).unwrap();
        self.note_mask("near", &near, RDHUP);
        self.note_receive("near", &near);
        self.note_mask("far", &far, RDHUP);
    }

    fn close_after_data(&mut self) {
        let (near, far) = self.pair();
        self.note_send("near", &near, b"last");
        drop(near);
        self.note_mask("far", &far, RDHUP);
        self.note_receive("far", &far);
        self.note_receive("far", &far);
        // TCP: answered by a reset, which may not be there yet when the next send is made.
        let _ = self.send(&far, b"anybody?");
        self.wait_for(&far, 0, LONG);
        self.note_send("far", &far, b"nobody");
        self.note_mask("far", &far, OUT);
    }

    fn close_with_something_unread(&mut self) {
        let (near, far) = self.pair();
        self.note_send("near", &near, b"unread");
        self.wait_for(&far, IN, LONG);
        self.note_send("far", &far, b"read?");
        self.wait_for(&near, IN, LONG);
        drop(far);
        self.note_mask("near", &near, RDHUP);
        self.note_receive("near", &near);
        self.note_receive("near", &near);
        self.note_send("near", &near, b"more");
    }

    fn reset(&mut self) {
        let (near, far) = self.pair();
        self.note_send("far", &far, b"on the way");
        self.wait_for(&near, IN, LONG);
        let address = self.system.local_address(near.as_fd()).unwrap();
        self.system.reset(near.as_fd()).unwrap();
        self.note_mask("far", &far, RDHUP);
        self.note_receive("far", &far);
        self.note_receive("far", &far);
        self.note_send("far", &far, b"more");
        // Known to the end, although `getpeername` does not return it any more.
        let peer = self.system.connected_peer(far.as_fd());
        self.note("connected peer", show(peer.map(|_| 0)));
        let peer = self.system.peer_address(far.as_fd()).unwrap();
        self.note("peer", Address::try_from(&peer) == Address::try_from(&address));
    }

    fn reset_after_the_end(&mut self) {
        let (near, far) = self.pair();
        self.system.shutdown_send(near.as_fd()).unwrap();
        self.wait_for(&far, RDHUP, LONG);
        self.system.reset(near.as_fd()).unwrap();
        self.wait_for(&far, 0, LONG.filter(|_| !self.unix));
        self.note_receive("far", &far);
        self.note_send("far", &far, b"more");
    }

    fn refused(&mut self) {
        let (listener, address) = self.listen();
        drop(listener);
        let socket = self.socket(&address);
        let to = SocketAddress::try_from(&address).unwrap();
        let result = self.calls.connect(socket.as_raw_fd(), &to);
        self.note("connect", show(result.map(|()| 0)));
        if !self.unix {
            self.note_mask("socket", &socket, OUT);
            let error = self.system.take_error(socket.as_raw_fd());
            self.note("error", error.map_or(0, Errno::code));
            let error = self.system.take_error(socket.as_raw_fd());
            self.note("error again", error.map_or(0, Errno::code));
        }
    }

    fn full(&mut self) {
        let (near, far) = self.pair();
        let piece = [7u8; 4096];
        let mut sent = 0;
        loop {
            match self.send(&near, &piece) {
                Ok(count) => sent += count,
                Err(Errno::EAGAIN) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let mask = self.wait_for(&near, OUT, Some(Duration::ZERO));
        self.note("near, full, is ready for", names(mask));
        let mut poll = P::create().unwrap();
        poll.add(near.as_raw_fd(), OUT | EDGE, 0).unwrap();
        let mut received = 0;
        while received < sent {
            received += self.receive(&far).unwrap();
        }
        self.note("all arrived", sent == received);
        let edge = self.next_event(&mut poll, LONG);
        self.note("the edge is", names(edge & (OUT | IN)));
        self.note_send("near", &near, b"room again");
    }

    /// Of room that another thread has filled before who waits for it looked, the next is told. Not on TCP, which empties its
    /// buffer when it sees fit (congestion control may pace), so that a script cannot say when there is no room.
    fn room_that_is_filled_again(&mut self) {
        if !self.unix {
            return;
        }
        let (near, far) = self.pair();
        let mut poll = P::create().unwrap();
        poll.add(near.as_raw_fd(), OUT | EDGE, 0).unwrap();
        let edge = self.next_event(&mut poll, Some(Duration::ZERO));
        self.note("the first edge is", names(edge));
        let mut sent = 0;
        for round in 0..2 {
            // Of the second round no send is refused, which would have the kernel tell of room.
            while round == 0 || self.wait_for(&near, OUT, Some(Duration::ZERO)) & OUT != 0 {
                match self.send(&near, &[7; 64]) {
                    Ok(count) => sent += count,
                    Err(Errno::EAGAIN) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            if round == 1 {
                let edge = self.next_event(&mut poll, Some(Duration::ZERO));
                self.note("with the room filled it is", names(edge));
            }
            while sent > 0 {
                sent -= self.receive(&far).unwrap();
            }
        }
        // Not noted: with faults the simulated kernel tells of what is not there, which must not hide that it does not tell of this.
        assert_eq!(names(self.next_event(&mut poll, LONG)), names(OUT));
    }

    fn edges_come_once(&mut self) {
        let (near, far) = self.pair();
        let mut poll = P::create().unwrap();
        poll.add(far.as_raw_fd(), IN | RDHUP | EDGE, 9).unwrap();
        self.note_send("near", &near, b"one");
        let edge = self.next_event(&mut poll, LONG);
        self.note("edge", names(edge));
        let edge = self.next_event(&mut poll, Some(Duration::ZERO));
        self.note("edge again", names(edge));
        self.note_send("near", &near, b"two");
        let edge = self.next_event(&mut poll, LONG);
        self.note("edge of more", names(edge));
        self.note_receive("far", &far);
        self.system.shutdown_send(near.as_fd()).unwrap();
        let edge = self.next_event(&mut poll, LONG);
        self.note("edge of the end", names(edge));
        poll.remove(far.as_raw_fd()).unwrap();
        let removed = poll.remove(far.as_raw_fd());
        self.note("removed twice", show(removed.map(|()| 0)));
    }

    fn a_listener_that_goes(&mut self) {
        let (listener, address) = self.listen();
        let nobody = self.calls.accept(listener.as_raw_fd());
        self.note("accept of nobody", show(nobody.map(|_| 0)));
        let client = self.connect(&address);
        self.wait_for(&listener, IN, LONG);
        drop(listener);
        self.note_mask("client", &client, RDHUP);
        self.note_receive("client", &client);
    }

    fn names_of_sockets(&mut self) {
        let (listener, address) = self.listen();
        let other = self.socket(&address);
        let wanted = SocketAddress::try_from(&address).unwrap();
        let bound = self.system.bind(other.as_fd(), &wanted);
        self.note("bound twice", show(bound.map(|()| 0)));
        let client = self.connect(&address);
        let server = self.accept(&listener);
        let peer = self.system.peer_address(client.as_fd()).unwrap();
        self.note("peer", Address::try_from(&peer).unwrap() == address);
        let local = self.system.local_address(server.as_fd()).unwrap();
        self.note("local", Address::try_from(&local).unwrap() == address);
        let connected = self.calls.connect(client.as_raw_fd(), &wanted);
        self.note("connected twice", show(connected.map(|()| 0)));
        let listens = self.system.is_listening(listener.as_fd());
        self.note("listens", listens.unwrap());
        let listens = self.system.is_listening(client.as_fd());
        self.note("listens", listens.unwrap());
        let shared = self.system.duplicate(client.as_fd()).unwrap();
        drop(client);
        self.note_send("the duplicate", &shared, b"hello");
        self.note_receive("server", &server);
        drop(shared);
        self.note_receive("server", &server);
    }
}

/// A script, to be run on either kernel.
macro_rules! scripts {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            for unix in [false, true] {
                let real = run::<Epoll, _>(Linux, unix, Script::$name);
                let name = format!("{} on {}", stringify!($name), if unix { "Unix" } else { "TCP" });
                compare(&name, &real, &|| run::<SimEpoll, _>(SimSockets, unix, Script::$name));
            }
        }
    )* };
}

pub(crate) fn run<P: EpollSys, K: SocketSys>(system: K, unix: bool, body: fn(&mut Script<P, K>)) -> Notes {
    let mut script = Script::new(system, unix);
    body(&mut script);
    script.notes
}

scripts! {
    echo half_close close_after_data close_with_something_unread reset reset_after_the_end refused full
    room_that_is_filled_again edges_come_once a_listener_that_goes names_of_sockets
}
