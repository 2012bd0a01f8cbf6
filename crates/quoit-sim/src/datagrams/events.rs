//! Events of datagram sockets: each is checked, and gives the handler an occasion to act.

use quoit::internals::engine::Engine;
use quoit::{DatagramError, DatagramSocketId, Errno, Event, Refusal, Token};
use quoit_sim_kernel::kernel::with;

use super::reference::Socket;
use super::{KeptDatagrams, Opening};
use crate::world::{Occasion, World};

impl<E: Engine + 'static> World<E> {
    /// Checks an event of a datagram socket, and returns what the handler is to react to.
    pub(crate) fn take_datagram_event(&mut self, event: Event) -> Option<Occasion> {
        match event {
            Event::DatagramOpened { socket, token } => self.note_opened(socket, token),
            Event::Datagrams { socket, datagrams } => {
                let handed = self.datagrams.state(socket).check_delivered(&datagrams);
                return Some(Occasion::Datagrams(KeptDatagrams {
                    socket,
                    handed,
                    datagrams,
                }));
            }
            Event::DatagramSent {
                socket,
                token,
                result,
            } => self.datagrams.state(socket).check_sent(token, result),
            Event::DatagramError { socket, error } => {
                let state = self.datagrams.state(socket);
                match error {
                    DatagramError::ControlTruncated => state.check_control_truncated(),
                    DatagramError::Send { errno, size } => state.note_send_error(errno, size),
                    DatagramError::TooLarge { size } => state.note_send_error(Errno::EMSGSIZE, size),
                    DatagramError::Receive(_) => {
                        assert!(!state.closing, "{error:?} of {socket:?} after it was closed");
                        state.failures += 1;
                    }
                    DatagramError::Unreachable(told) => state.check_unreachable(told),
                    // Of a receive, or in place of a send.
                    DatagramError::Network(errno) => state.note_network_error(errno),
                    other => unreachable!("{other:?} is an error that the model does not know"),
                }
            }
            Event::DatagramWritable { socket } => {
                let state = self.datagrams.state(socket);
                assert!(!state.closing, "{socket:?} is writable after it was closed");
                state.writable_owed = false;
                let left = state.times_full.checked_sub(1);
                state.times_full = left.unwrap_or_else(|| panic!("{socket:?} is writable, and was not full"));
            }
            Event::DatagramPressure { socket } => {
                let state = self.datagrams.state(socket);
                assert!(!state.closing, "pressure of {socket:?} after it was closed");
                return Some(Occasion::DatagramPressure);
            }
            Event::DatagramClosed { socket, token, error } => {
                let state = self.datagrams.state(socket);
                assert_eq!(
                    error, None,
                    "the end of {socket:?}: nothing is wrong with its descriptor"
                );
                assert_eq!(state.token, token, "{socket:?} closes with another's token");
                assert!(
                    state.closing || state.may_be_closing || self.ending,
                    "{socket:?} closes, and nobody closed it"
                );
                state.check_closed();
                let number = state.number;
                let watch = state.watch;
                assert!(
                    !with(|kernel| kernel.has_datagram_socket(watch)),
                    "{socket:?} has closed, and the kernel still gives it datagrams"
                );
                self.datagrams.sockets.retain(|state| state.id != socket);
                self.open_again(number);
                return None;
            }
            Event::DatagramRefused {
                token,
                socket,
                refusal,
            } => self.note_refused(token, socket, refusal),
            other => unreachable!("{other:?} is of no datagram socket"),
        }
        None
    }

    fn note_opened(&mut self, id: DatagramSocketId, token: Token) {
        let place = self
            .datagrams
            .opening
            .iter()
            .position(|opening| opening.token == token);
        if let Some(place) = place {
            let opening = self.datagrams.opening.swap_remove(place);
            self.begin_datagrams(id, &opening);
        }
        let state = self.datagrams.state(id);
        assert_eq!(state.token, token, "{id:?} opens with another's token");
        assert!(!state.opened, "{id:?} opens twice");
        state.opened = true;
    }

    /// A socket is the loop's from now on.
    pub(super) fn begin_datagrams(&mut self, id: DatagramSocketId, opening: &Opening) {
        let plan = self.datagrams.plan.sockets[opening.number].clone();
        assert!(self.datagrams.find(id).is_none(), "{id:?} begins twice");
        let steered = self.datagrams.steered(opening.number);
        self.datagrams
            .sockets
            .push(Socket::new(id, opening, plan, steered));
        // What was dropped before the loop had it is none of the loop's, and how much that was is not known: some
        // that was counted is the kernel's count less the loop's. Asking takes time, in which more may be dropped.
        let drops = || with(|kernel| kernel.datagram_state(opening.descriptor)).map(|(_, drops)| drops);
        let mut before = drops();
        while let Some(counters) = self.event_loop.datagram_counters(id)
            && let Some(drops) = drops()
        {
            if before.replace(drops) == Some(drops) {
                self.datagrams.state(id).plan.drops = drops.wrapping_sub(counters.kernel_drops as u32);
                break;
            }
        }
        // What has passed since the turn in which it began.
        self.datagrams.note_passed();
    }

    fn note_refused(&mut self, token: Token, socket: Option<DatagramSocketId>, refusal: Refusal) {
        self.datagrams.opening.retain(|opening| opening.token != token);
        if let Some(state) = socket.and_then(|socket| self.datagrams.find(socket)) {
            if token == Token::NONE {
                state.groups.note_refusal(refusal);
            } else {
                state.forget_send(token);
            }
            match refusal {
                Refusal::Full => {
                    state.writable_owed = true;
                    state.times_full += 1;
                }
                Refusal::Closing => assert!(
                    state.closing || state.may_be_closing || self.ending,
                    "{:?} refuses {token:?} as it closes, and nobody closed it",
                    state.id
                ),
                Refusal::Stale => assert!(
                    self.event_loop.datagram_descriptor(state.id).is_none(),
                    "{:?} is open, and refused as stale",
                    state.id
                ),
                _ => {}
            }
        }
    }

    /// Counters that must agree at any time.
    pub(crate) fn check_datagram_counters(&mut self) {
        for index in 0..self.datagrams.sockets.len() {
            let state = &self.datagrams.sockets[index];
            if state.closing || state.may_be_closing || self.ending {
                continue;
            }
            let (id, descriptor, first) = (state.id, state.descriptor, state.plan.drops);
            let drops = || {
                with(|kernel| kernel.datagram_state(descriptor)).map(|(_, drops)| drops.wrapping_sub(first))
            };
            let before = drops();
            let Some(counters) = self.event_loop.datagram_counters(id) else {
                panic!("{id:?} is gone, and nobody closed it");
            };
            // Asking takes time, in which more may be dropped.
            let (Some(before), Some(after)) = (before, drops()) else {
                panic!("the descriptor of {id:?} is closed, and nobody closed the socket");
            };
            let state = &self.datagrams.sockets[index];
            state.check_counters(&counters, before..=after);
        }
    }

    /// What of datagrams has not come to its end, or does not agree with the counters, if anything. Events that are
    /// queued and operations that have ended unnoticed are reasons for it: all agrees when they are taken.
    pub(crate) fn find_pending_datagrams(&mut self) -> Option<String> {
        if with(|kernel| kernel.datagrams_move()) {
            return Some("datagrams are under way".to_owned());
        }
        self.datagrams.note_passed();
        for state in &self.datagrams.sockets {
            if state.closing || state.may_be_closing {
                continue;
            }
            let waiting = with(|kernel| kernel.datagram_state(state.descriptor));
            let waiting = waiting.map_or(0, |(waiting, _)| waiting);
            let (handed, awaited) = (state.handed.len(), state.awaited());
            if waiting + handed + awaited > 0 || state.writable_owed || !state.opened {
                return Some(format!(
                    "{:?}: {waiting} datagrams wait, {handed} were received and not delivered, {awaited} sends have \
                     no outcome, writable owed: {}, open: {}",
                    state.id, state.writable_owed, state.opened
                ));
            }
            let counters = self.event_loop.datagram_counters(state.id);
            let difference = counters.and_then(|counters| state.find_difference(&counters));
            if difference.is_some() {
                return difference;
            }
        }
        None
    }
}
