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
    let mut c_event = types::Event {
        descriptor: -1,
        ..memory::zeroes()
    };
    match event {
        Event::Data { connection, data } => {
            c_event.kind = QUOIT_EVENT_DATA;
            c_event.connection = connection.to_bits();
            c_event.data = data.as_ptr().cast();
            c_event.length = data.len() as u32;
            c_event.lease = leases.put(data);
        }
        Event::Sent { connection, token } => {
            c_event.kind = QUOIT_EVENT_SENT;
            c_event.connection = connection.to_bits();
            c_event.token = token.0;
        }
        Event::FileShort {
            connection,
            token,
            missing,
            error,
        } => {
            c_event.kind = QUOIT_EVENT_FILE_SHORT;
            c_event.connection = connection.to_bits();
            c_event.token = token.0;
            // No more than the command's length, which has 32 bits.
            c_event.length = missing as u32;
            c_event.error = error.map_or(0, negative);
        }
        Event::SendFailed { connection, error } => {
            c_event.kind = QUOIT_EVENT_SEND_FAILED;
            c_event.connection = connection.to_bits();
            c_event.error = negative(error);
        }
        Event::AcceptFailed { listener, error } => {
            c_event.kind = QUOIT_EVENT_ACCEPT_FAILED;
            c_event.listener = listener.to_bits();
            c_event.error = negative(error);
        }
        Event::Accepted { listener, connection } => {
            c_event.kind = QUOIT_EVENT_ACCEPTED;
            c_event.listener = listener.to_bits();
            c_event.connection = connection.to_bits();
        }
        Event::AcceptedDescriptor { listener, descriptor } => {
            c_event.kind = QUOIT_EVENT_ACCEPTED_DESCRIPTOR;
            c_event.listener = listener.to_bits();
            c_event.descriptor = descriptor.into_raw_fd();
        }
        Event::Connecting { connection, token } => {
            c_event.kind = QUOIT_EVENT_CONNECTING;
            c_event.connection = connection.to_bits();
            c_event.token = token.0;
        }
        Event::Opened { connection, token } => {
            c_event.kind = QUOIT_EVENT_OPENED;
            c_event.connection = connection.to_bits();
            c_event.token = token.0;
        }
        Event::EndOfStream { connection } => {
            c_event.kind = QUOIT_EVENT_END_OF_STREAM;
            c_event.connection = connection.to_bits();
        }
        Event::Writable { connection } => {
            c_event.kind = QUOIT_EVENT_WRITABLE;
            c_event.connection = connection.to_bits();
        }
        Event::Pressure { connection } => {
            c_event.kind = QUOIT_EVENT_PRESSURE;
            c_event.connection = connection.map_or(0, ConnectionId::to_bits);
        }
        Event::Deadline { connection } => {
            c_event.kind = QUOIT_EVENT_DEADLINE;
            c_event.connection = connection.to_bits();
        }
        Event::Closed {
            connection,
            token,
            reason,
        } => {
            c_event.kind = QUOIT_EVENT_CLOSED;
            c_event.connection = connection.to_bits();
            c_event.token = token.0;
            (c_event.reason, c_event.error) = close_reason(reason);
        }
        Event::ListenerClosed { listener, error } => {
            c_event.kind = QUOIT_EVENT_LISTENER_CLOSED;
            c_event.listener = listener.to_bits();
            c_event.error = error.map_or(0, negative);
        }
        Event::Refused {
            token,
            connection,
            refusal,
        } => {
            c_event.kind = QUOIT_EVENT_REFUSED;
            c_event.connection = connection.map_or(0, ConnectionId::to_bits);
            c_event.token = token.0;
            (c_event.reason, c_event.error) = refusal_reason(refusal);
        }
        Event::Timer { token } => {
            c_event.kind = QUOIT_EVENT_TIMER;
            c_event.token = token.0;
        }
        Event::Woken => c_event.kind = QUOIT_EVENT_WOKEN,
        Event::Draining => c_event.kind = QUOIT_EVENT_DRAINING,
        Event::Drained => c_event.kind = QUOIT_EVENT_DRAINED,
        other => datagrams::fill(other, leases, receivers, &mut c_event),
    }
    c_event
}
