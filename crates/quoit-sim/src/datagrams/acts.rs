//! What the random handler does with datagram sockets.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use quoit::internals::engine::Engine;
use quoit::internals::sys::{DatagramOption, SocketSys};
use quoit::{Address, Command, DatagramSend, DatagramSocket, DatagramSocketId, Ecn, Payload, Refusal, Token};
use quoit_sim_kernel::faces::SimSockets;
use quoit_sim_kernel::kernel::with;
use quoit_sim_kernel::pattern;

use super::sending::{Content, Sending};
use super::{KeptDatagrams, Opening};
use crate::handler::Memory;
use crate::world::World;

/// Datagrams of one send, at most: a few batches.
const MOST_DATAGRAMS: usize = 300;

impl<E: Engine + 'static> World<E> {
    /// What is done with datagrams before a turn.
    pub(crate) fn act_with_datagrams(&mut self, turn: u32) {
        if self.datagrams.is_absent() {
            return;
        }
        while let Some(&(at, number)) = self.datagrams.to_open.last()
            && at <= turn
        {
            self.datagrams.to_open.pop();
            self.open_datagrams(number, turn);
        }
        for _ in 0..self.datagrams.random.below(3) {
            if let Some(id) = self.some_socket() {
                self.on_datagram_occasion(id);
            }
        }
        self.conclude_group_changes();
        self.act_on_groups();
        if self.datagrams.random.chance(300) {
            self.release_some_datagrams();
        }
        if self.datagrams.random.chance(60) {
            self.act_elsewhere_with_datagrams();
        }
    }

    /// Not where no socket has any, so that other runs are the same.
    fn act_on_groups(&mut self) {
        if self.ending || with(|kernel| kernel.is_fair()) {
            return;
        }
        for index in 0..self.datagrams.sockets.len() {
            let state = &self.datagrams.sockets[index];
            let (id, has) = (state.id, state.opened && !state.plan.groups.is_empty());
            if has && self.datagrams.random.chance(250) {
                self.change_groups(id);
            }
        }
    }

    fn some_socket(&mut self) -> Option<DatagramSocketId> {
        let lives = &mut self.datagrams;
        let count = lives.sockets.len() as u64;
        (count > 0).then(|| lives.sockets[lives.random.below(count) as usize].id)
    }

    /// Opens a socket of the plan, if it can be had.
    fn open_datagrams(&mut self, number: usize, turn: u32) {
        let Ok(sockets) = self.bind_datagrams(number) else {
            // The address is still taken, the peer is not there, or there is no descriptor.
            let later = turn + self.datagrams.random.magnitude(50) as u32;
            self.datagrams.to_open.insert(0, (later, number));
            return;
        };
        for (number, socket) in sockets {
            self.hand_over(number, socket);
        }
    }

    /// Gives a socket to the loop, by the method or with a batch.
    fn hand_over(&mut self, number: usize, socket: DatagramSocket) {
        let plan = &self.datagrams.plan.sockets[number];
        let descriptor = socket.as_fd().as_raw_fd();
        if plan.meddled_with {
            let _ = SimSockets.set_datagram_option(socket.as_fd(), DatagramOption::Timestamps);
        }
        let watch = with(|kernel| kernel.watch_datagrams(descriptor, plan.drops));
        let token = self.datagram_token();
        let opening = Opening {
            token,
            number,
            descriptor,
            watch,
        };
        if self.may_batch() && self.datagrams.random.chance(300) {
            self.datagrams.opening.push(opening);
            let socket = Box::new(socket);
            self.batch.push(Command::OpenDatagram { socket, token });
        } else if let Ok(id) = self.event_loop.open_datagram(socket, token) {
            self.begin_datagrams(id, &opening);
        }
    }

    /// A socket that has closed may be opened again.
    pub(super) fn open_again(&mut self, number: usize) {
        if !self.ending && self.datagrams.random.chance(700) {
            let later = self.turns() + self.datagrams.random.magnitude(50) as u32;
            self.datagrams.to_open.insert(0, (later, number));
        }
    }

    fn may_batch(&self) -> bool {
        !self.plan.one_by_one
    }

    /// Not those of connections, whose numbers follow each other.
    fn datagram_token(&mut self) -> Token {
        self.datagrams.next_stream += 1;
        Token(1 << 50 | self.datagrams.next_stream)
    }

    /// What to do with received datagrams.
    pub(crate) fn handle_datagrams(&mut self, kept: KeptDatagrams) {
        let Some(state) = self.datagrams.find(kept.socket) else {
            return;
        };
        let (style, id) = (state.plan.style, kept.socket);
        let is_fair = with(|kernel| kernel.is_fair());
        let lives = &mut self.datagrams;
        if !is_fair && lives.answers_left > 0 && lives.random.chance(style.echo) {
            lives.answers_left -= 1;
            self.answer(kept);
        } else if is_fair {
            kept.check();
        } else if lives.random.chance(style.keep) {
            lives.kept.push_back(kept);
        } else if lives.random.chance(style.elsewhere) {
            let after = lives.random.magnitude(3_000_000);
            with(|kernel| kernel.plan_job(after, Box::new(move || kept.check())));
        }
        self.on_datagram_occasion(id);
    }

    /// Sends what was received back, without a copy.
    fn answer(&mut self, kept: KeptDatagrams) {
        let KeptDatagrams {
            socket,
            handed,
            datagrams,
        } = kept;
        if handed.from == Address::UnixUnnamed {
            return;
        }
        let content = Content::Bytes(handed.bytes.slice(..handed.length));
        let step = (handed.facts.segment_size > 0).then_some(handed.facts.segment_size);
        let token = if self.datagrams.random.chance(500) {
            self.datagram_token()
        } else {
            Token::NONE
        };
        let datagram = DatagramSend {
            segment_size: step,
            token,
            ..DatagramSend::new(handed.from.clone(), datagrams)
        };
        let sending = Sending::new(handed.from, content, step, token);
        self.send_datagram(socket, datagram, sending);
    }

    /// An occasion to do something with a socket.
    pub(crate) fn on_datagram_occasion(&mut self, id: DatagramSocketId) {
        if with(|kernel| kernel.is_fair()) {
            return;
        }
        let Some(state) = self.datagrams.find(id) else {
            return;
        };
        let style = state.plan.style;
        if self.datagrams.random.chance(style.talk) {
            for _ in 0..self.datagrams.random.magnitude(8) {
                self.talk_in_datagrams(id, style.longest);
            }
        }
        if self.datagrams.random.chance(style.meddle) {
            self.meddle_with_datagrams(id, style.end);
        }
    }

    /// Sends something to somebody.
    fn talk_in_datagrams(&mut self, id: DatagramSocketId, longest: u64) {
        let Some((datagram, sending)) = self.make_datagram(id, longest) else {
            return;
        };
        self.send_datagram(id, datagram, sending);
    }

    /// Something to be sent, and what is to be remembered of it.
    fn make_datagram(
        &mut self,
        id: DatagramSocketId,
        longest: u64,
    ) -> Option<(DatagramSend<'static>, Sending)> {
        let lives = &mut self.datagrams;
        let state = lives.sockets.iter().find(|socket| socket.id == id)?;
        let unix = state.plan.address.is_unix();
        let like = |address: &&Address| match (address, &state.plan.address) {
            (Address::Tcp(one), Address::Tcp(own)) => one.is_ipv4() == own.is_ipv4(),
            (one, own) => one.is_unix() == own.is_unix(),
        };
        let peers = lives.plan.peers.iter().map(|(_, peer)| &peer.address);
        let sockets = lives.plan.sockets.iter().map(|socket| &socket.address);
        let fixed = lives.plan.nowhere.iter().chain(&lives.plan.groups);
        let mut targets = peers.chain(sockets).chain(fixed).filter(like);
        let peer = state.plan.options.peer.clone();
        let v4 = matches!(&state.plan.address, Address::Tcp(address) if address.is_ipv4());
        let to = match peer {
            Some(_) if lives.random.chance(700) => None,
            _ => {
                let place = lives.random.below(targets.clone().count() as u64) as usize;
                targets.nth(place).cloned()
            }
        };
        lives.next_stream += 1;
        let stream = lives.next_stream;
        let length = (lives.random.magnitude(longest + 1) as usize - 1).min(pattern::LONGEST);
        let step = lives
            .random
            .chance(300)
            .then(|| lives.random.magnitude(longest.min(2000)) as u16);
        let length = step.map_or(length, |step| length.min(usize::from(step) * MOST_DATAGRAMS));
        let bytes = pattern::bytes(stream, 0, length);
        let ecn = (!unix && lives.random.chance(300)).then(|| Ecn::from_bits(lives.random.below(4) as u8));
        let source = (v4 && lives.random.chance(60)).then(|| IpAddr::from([127, 0, 0, 2]));
        let token = if lives.random.chance(600) {
            self.datagram_token()
        } else {
            Token::NONE
        };
        let (payload, free) = if self.datagrams.random.chance(500) {
            (Payload::Copy(bytes), None)
        } else {
            let free = Arc::new(AtomicBool::new(false));
            let memory = Memory::new(bytes, Arc::clone(&free));
            (Payload::Bytes(Bytes::from_owner(memory)), Some(free))
        };
        let sent_to = to.clone().or(peer)?;
        let sending = Sending {
            ecn: ecn.map_or(0, |ecn| ecn as u8),
            source,
            free,
            ..Sending::new(sent_to, Content::Pattern(stream, length), step, token)
        };
        let datagram = DatagramSend {
            payload,
            to,
            segment_size: step,
            source,
            interface: None,
            ecn,
            token,
        };
        Some((datagram, sending))
    }

    /// Sends by the method, or by a batch with the next turn.
    fn send_datagram(&mut self, id: DatagramSocketId, datagram: DatagramSend<'_>, sending: Sending) {
        let length = datagram.payload.len();
        let result = self.event_loop.send_datagram(id, datagram);
        with(|kernel| {
            kernel.note(|| {
                format!(
                    "datagram of {length} bytes to {:?} from {id:?}, {:?}: {result:?}",
                    sending.to, sending.token
                )
            });
        });
        let full = self.event_loop.is_datagram_full(id);
        let Some(state) = self.datagrams.find(id) else {
            assert_eq!(result, Err(Refusal::Stale), "{id:?} has closed");
            return;
        };
        match result {
            Ok(()) => {
                assert!(!state.closing, "{id:?} takes sends although it is closing");
                state.add_send(sending);
                if full {
                    state.writable_owed = true;
                    state.times_full += 1;
                }
            }
            Err(Refusal::Full) => {
                state.writable_owed = true;
                state.times_full += 1;
            }
            // Stale: its end is on the way, behind other events.
            Err(Refusal::Closing | Refusal::TooLarge | Refusal::Stale) => {}
            Err(refusal) => panic!("a send on {id:?} is refused: {refusal}"),
        }
    }

    /// A command that changes the socket's state.
    fn meddle_with_datagrams(&mut self, id: DatagramSocketId, end: u32) {
        if self.datagrams.random.chance(end) {
            self.close_datagrams(id);
            return;
        }
        let choice = self.datagrams.random.below(5);
        let longest = 1500;
        let Some(state) = self.datagrams.find(id) else {
            return;
        };
        match choice {
            0 | 1 if !state.paused => {
                state.paused = true;
                self.command(Command::PauseDatagrams { socket: id });
            }
            0..=2 => self.resume_datagrams(id),
            _ if self.may_batch() => {
                // Several in a batch, each of which may be refused by an event.
                let mut datagrams = Vec::new();
                for _ in 0..self.datagrams.random.magnitude(4) {
                    if let Some((datagram, sending)) = self.make_datagram(id, longest) {
                        datagrams.push(self.with_token(id, datagram, sending));
                    }
                }
                self.batch.push(Command::SendDatagrams {
                    socket: id,
                    datagrams,
                });
            }
            _ => {}
        }
    }

    /// Gives a send that may be refused later a token, and takes note of it.
    fn with_token(
        &mut self,
        id: DatagramSocketId,
        datagram: DatagramSend<'static>,
        sending: Sending,
    ) -> DatagramSend<'static> {
        let token = self.datagram_token();
        if let Some(state) = self.datagrams.find(id) {
            // It may fill the queue.
            state.times_full += 1;
            state.add_send(Sending {
                token,
                on_the_way: true,
                ..sending
            });
        }
        DatagramSend { token, ..datagram }
    }

    fn close_datagrams(&mut self, id: DatagramSocketId) {
        with(|kernel| kernel.note(|| format!("close of {id:?}")));
        let closed = self.event_loop.close_datagram(id);
        if let Some(state) = self.datagrams.find(id) {
            assert!(
                closed.is_ok() || state.closing || state.may_be_closing || self.ending,
                "{id:?} cannot be closed: {closed:?}"
            );
            state.closing = true;
        }
    }

    fn resume_datagrams(&mut self, id: DatagramSocketId) {
        if let Some(state) = self.datagrams.find(id)
            && state.paused
        {
            state.paused = false;
            self.command(Command::ResumeDatagrams { socket: id });
        }
    }

    /// Resumes all that are paused.
    pub(crate) fn resume_all_datagrams(&mut self) {
        for index in 0..self.datagrams.sockets.len() {
            self.resume_datagrams(self.datagrams.sockets[index].id);
        }
    }

    /// Closes some at the end, and leaves the others to the loop that drains.
    pub(crate) fn close_some_datagrams(&mut self) {
        for index in 0..self.datagrams.sockets.len() {
            let state = &self.datagrams.sockets[index];
            let (id, closing) = (state.id, state.closing);
            if !closing && self.datagrams.random.chance(200) {
                self.close_datagrams(id);
            }
        }
    }

    /// Lets go of some of the datagrams that are kept, in any order.
    pub(crate) fn release_some_datagrams(&mut self) {
        let lives = &mut self.datagrams;
        for _ in 0..lives.random.below(4) {
            if lives.kept.is_empty() {
                return;
            }
            let index = lives.random.below(lives.kept.len() as u64) as usize;
            if let Some(kept) = lives.kept.swap_remove_back(index) {
                kept.check();
            }
        }
    }

    /// Whether the handler reacts to pressure.
    pub(crate) fn datagrams_let_go(&mut self) -> bool {
        self.datagrams.random.chance(700)
    }

    /// Another thread posts a command.
    fn act_elsewhere_with_datagrams(&mut self) {
        let Some(id) = self.some_socket() else { return };
        let after = self.datagrams.random.magnitude(1_000_000);
        let remote = self.remote.clone();
        let unposted = Rc::clone(&self.datagrams.unposted);
        let (command, token) = if self.datagrams.random.chance(200) {
            if let Some(state) = self.datagrams.find(id) {
                state.may_be_closing = true;
            }
            (Command::CloseDatagram { socket: id }, Token::NONE)
        } else {
            let Some((datagram, sending)) = self.make_datagram(id, 1500) else {
                return;
            };
            let datagram = self.with_token(id, datagram, sending);
            let token = datagram.token;
            let datagrams = vec![datagram];
            (
                Command::SendDatagrams {
                    socket: id,
                    datagrams,
                },
                token,
            )
        };
        let job = Box::new(move || {
            if remote.post(command).is_err() && token != Token::NONE {
                unposted.borrow_mut().push(token);
            }
        });
        with(|kernel| kernel.plan_job(after, job));
    }
}
