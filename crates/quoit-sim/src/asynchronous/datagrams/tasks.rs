//! What tasks do with a datagram socket: receive and send, in each way that there is.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use quoit::{DatagramSend, Datagrams, Payload, Token};
use quoit_async_sim::UdpSocket;
use quoit_sim_kernel::pattern;
use quoit_sim_kernel::random::Random;
use tokio::io::ReadBuf;

use super::super::plan::PURPOSE;
use super::super::shared::{Awaited, Patience, Shared};
use super::super::tasks::{WAIT, patience};
use super::Reference;
use crate::datagrams::sending::{Content, Sending};
use crate::handler::Memory;

/// Datagrams of one send, at most.
const MOST_DATAGRAMS: usize = 100;

/// What one task has.
struct User {
    shared: Rc<Shared>,
    socket: Rc<UdpSocket>,
    reference: Rc<RefCell<Reference>>,
    random: Random,
    /// Of those that receive or send: the one that polls.
    polls: bool,
    /// Nobody else does what it does.
    alone: bool,
}

/// Begins the tasks of a socket, which ends with the last of them.
pub(super) fn begin(
    shared: &Rc<Shared>,
    socket: &Rc<UdpSocket>,
    reference: &Rc<RefCell<Reference>>,
    targets: &[SocketAddr],
    mut random: Random,
) {
    let (number, plan) = {
        let reference = reference.borrow();
        (reference.number, reference.plan.clone())
    };
    let mut user = |polls, alone| User {
        shared: Rc::clone(shared),
        socket: Rc::clone(socket),
        reference: Rc::clone(reference),
        random: Random::new(random.bits(), PURPOSE + 6),
        polls,
        alone,
    };
    for one in 0..plan.receivers {
        let task = user(one == 0, plan.receivers == 1).receive();
        shared
            .executor
            .spawn(format!("the receiver {one} of socket {number}"), task);
    }
    let like = |target: &&SocketAddr| target.is_ipv4() == plan.address.is_ipv4();
    let targets: Vec<_> = targets.iter().filter(like).copied().collect();
    for one in 0..plan.senders {
        let streams = 1 + (number * 16 + one as usize) as u64 * 100_000;
        let task = user(one == 0, plan.senders == 1).send(targets.clone(), streams);
        shared
            .executor
            .spawn(format!("the sender {one} of socket {number}"), task);
    }
}

impl User {
    fn awaited(&self, sends: bool) -> Awaited {
        let socket = self.reference.borrow().number;
        if sends {
            Awaited::DatagramRoom { socket }
        } else {
            Awaited::Datagram { socket }
        }
    }

    async fn rest(&mut self, rests: u32) {
        if self.random.chance(rests) {
            let time = self.random.magnitude(WAIT);
            self.shared.rest(time).await;
        }
    }

    async fn receive(mut self) {
        let plan = self.reference.borrow().plan.clone();
        let mut acts = plan.acts;
        while !self.shared.stop.get() {
            // Then it waits for all that still comes.
            let waits = acts == 0;
            acts = acts.saturating_sub(1);
            let patience = if waits {
                Patience::UntilTheEnd
            } else {
                if self.random.chance(plan.ends) {
                    return;
                }
                self.rest(plan.rests).await;
                patience(&mut self.random, plan.drops)
            };
            if self.receive_some(plan.gulp, plan.keeps, patience, waits).await {
                return;
            }
        }
    }

    /// Receives once, in some way. Returns whether the socket has ended.
    async fn receive_some(&mut self, gulp: u64, keeps: u32, patience: Patience, waits: bool) -> bool {
        let (awaited, shared) = (self.awaited(false), Rc::clone(&self.shared));
        let socket = Rc::clone(&self.socket);
        let mut buffer = vec![0; self.random.magnitude(gulp) as usize];
        match self.random.below(if waits { 3 } else { 6 }) {
            0 => {
                let received = if self.polls && self.random.chance(512) {
                    let polling = async {
                        let mut read = ReadBuf::new(&mut buffer);
                        let from = poll_fn(|cx| socket.poll_recv_from(cx, &mut read)).await?;
                        Ok((read.filled().len(), from))
                    };
                    shared.wait(patience, awaited, polling).await
                } else {
                    shared
                        .wait(patience, awaited, socket.recv_from(&mut buffer))
                        .await
                };
                received.is_some_and(|received| self.copied(received, &buffer))
            }
            1 => {
                let received = if self.polls && self.random.chance(512) {
                    let polling = poll_fn(|cx| socket.poll_recv_datagrams(cx));
                    shared.wait(patience, awaited, polling).await
                } else {
                    shared.wait(patience, awaited, socket.recv_datagrams()).await
                };
                received.is_some_and(|received| self.taken(received, keeps))
            }
            2 => {
                let ready = shared.wait(patience, awaited, socket.readable()).await;
                let Some(ready) = ready else { return false };
                ready.expect("waiting fails never");
                let received = socket.try_recv_from(&mut buffer);
                let nothing = matches!(&received, Err(error) if error.kind() == ErrorKind::WouldBlock);
                assert!(
                    !nothing || !self.alone,
                    "a socket that is readable has nothing to read, and nobody else reads"
                );
                self.copied(received, &buffer)
            }
            3 => self.copied(socket.try_recv_from(&mut buffer), &buffer),
            4 => self.taken(socket.try_recv_datagrams(), keeps),
            _ => {
                // It tells no sender, so that only its length is seen.
                let mut received = shared.wait(patience, awaited, socket.readable()).await;
                if received.take().is_some() {
                    let from = self.reference.borrow_mut().next_from();
                    let received = socket.try_recv(&mut buffer);
                    let received = received.map(|length| (length, from.expect("what is read has a sender")));
                    return self.copied(received, &buffer);
                }
                false
            }
        }
    }

    fn failed(&self, what: &str, error: &io::Error) -> bool {
        error.kind() != ErrorKind::WouldBlock
            && self.reference.borrow().check_error(&self.shared, what, error)
    }

    fn copied(&mut self, received: io::Result<(usize, SocketAddr)>, buffer: &[u8]) -> bool {
        match received {
            Ok((length, from)) => {
                self.shared.progress();
                let mut reference = self.reference.borrow_mut();
                reference.copied(&buffer[..length], buffer.len(), from);
                false
            }
            Err(error) => self.failed("a receive", &error),
        }
    }

    fn taken(&mut self, received: io::Result<Datagrams>, keeps: u32) -> bool {
        match received {
            Ok(datagrams) => {
                self.shared.progress();
                self.reference.borrow_mut().taken(&datagrams);
                if self.random.chance(keeps) && !self.shared.stop.get() {
                    self.shared.keep_datagrams(datagrams);
                }
                false
            }
            Err(error) => self.failed("a receive", &error),
        }
    }

    async fn send(mut self, targets: Vec<SocketAddr>, mut stream: u64) {
        let plan = self.reference.borrow().plan.clone();
        for _ in 0..plan.acts {
            if self.shared.stop.get() || self.random.chance(plan.ends) {
                return;
            }
            self.rest(plan.rests).await;
            for _ in 0..self.random.magnitude(8) {
                stream += 1;
                let patience = patience(&mut self.random, plan.drops);
                if self.send_one(&targets, stream, plan.longest, patience).await {
                    return;
                }
            }
        }
    }

    /// Sends once, in some way. Returns whether the socket has ended.
    async fn send_one(
        &mut self,
        targets: &[SocketAddr],
        stream: u64,
        longest: u64,
        patience: Patience,
    ) -> bool {
        let (awaited, shared) = (self.awaited(true), Rc::clone(&self.shared));
        let socket = Rc::clone(&self.socket);
        let length = (self.random.magnitude(longest + 1) as usize - 1).min(pattern::LONGEST);
        let content = Content::numbered(stream, length, None);
        let bytes = &content[..];
        let peer = socket.peer_addr().ok();
        let to = *self.random.choose(targets);
        let sending =
            |to: SocketAddr| Sending::new(to.into(), Content::Bytes(content.clone()), None, Token::NONE);
        let (sent, sending) = match self.random.below(8) {
            0 => (Some(socket.try_send_to(bytes, to)), sending(to)),
            1 | 2 => return self.send_lent(to, stream, longest, patience).await,
            3 => {
                let ready = shared.wait(patience, awaited, socket.writable()).await;
                let sent = ready.map(|ready| {
                    ready.expect("waiting fails never");
                    socket.try_send_to(bytes, to)
                });
                (sent, sending(to))
            }
            4 if self.polls => {
                let polling = poll_fn(|cx| socket.poll_send_to(cx, bytes, to));
                (shared.wait(patience, awaited, polling).await, sending(to))
            }
            5 if peer.is_some() => {
                let to = peer.expect("looked at just now");
                let sent = if self.random.chance(512) {
                    Some(socket.try_send(bytes))
                } else {
                    shared.wait(patience, awaited, socket.send(bytes)).await
                };
                (sent, sending(to))
            }
            _ => {
                let sent = shared.wait(patience, awaited, socket.send_to(bytes, to)).await;
                (sent, sending(to))
            }
        };
        let sent = sent.map(|sent| sent.map(|count| assert_eq!(count, length, "what was sent")));
        self.sent(sent, sending)
    }

    /// Sends memory that is lent, also as several datagrams.
    async fn send_lent(&mut self, to: SocketAddr, stream: u64, longest: u64, patience: Patience) -> bool {
        let (awaited, shared) = (self.awaited(true), Rc::clone(&self.shared));
        let step = self
            .random
            .chance(400)
            .then(|| self.random.magnitude(longest.min(2000)) as u16);
        let most = step.map_or(pattern::LONGEST, |step| usize::from(step) * MOST_DATAGRAMS);
        let length = (self.random.magnitude(longest + 1) as usize - 1).min(most);
        let free = Arc::new(AtomicBool::new(false));
        let bytes = Content::numbered(stream, length, step);
        let memory = Memory::new(&bytes, Arc::clone(&free));
        let datagram = DatagramSend {
            segment_size: step,
            ..DatagramSend::new(to.into(), Payload::Bytes(Bytes::from_owner(memory)))
        };
        let mut sending = Sending::new(to.into(), Content::Bytes(bytes), step, Token::NONE);
        sending.free = Some(free);
        let sent = if self.random.chance(300) {
            Some(self.socket.try_send_datagram(datagram))
        } else {
            let socket = Rc::clone(&self.socket);
            shared
                .wait(patience, awaited, socket.send_datagram(datagram))
                .await
        };
        self.sent(sent, sending)
    }

    fn sent(&mut self, sent: Option<io::Result<()>>, sending: Sending) -> bool {
        let mut reference = self.reference.borrow_mut();
        match sent {
            Some(Ok(())) => {
                self.shared.progress();
                reference.sent(sending);
                false
            }
            Some(Err(error)) => {
                drop(reference);
                self.failed("a send", &error)
            }
            None => {
                // Nothing of it may leave.
                reference.note_passed();
                false
            }
        }
    }
}
