//! The core's events, and those of C.

use std::os::fd::IntoRawFd;

use quoit::{ConnectionId, Event};

use crate::leases::Leases;
use crate::memory;
use crate::numbers::{close_reason, negative, refusal_reason};
use crate::receivers::Receivers;
use crate::types::{self, *};

mod datagrams;

/// C's event for one of the core's. Its lease goes to `leases`, its descriptor to the caller. The receiver that it names
/// goes to `receivers`, and `data` has yet to show it ([`Receivers::show`]).
///
/// # Panics
/// As [`datagrams::fill`].
#[inline]
pub(crate) fn for_c(event: Event, leases: &Leases, receivers: &mut Receivers) -> types::Event {
    let mut answer = types::Event {
        descriptor: -1,
        ..memory::zeroes()
    };
    match event {
        Event::Data { connection, data } => {
            answer.kind = QUOIT_EVENT_DATA;
            answer.connection = connection.to_bits();
            answer.data = data.as_ptr().cast();
            answer.length = data.len() as u32;
            answer.lease = leases.put(data);
        }
        Event::Sent { connection, token } => {
            answer.kind = QUOIT_EVENT_SENT;
            answer.connection = connection.to_bits();
            answer.token = token.0;
        }
        Event::FileShort {
            connection,
            token,
            missing,
            error,
        } => {
            answer.kind = QUOIT_EVENT_FILE_SHORT;
            answer.connection = connection.to_bits();
            answer.token = token.0;
            // No more than the command's length, which has 32 bits.
            answer.length = missing as u32;
            answer.error = error.map_or(0, negative);
        }
        Event::AcceptFailed { listener, error } => {
            answer.kind = QUOIT_EVENT_ACCEPT_FAILED;
            answer.listener = listener.to_bits();
            answer.error = negative(error);
        }
        Event::Accepted { listener, connection } => {
            answer.kind = QUOIT_EVENT_ACCEPTED;
            answer.listener = listener.to_bits();
            answer.connection = connection.to_bits();
        }
        Event::AcceptedDescriptor { listener, descriptor } => {
            answer.kind = QUOIT_EVENT_ACCEPTED_DESCRIPTOR;
            answer.listener = listener.to_bits();
            answer.descriptor = descriptor.into_raw_fd();
        }
        Event::Connecting { connection, token } => {
            answer.kind = QUOIT_EVENT_CONNECTING;
            answer.connection = connection.to_bits();
            answer.token = token.0;
        }
        Event::Opened { connection, token } => {
            answer.kind = QUOIT_EVENT_OPENED;
            answer.connection = connection.to_bits();
            answer.token = token.0;
        }
        Event::EndOfStream { connection } => {
            answer.kind = QUOIT_EVENT_END_OF_STREAM;
            answer.connection = connection.to_bits();
        }
        Event::Writable { connection } => {
            answer.kind = QUOIT_EVENT_WRITABLE;
            answer.connection = connection.to_bits();
        }
        Event::Pressure { connection } => {
            answer.kind = QUOIT_EVENT_PRESSURE;
            answer.connection = connection.map_or(0, ConnectionId::to_bits);
        }
        Event::Deadline { connection } => {
            answer.kind = QUOIT_EVENT_DEADLINE;
            answer.connection = connection.to_bits();
        }
        Event::Closed {
            connection,
            token,
            reason,
        } => {
            answer.kind = QUOIT_EVENT_CLOSED;
            answer.connection = connection.to_bits();
            answer.token = token.0;
            (answer.reason, answer.error) = close_reason(reason);
        }
        Event::ListenerClosed { listener, error } => {
            answer.kind = QUOIT_EVENT_LISTENER_CLOSED;
            answer.listener = listener.to_bits();
            answer.error = error.map_or(0, negative);
        }
        Event::Refused {
            token,
            connection,
            refusal,
        } => {
            answer.kind = QUOIT_EVENT_REFUSED;
            answer.connection = connection.map_or(0, ConnectionId::to_bits);
            answer.token = token.0;
            (answer.reason, answer.error) = refusal_reason(refusal);
        }
        Event::Timer { token } => {
            answer.kind = QUOIT_EVENT_TIMER;
            answer.token = token.0;
        }
        Event::Woken => answer.kind = QUOIT_EVENT_WOKEN,
        Event::Draining => answer.kind = QUOIT_EVENT_DRAINING,
        Event::Drained => answer.kind = QUOIT_EVENT_DRAINED,
        other => datagrams::fill(other, leases, receivers, &mut answer),
    }
    answer
}
