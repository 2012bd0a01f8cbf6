//! What the random handler does: on occasions of its own, and when something happens.

use std::any::Any;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use quoit::internals::engine::Engine;
use quoit::{
    AttachOptions, Command, ConnectOptions, ConnectionId, FileRange, OnShort, Payload, RawPieces, Refusal,
    Token,
};
use quoit_event_order::Lent;
use quoit_sim_kernel::faces::file;
use quoit_sim_kernel::kernel::with;
use quoit_sim_kernel::pattern;
use quoit_sim_kernel::random::Random;

use crate::checks::{Kept, check_send_error};
use crate::world::World;

/// Lent memory that tells when it is let go of, and is spoilt then.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: Box<[u8]>,
    free: Arc<AtomicBool>,
}

impl Memory {
    pub(crate) fn new(bytes: &[u8], free: Arc<AtomicBool>) -> Self {
        Self {
            bytes: bytes.into(),
            free,
        }
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.free.store(true, Ordering::Relaxed);
        self.bytes.fill(0xdd);
        // A kernel that reads it all the same finds wrong bytes, and not another's memory.
        with_graveyard(std::mem::take(&mut self.bytes));
    }
}

thread_local! {
    static GRAVEYARD: std::cell::RefCell<Vec<Box<[u8]>>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn with_graveyard(bytes: Box<[u8]>) {
    // At a thread's end there is none, and nobody to read.
    let _ = GRAVEYARD.try_with(|graveyard| graveyard.borrow_mut().push(bytes));
}

/// Frees what lent memory is left of earlier runs.
pub(crate) fn bury() {
    GRAVEYARD.with_borrow_mut(Vec::clear);
}

/// Cuts bytes into pieces, some of them empty.
fn cut<'a>(random: &mut Random, bytes: &'a [u8]) -> Vec<IoSlice<'a>> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    for _ in 0..random.below(6) {
        let (piece, later) = rest.split_at(random.below(rest.len() as u64 + 1) as usize);
        pieces.push(IoSlice::new(piece));
        rest = later;
    }
    pieces.push(IoSlice::new(rest));
    pieces
}

impl<E: Engine + 'static> World<E> {
    fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    /// Connects to a peer.
    pub(crate) fn connect(&mut self, peer: usize) {
        let address = with(|kernel| kernel.peers[peer].plan.address.clone());
        let options = ConnectOptions {
            timeout: self
                .random
                .chance(300)
                .then(|| Duration::from_nanos(100_000 + self.random.magnitude(100_000_000))),
            paused: self.random.chance(100),
            ..ConnectOptions::default()
        };
        let token = self.token();
        if let Ok(id) = self.event_loop.connect(&address, &options, token) {
            self.reference.begin(id, token, false, options.paused);
            let state = self.reference.find(id).expect("begun just now");
            state.notes.peer = Some(peer);
            if self.random.chance(200) {
                let after = self.random.magnitude(5_000_000);
                self.set_deadline(id, after);
            }
        }
    }

    fn set_deadline(&mut self, id: ConnectionId, after: u64) {
        let now = with(|kernel| kernel.now());
        if self
            .event_loop
            .set_deadline(id, Some(Duration::from_nanos(after)))
            .is_ok()
            && let Some(state) = self.reference.find(id)
        {
            state.deadline = Some(now + after);
        }
    }

    /// Gives one of the attempts to connect up, if there is any.
    fn give_up_an_attempt(&mut self) {
        let attempts = |world: &mut Self, id: &ConnectionId| {
            world.reference.find(*id).is_some_and(|state| !state.established)
        };
        let place = self.random.below(8) as usize;
        let open = self.reference.open().to_vec();
        let attempt = open.into_iter().filter(|id| attempts(self, id)).nth(place);
        if let Some(id) = attempt {
            if self.random.chance(500) {
                self.close(id);
            } else {
                self.abort(id);
            }
        }
    }

    /// Makes an accepted descriptor a connection, or drops it.
    pub(crate) fn attach(&mut self, descriptor: OwnedFd) {
        if self.random.chance(100) || self.ending {
            return;
        }
        let token = self.token();
        let options = AttachOptions {
            paused: self.random.chance(300),
            ..AttachOptions::default()
        };
        if let Ok(id) = self.event_loop.attach(descriptor, &options, token) {
            self.note_command("attach", id);
            self.reference.begin(id, token, false, options.paused);
        }
    }

    /// Something that the handler does by itself, before a turn.
    pub(crate) fn act_at_random(&mut self) {
        for _ in 0..self.random.below(3) {
            let open = self.reference.open();
            if open.is_empty() {
                break;
            }
            let id = *self.random.choose(open);
            self.on_occasion(id);
        }
        if self.random.chance(300) {
            self.release_some();
        }
        if self.random.chance(60) {
            self.use_timers();
        }
        if self.random.chance(40) {
            self.give_up_an_attempt();
        }
        if self.random.chance(60) {
            self.act_elsewhere();
        }
        self.pace_listening();
        if self.random.chance(4)
            && let Some(listener) = self.listeners.pop()
        {
            // It may have failed by itself, which is as good.
            let _ = self.event_loop.stop_listening(listener);
        }
    }

    /// Pauses or resumes a listener, now or as another thread does.
    fn pace_listening(&mut self) {
        if !self.plan.pauses_listening || self.listeners.is_empty() || !self.listening_random.chance(150) {
            return;
        }
        let listener = *self.listening_random.choose(&self.listeners);
        let pauses = self.listening_random.chance(512);
        if self.listening_random.chance(256) {
            let command = if pauses {
                Command::PauseListening { listener }
            } else {
                Command::ResumeListening { listener }
            };
            // A full inbox gives it back, and that is that.
            drop(self.remote.post(command));
            return;
        }
        // It may have failed by itself, which is as good.
        let _ = if pauses {
            self.event_loop.pause_listening(listener)
        } else {
            self.event_loop.resume_listening(listener)
        };
    }

    /// Nobody waits in vain for a listener any more.
    pub(crate) fn resume_listening(&mut self) {
        for listener in &self.listeners {
            let _ = self.event_loop.resume_listening(*listener);
        }
    }

    fn use_timers(&mut self) {
        let token = Token(1 << 40 | self.random.below(4));
        let now = with(|kernel| kernel.now());
        if self.random.chance(300) {
            // One that has fired is on its way.
            if self.event_loop.cancel_named_timer(token) {
                self.reference.order.timers.remove(&token.0);
            }
            return;
        }
        let after = self.random.magnitude(20_000_000);
        if !self.reference.order.timers.contains_key(&token.0)
            && self
                .event_loop
                .set_named_timer(Duration::from_nanos(after), token)
                .is_ok()
        {
            self.reference.order.timers.insert(token.0, now + after);
        }
    }

    /// Another thread wakes the loop, or posts a command.
    fn act_elsewhere(&mut self) {
        let remote = self.remote.clone();
        let wake_owed = Rc::clone(&self.wake_owed);
        let after = self.random.magnitude(1_000_000);
        let open = self.reference.open();
        let id = (!open.is_empty()).then(|| *self.random.choose(open));
        let command = match (self.random.below(3), id) {
            (1, Some(connection)) => {
                let deadline = None;
                Some(Command::Close { connection, deadline })
            }
            (2, Some(connection)) => Some(Command::Abort { connection }),
            _ => None,
        };
        if let (Some(_), Some(id)) = (&command, id)
            && let Some(state) = self.reference.find(id)
        {
            state.notes.may_be_closing = true;
        }
        let job = Box::new(move || match command {
            // A full inbox gives it back, and that is that.
            Some(command) => drop(remote.post(command)),
            None => {
                wake_owed.set(true);
                remote.wake();
            }
        });
        with(|kernel| kernel.plan_job(after, job));
    }

    /// What to do with received bytes.
    pub(crate) fn handle(&mut self, kept: Kept) {
        let style = self.styles[kept.peer];
        if self.random.chance(style.echo) {
            // They are the bytes of its stream there, as was checked when they came.
            let bytes = pattern::bytes(kept.peer as u64, kept.offset, kept.data.len());
            let token = if self.random.chance(500) {
                self.token()
            } else {
                Token::NONE
            };
            let free = Arc::clone(&self.always_free);
            self.send(
                kept.connection,
                Payload::Lease(kept.data),
                bytes,
                token,
                Some(free),
            );
        } else if with(|kernel| kernel.is_fair()) {
            drop(kept);
        } else if self.random.chance(style.keep) {
            self.kept.push_back(kept);
        } else if self.random.chance(style.elsewhere) {
            let after = self.random.magnitude(3_000_000);
            with(|kernel| kernel.plan_job(after, Box::new(move || kept.check())));
        }
    }

    /// An occasion to do something with a connection.
    pub(crate) fn on_occasion(&mut self, id: ConnectionId) {
        let Some(state) = self.reference.find(id) else {
            return;
        };
        if with(|kernel| kernel.is_fair()) {
            return;
        }
        let Some(peer) = state.notes.peer else { return };
        let style = self.styles[peer];
        if self.random.chance(style.talk) {
            for _ in 0..self.random.between(1, 3) {
                self.talk(id, style.longest);
            }
        }
        if self.random.chance(style.meddle) {
            self.meddle(id, style.end);
        }
    }

    fn talk(&mut self, id: ConnectionId, longest: u64) {
        let length = self.random.magnitude(longest) as usize;
        let stream = self.random.below(1 << 20);
        let bytes = pattern::bytes(stream, 0, length);
        let token = if self.random.chance(600) {
            self.token()
        } else {
            Token::NONE
        };
        if self.plan.gathers && self.gather_random.chance(400) {
            self.try_send_gathered(id, bytes);
            return;
        }
        match self.random.below(9) {
            0 => self.try_send(id, bytes),
            1..=3 => self.send(id, Payload::Copy(bytes), bytes, Token::NONE, None),
            4..=6 => {
                let free = Arc::new(AtomicBool::new(false));
                let memory = Memory::new(bytes, Arc::clone(&free));
                let payload = Payload::Bytes(Bytes::from_owner(memory));
                self.send(id, payload, bytes, token, Some(free));
            }
            7 => self.send_gathered(id, bytes, token),
            _ => self.send_file(id, stream, bytes, token),
        }
    }

    /// Lends memory in pieces, some of them empty.
    fn send_gathered(&mut self, id: ConnectionId, bytes: &[u8], token: Token) {
        let memory = Memory::new(bytes, Arc::clone(&self.always_free));
        let pieces = cut(&mut self.random, memory.as_ref());
        // SAFETY: the reference keeps the memory until the send is acknowledged or the connection closed; then it is
        // overwritten, but not freed.
        let list = unsafe { RawPieces::new(&pieces) };
        let result = self.event_loop.send_gathered(id, list, token);
        let free = Arc::clone(&self.always_free);
        self.after_send(id, result, bytes, token, Some(free), Some(memory));
    }

    fn send(
        &mut self,
        id: ConnectionId,
        payload: Payload<'_>,
        bytes: &[u8],
        token: Token,
        free: Option<Arc<AtomicBool>>,
    ) {
        let result = self.event_loop.send(id, payload, token);
        self.after_send(id, result, bytes, token, free, None);
    }

    /// Sends at once what the kernel takes, and queues the rest.
    fn try_send(&mut self, id: ConnectionId, bytes: &[u8]) {
        let result = self.event_loop.try_send(id, bytes);
        let taken = result.unwrap_or(0);
        self.after_send(id, result.map(|_| ()), &bytes[..taken], Token::NONE, None, None);
        if result.is_ok() && taken < bytes.len() {
            let rest = &bytes[taken..];
            self.send(id, Payload::Copy(rest), rest, Token::NONE, None);
        }
    }

    /// As [`World::try_send`], of pieces. The rest is copied, or lent in other pieces.
    fn try_send_gathered(&mut self, id: ConnectionId, bytes: &[u8]) {
        let pieces = cut(&mut self.gather_random, bytes);
        let result = self.event_loop.try_send_gathered(id, &pieces);
        with(|kernel| kernel.note(|| format!("{} pieces at once: {result:?}", pieces.len())));
        let taken = result.unwrap_or(0);
        assert!(taken <= bytes.len(), "more than there is was taken of {id:?}");
        self.after_send(id, result.map(|_| ()), &bytes[..taken], Token::NONE, None, None);
        if result.is_err() || taken == bytes.len() {
            return;
        }
        let rest = &bytes[taken..];
        if self.gather_random.chance(512) {
            let token = self.token();
            self.send_gathered(id, rest, token);
        } else {
            self.send(id, Payload::Copy(rest), rest, Token::NONE, None);
        }
    }

    fn send_file(&mut self, id: ConnectionId, stream: u64, bytes: &[u8], token: Token) {
        // One in four is shorter than what is promised of it.
        let missing = match self.file_random.below(4) {
            0 => self.file_random.magnitude(1 << 20),
            _ => 0,
        };
        let range = FileRange {
            file: file(stream, bytes.len() as u64),
            offset: 0,
            length: bytes.len() as u64 + missing,
            on_short: OnShort::Tell,
        };
        let result = self.event_loop.send_file(id, range, token);
        if missing > 0
            && result.is_ok()
            && let Some(state) = self.reference.find(id)
        {
            state.notes.files_short.push_back((token, missing));
        }
        let free = Arc::clone(&self.always_free);
        self.after_send(id, result, bytes, token, Some(free), None);
    }

    /// Takes note of what was accepted for sending, and that a refusal is one that may be.
    fn after_send(
        &mut self,
        id: ConnectionId,
        result: Result<(), Refusal>,
        bytes: &[u8],
        token: Token,
        free: Option<Arc<AtomicBool>>,
        kept: Option<Memory>,
    ) {
        let high = self.event_loop.is_full(id);
        if let Err(refusal) = result {
            with(|kernel| {
                kernel.note(|| format!("send of {} bytes to {id:?} is refused: {refusal}", bytes.len()))
            });
        }
        let Some(state) = self.reference.find(id) else {
            assert_eq!(result, Err(Refusal::Stale), "{id:?} has closed");
            return;
        };
        match result {
            Ok(()) => {
                assert!(
                    !state.closing && !state.notes.send_ended,
                    "{id:?} takes sends although it is closing"
                );
                if let Some(free) = free {
                    state.lent.push_back(Lent {
                        free: Some(free),
                        kept: kept.map(|memory| Box::new(memory) as Box<dyn Any>),
                        ..Lent::unwatched(token)
                    });
                }
                let peer = state.notes.peer;
                with(|kernel| {
                    kernel.note(|| format!("send of {} bytes to {id:?}, {token:?}", bytes.len()));
                    if let Some(peer) = peer {
                        kernel.peers[peer].expected.extend_from_slice(bytes);
                    }
                });
                if high {
                    self.reference.full(id);
                }
            }
            Err(Refusal::Full) => self.reference.full(id),
            // Stale: its end is on the way, behind other events.
            Err(Refusal::Closing | Refusal::TooLarge | Refusal::Stale) => {}
            Err(Refusal::Error(errno)) => check_send_error(id, errno),
            Err(refusal) => panic!("a send on {id:?} is refused: {refusal}"),
        }
    }

    /// A command that changes the connection's state, by a method or in the next batch.
    fn meddle(&mut self, id: ConnectionId, end: u32) {
        if self.random.chance(end) {
            match self.random.below(3) {
                0 => self.shutdown(id),
                1 => self.close(id),
                _ => self.abort(id),
            }
            return;
        }
        let Some(state) = self.reference.find(id) else {
            return;
        };
        match self.random.below(5) {
            0 | 1 if !state.paused => self.pause(id),
            0..=2 => self.resume(id),
            _ => {
                let after = self.random.magnitude(50_000_000);
                self.set_deadline(id, after);
            }
        }
    }

    /// Pauses a connection, which may have ended: what is queued of it is delivered then, if it is gone, and never after a
    /// pause that was taken.
    fn pause(&mut self, id: ConnectionId) {
        let result = self.command(Command::Pause { connection: id });
        assert!(
            result != Some(Err(Refusal::Stale)) || self.event_loop.descriptor(id).is_none(),
            "{id:?} is open, and its pause is refused as stale"
        );
        self.reference.some_paused = true;
        if let Some(state) = self.reference.find(id) {
            let has_closed = state.closing || state.notes.may_be_closing;
            if result == Some(Ok(())) && !has_closed && state.deadline.is_none() {
                // To clear what is not set changes nothing, and tells whether it is ending.
                assert_ne!(
                    self.event_loop.set_deadline(id, None),
                    Err(Refusal::Closing),
                    "{id:?} is ending and its pause is taken: what it had received would not be delivered"
                );
            }
            state.paused = result.is_none_or(|result| result.is_ok());
            state.notes.pause_may_be_refused = result.is_none();
        }
    }

    /// Carries a command out by its method now, or by a batch with the next turn, which comes to the same: `None`.
    pub(crate) fn command(&mut self, command: Command<'static>) -> Option<Result<(), Refusal>> {
        with(|kernel| kernel.note(|| format!("command {command:?}")));
        // A method does not overtake what waits in the batch.
        let may_wait = !self.plan.one_by_one;
        if may_wait && (self.random.chance(500) || !self.batch.is_empty()) {
            self.batch.push(command);
            return None;
        }
        Some(match command {
            Command::Pause { connection } => self.event_loop.pause(connection),
            Command::Resume { connection } => self.event_loop.resume(connection),
            Command::PauseDatagrams { socket } => self.event_loop.pause_datagrams(socket),
            Command::ResumeDatagrams { socket } => self.event_loop.resume_datagrams(socket),
            other => unreachable!("{other:?} is not given here"),
        })
    }

    fn resume(&mut self, id: ConnectionId) {
        if let Some(state) = self.reference.find(id)
            && state.paused
        {
            state.paused = false;
            self.command(Command::Resume { connection: id });
        }
    }

    pub(crate) fn shutdown(&mut self, id: ConnectionId) {
        self.note_command("shutdown", id);
        if self.event_loop.shutdown(id).is_ok()
            && let Some(state) = self.reference.find(id)
        {
            state.notes.send_ended = true;
        }
    }

    pub(crate) fn close(&mut self, id: ConnectionId) {
        let deadline = self
            .random
            .chance(300)
            .then(|| Duration::from_nanos(self.random.magnitude(1_000_000_000)));
        self.close_within(id, deadline, false);
    }

    /// Closes with so much time that it must succeed.
    pub(crate) fn close_fairly(&mut self, id: ConnectionId) {
        let fairly = self.reference.find(id).is_some_and(|state| state.established);
        self.close_within(id, Some(Duration::from_secs(60)), fairly);
    }

    fn close_within(&mut self, id: ConnectionId, deadline: Option<Duration>, fairly: bool) {
        self.note_command("close", id);
        // Refused, it has ended by itself, and what is on the way of it still comes.
        if self.event_loop.close(id, deadline).is_ok()
            && let Some(state) = self.reference.find(id)
        {
            state.closing = true;
            // One posted earlier may have its own deadline.
            state.notes.closed_fairly = fairly && !state.notes.may_be_closing;
            state.notes.closed_patiently = deadline.is_none() && !state.notes.may_be_closing;
        }
    }

    fn abort(&mut self, id: ConnectionId) {
        self.note_command("abort", id);
        if self.event_loop.abort(id).is_ok()
            && let Some(state) = self.reference.find(id)
        {
            state.closing = true;
            state.notes.closed_fairly = false;
        }
    }

    fn note_command(&mut self, what: &str, id: ConnectionId) {
        with(|kernel| kernel.note(|| format!("{what} of {id:?}")));
    }

    /// Lets go of some of the leases that are kept, in any order.
    pub(crate) fn release_some(&mut self) {
        for _ in 0..self.random.below(4) {
            if self.kept.is_empty() {
                return;
            }
            let index = self.random.below(self.kept.len() as u64) as usize;
            if let Some(kept) = self.kept.swap_remove_back(index) {
                kept.check();
            }
        }
    }

    pub(crate) fn release_all(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        for kept in self.kept.drain(..) {
            kept.check();
        }
    }

    pub(crate) fn resume_all(&mut self) {
        if !std::mem::take(&mut self.reference.some_paused) {
            return;
        }
        for index in 0..self.reference.open().len() {
            self.resume(self.reference.open()[index]);
        }
    }
}
