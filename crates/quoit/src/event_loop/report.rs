//! Handing over events: what a pause or a close has made of those that were queued before it, or are in a driver's hand.

use super::Loop;
use super::connection::{Connection, Phase, ReceiveSide};
use crate::engine::Engine;
use crate::event::{Event, Events};
use crate::id::{ConnectionId, Slot};
use crate::sys::SocketSys;

/// What is to become of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Delivered,
    /// Its connection or socket is paused, or has something before it held back.
    HeldBack,
    /// Its connection or socket was closed.
    Dropped,
}

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Hands over what there is to report, as far as there is room. Returns how many events that are.
    pub(super) fn report(&mut self, events: &mut Events) -> usize {
        let earlier = events.len();
        let may_end = self.events.may_end();
        while events.room() > 0
            && let Some(event) = self.events.take_unchecked()
        {
            if let Some(event) = self.check(event) {
                events.push(event);
            }
        }
        self.events.report(events);
        self.counters.surplus_events.add(self.events.note_surplus());
        if may_end {
            self.note_reported_ends(events, earlier);
        }
        events.len() - earlier
    }

    fn note_reported_ends(&mut self, events: &Events, earlier: usize) {
        for event in events.iter().skip(earlier) {
            match event {
                Event::EndOfStream { connection } => {
                    if let Ok(state) = self.find(*connection)
                        && state.receive_side == ReceiveSide::Ending
                    {
                        state.receive_side = ReceiveSide::Reported;
                        self.reported_ends.push(*connection);
                    }
                }
                Event::Closed { connection, .. } => {
                    self.connections.free(connection.slot());
                    self.after_slot_freed();
                }
                _ => {}
            }
        }
    }

    /// Entries of lists that were looked at for pauses and closes which came after them, those of events and of connections
    /// that wait: for tests of what that costs.
    #[doc(hidden)]
    #[must_use]
    pub fn entries_looked_at(&self) -> u64 {
        self.events.looked_at() + self.chunk_waiters.looked_at()
    }

    /// Ends the connections whose directions have both ended, of those whose handler now knows of the peer's end.
    #[inline(never)]
    pub(super) fn end_reported(&mut self) {
        let mut reported = std::mem::take(&mut self.reported_ends);
        for id in reported.drain(..) {
            let Ok(connection) = self.find(id) else {
                continue;
            };
            if connection.phase == Phase::Open && connection.receive_side == ReceiveSide::Reported {
                connection.receive_side = ReceiveSide::Ended;
                if connection.both_ended() {
                    self.end_both(id.slot());
                }
            }
        }
        self.reported_ends = reported;
    }

    /// The events of the connection that are queued are not wanted any more, but those that tell what became of it.
    pub(super) fn mark_unwanted(&mut self, slot: Slot) {
        self.connections.mark(slot);
        self.events.check_queued();
    }

    /// Makes sure that what came for a connection before it was paused is held back, and not queued: for whoever asks whether there
    /// is any, or will queue it again.
    pub(super) fn check_paused(&mut self, slot: Slot) {
        let may_have_any = |(state, _): (&mut Connection, u32)| state.paused && state.delivered() > 0;
        if self.connections.at(slot).is_some_and(may_have_any) {
            self.check_queue();
        }
    }

    /// Looks at all that is to be looked at: for all connections and sockets at once, so that it is done once however many ask.
    pub(super) fn check_queue(&mut self) {
        if !self.events.has_unchecked() {
            return;
        }
        let mut wanted = Vec::new();
        while let Some(event) = self.events.take_unchecked() {
            wanted.extend(self.check(event));
        }
        self.events.put_checked_back(wanted);
    }

    /// Looks at an event that was queued before a pause or a close. Returns it if it is still to be delivered.
    fn check(&mut self, event: Event) -> Option<Event> {
        match self.fate(&event) {
            Fate::Delivered => return Some(event),
            Fate::Dropped => {}
            Fate::HeldBack => match event {
                Event::Data { connection, data } => {
                    if let Ok(state) = self.find(connection) {
                        let place = state.inbound.len() - state.fresh as usize;
                        state.inbound.insert(place, data);
                    }
                }
                Event::EndOfStream { connection } => {
                    if let Ok(state) = self.find(connection) {
                        state.receive_side = ReceiveSide::EndHeld(None);
                    }
                }
                Event::Datagrams { socket, datagrams } => {
                    if let Ok(state) = self.find_datagram(socket) {
                        state.held_back.push_back(datagrams);
                    }
                }
                _ => debug_assert!(false, "only what was received is held back"),
            },
        }
        None
    }

    fn fate(&self, event: &Event) -> Fate {
        if event.delivers_to().is_some_and(|id| self.is_unwanted(id)) {
            return Fate::Dropped;
        }
        if let Some(socket) = event.delivers_to_datagrams() {
            return match self.look_up_datagram(socket) {
                Some(state) if !state.is_open() => Fate::Dropped,
                Some(state) if state.paused && matches!(event, Event::Datagrams { .. }) => Fate::HeldBack,
                Some(_) => Fate::Delivered,
                // Closed, or its descriptor has failed.
                None => Fate::Dropped,
            };
        }
        match event {
            Event::Data { connection, .. } | Event::EndOfStream { connection }
                if self.look_up(*connection).is_some_and(|state| state.paused) =>
            {
                Fate::HeldBack
            }
            // Moved since, or cleared.
            Event::Deadline { connection }
                if self.look_up(*connection).is_some_and(|state| !state.is_due) =>
            {
                Fate::Dropped
            }
            _ => Fate::Delivered,
        }
    }

    fn is_unwanted(&self, id: ConnectionId) -> bool {
        self.connections.is_marked(id.slot(), id.generation())
    }

    /// Looks at an event in a driver's hand, which an earlier one of the same turn may have made unwanted. What is held back is to be
    /// [taken back](Loop::take_back) once all have been looked at.
    #[inline(always)]
    pub(crate) fn fate_in_hand(&mut self, event: &Event) -> Fate {
        // Once something is held back, so is all that follows it, even if the connection is resumed meanwhile.
        match event {
            Event::Data { connection, .. } | Event::EndOfStream { connection } => {
                let is_unwanted = self.is_unwanted(*connection);
                match self.find(*connection) {
                    _ if is_unwanted => Fate::Dropped,
                    Ok(state) if state.paused || state.held_in_hand => {
                        state.held_in_hand = true;
                        Fate::HeldBack
                    }
                    _ => Fate::Delivered,
                }
            }
            Event::Datagrams { socket, .. } => match self.find_datagram(*socket) {
                Ok(state) if state.is_open() && (state.paused || state.held_in_hand) => {
                    state.held_in_hand = true;
                    Fate::HeldBack
                }
                Ok(state) if state.is_open() => Fate::Delivered,
                _ => Fate::Dropped,
            },
            other => self.fate(other),
        }
    }

    /// Takes back what was held back of a driver's events, in the order in which they were reported.
    pub(crate) fn take_back(&mut self, events: &mut Vec<Event>) {
        for event in events.drain(..).rev() {
            match event {
                Event::Data { connection, data } => match self.find(connection) {
                    Ok(state) if is_wanted(state) && state.paused => {
                        state.held_in_hand = false;
                        state.inbound.push_front(data);
                    }
                    Ok(state) if is_wanted(state) => {
                        // Resumed meanwhile: everything of this connection that is queued came later.
                        state.held_in_hand = false;
                        self.events.put_back(Event::Data { connection, data });
                    }
                    // Closed after the pause.
                    _ => {}
                },
                Event::EndOfStream { connection } => match self.find(connection) {
                    // Nobody has been told of it after all.
                    Ok(state) if is_wanted(state) && state.paused => {
                        state.held_in_hand = false;
                        state.receive_side = ReceiveSide::EndHeld(None);
                    }
                    Ok(state) if is_wanted(state) => {
                        state.held_in_hand = false;
                        state.receive_side = ReceiveSide::Ending;
                        self.events.put_back(Event::EndOfStream { connection });
                    }
                    _ => {}
                },
                Event::Datagrams { socket, datagrams } => match self.find_datagram(socket) {
                    Ok(state) if state.is_open() && state.paused => {
                        state.held_in_hand = false;
                        state.held_back.push_front(datagrams);
                    }
                    Ok(state) if state.is_open() => {
                        state.held_in_hand = false;
                        self.events.put_back(Event::Datagrams { socket, datagrams });
                    }
                    _ => {}
                },
                _ => debug_assert!(false, "only what was received is held back"),
            }
        }
    }
}

/// Whether what was received is still to be delivered: a close takes note of the end by itself.
fn is_wanted(state: &Connection) -> bool {
    state.phase == Phase::Open
}
