//! The receivers that the errors of one turn name, in memory that stays until the next turn.

use std::net::SocketAddr;

use quoit::address::SocketAddress;

use crate::types::{self, QUOIT_DATAGRAM_ERROR_UNREACHABLE, QUOIT_EVENT_DATAGRAM_ERROR};

/// Receivers in the order of the events that name them. Places are known only when all are there, as the list grows.
#[derive(Debug, Default)]
pub(crate) struct Receivers(Vec<SocketAddress>);

impl Receivers {
    /// Forgets those of the turn before. What was shown of them is not to be read any more.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Keeps one, and returns its length in bytes as C will be shown it.
    pub(crate) fn put(&mut self, receiver: SocketAddr) -> u32 {
        let receiver = SocketAddress::from(receiver);
        let length = receiver.as_bytes().len() as u32;
        self.0.push(receiver);
        length
    }

    /// Sets `data` of all events of a turn that name a receiver.
    pub(crate) fn show(&self, events: &mut [types::Event]) {
        if self.0.is_empty() {
            return;
        }
        let named = events.iter_mut().filter(|event| {
            event.kind == QUOIT_EVENT_DATAGRAM_ERROR && event.reason == QUOIT_DATAGRAM_ERROR_UNREACHABLE
        });
        for (event, receiver) in named.zip(&self.0) {
            event.data = receiver.as_raw().0.cast();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::zeroes;

    #[test]
    fn each_event_is_shown_its_own() {
        let mut receivers = Receivers::default();
        let addresses = ["192.0.2.1:1", "[2001:db8::1]:2", "192.0.2.3:3"].map(|text| text.parse().unwrap());
        let event = |kind, reason, length| types::Event {
            kind,
            reason,
            length,
            ..zeroes()
        };
        for round in 0..2 {
            receivers.clear();
            let mut events = Vec::new();
            for address in addresses {
                events.push(event(
                    QUOIT_EVENT_DATAGRAM_ERROR,
                    types::QUOIT_DATAGRAM_ERROR_SEND,
                    9,
                ));
                let length = receivers.put(address);
                events.push(event(
                    QUOIT_EVENT_DATAGRAM_ERROR,
                    QUOIT_DATAGRAM_ERROR_UNREACHABLE,
                    length,
                ));
            }
            receivers.show(&mut events);
            for (pair, address) in events.chunks(2).zip(addresses) {
                assert!(pair[0].data.is_null());
                // SAFETY: as long as the event says, and the list lives.
                let bytes =
                    unsafe { std::slice::from_raw_parts(pair[1].data.cast::<u8>(), pair[1].length as usize) };
                assert_eq!(bytes, SocketAddress::from(address).as_bytes(), "{round}");
            }
        }
    }
}
