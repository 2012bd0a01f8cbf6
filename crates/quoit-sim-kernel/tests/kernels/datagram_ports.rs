//! Several datagram sockets on one port.

use std::os::fd::{AsFd, OwnedFd};

use quoit::Address;
use quoit::address::SocketAddress;
use quoit::internals::engine::epoll::sys::EpollSys;
use quoit::internals::sys::{DatagramOption, SocketOption, SocketSys};

use super::datagrams::{DatagramScript, fresh};
use super::sockets::show;

impl<P: EpollSys, K: SocketSys> DatagramScript<P, K> {
    /// A socket that may share its port, and what binding it there answers.
    fn sharing(&mut self, at: &Address) -> OwnedFd {
        let socket = self.nameless();
        let shared = self
            .base
            .system
            .set_option(socket.as_fd(), SocketOption::ReusePort(true));
        assert_eq!(shared, Ok(()));
        let at = SocketAddress::try_from(at).unwrap();
        let bound = self.base.system.bind(socket.as_fd(), &at);
        self.note("one more on the port", show(bound.map(|()| 0)));
        socket
    }

    fn note_steering(&mut self, socket: &OwnedFd, sockets: u16) {
        let steered = self
            .base
            .system
            .set_datagram_option(socket.as_fd(), DatagramOption::SteerByCpu { sockets });
        self.note("steered by processor", show(steered.map(|()| 0)));
    }

    /// Sends two datagrams from each of some sockets, and notes how many came, and whether each sender's came to one.
    fn note_spread(&mut self, senders: &[OwnedFd], to: &Address, members: &[&OwnedFd]) {
        for (number, sender) in senders.iter().enumerate() {
            let mark = [number as u8];
            for _ in 0..2 {
                assert_eq!(self.send(sender, Some(to), &mark), Ok(()));
            }
        }
        let mut came = vec![Vec::new(); members.len()];
        for (member, came) in members.iter().zip(&mut came) {
            while let Ok(got) = self.receive_now(member) {
                came.extend(got.iter().map(|got| got.bytes[0]));
            }
        }
        self.note("came", came.iter().map(Vec::len).sum::<usize>());
        let twice = |came: &Vec<u8>| {
            let mut counts = vec![0; senders.len()];
            came.iter().for_each(|&number| counts[usize::from(number)] += 1);
            counts.into_iter().all(|count| count != 1)
        };
        self.note("each sender reaches one", came.iter().all(twice));
    }

    pub(crate) fn several_on_one_port(&mut self) {
        if self.is_unix() {
            return;
        }
        let (alone, taken) = self.bound();
        self.sharing(&taken);
        self.note_steering(&alone, 1);
        let first = self.sharing(&fresh(self.family));
        let bound = self.base.system.local_address(first.as_fd()).unwrap();
        let shared = Address::try_from(&bound).unwrap();
        let second = self.sharing(&shared);
        let other = self.nameless();
        let refused = self.base.system.bind(other.as_fd(), &bound);
        self.note("one that does not share", show(refused.map(|()| 0)));
        let senders: Vec<_> = (0..8).map(|_| self.bound().0).collect();
        self.note_spread(&senders, &shared, &[&first, &second]);
        // With a count of one the program always names the first.
        self.note_steering(&second, 1);
        self.note_spread(&senders, &shared, &[&first]);
        self.note_receive("the second", &second);
        let third = self.sharing(&shared);
        self.note_spread(&senders, &shared, &[&first]);
        // The last takes the place of one that closes.
        drop(first);
        self.note_spread(&senders, &shared, &[&third]);
        self.note_receive("the second", &second);
        drop(third);
        self.note_spread(&senders, &shared, &[&second]);
        drop(second);
        let free = self.base.system.bind(other.as_fd(), &bound);
        self.note("the port is free", show(free.map(|()| 0)));
    }
}
