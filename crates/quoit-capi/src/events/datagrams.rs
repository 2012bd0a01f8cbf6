//! Those that concern datagram sockets.

use quoit::{DatagramError, DatagramSocketId, Event};

use crate::leases::Leases;
use crate::numbers::{negative, refusal_reason};
use crate::receivers::Receivers;
use crate::types::{self, *};

/// Fills in C's event for one of the core's that concerns a datagram socket.
///
/// # Panics
/// For an event that this ABI has no number for: a fault of the library's.
pub(super) fn fill(event: Event, leases: &Leases, receivers: &mut Receivers, c_event: &mut types::Event) {
    match event {
        Event::Datagrams { socket, datagrams } => {
            c_event.kind = QUOIT_EVENT_DATAGRAMS;
            c_event.connection = socket.to_bits();
            c_event.length = datagrams.whole().bytes().len() as u32;
            let (number, view) = leases.put_datagrams(datagrams);
            c_event.lease = number;
            c_event.data = view.cast();
        }
        Event::DatagramSent {
            socket,
            token,
            result,
        } => {
            c_event.kind = QUOIT_EVENT_DATAGRAM_SENT;
            c_event.connection = socket.to_bits();
            c_event.token = token.0;
            match result {
                Ok(length) => c_event.length = length,
                Err(errno) => c_event.error = negative(errno),
            }
        }
        Event::DatagramError { socket, error } => {
            c_event.kind = QUOIT_EVENT_DATAGRAM_ERROR;
            c_event.connection = socket.to_bits();
            (c_event.reason, c_event.error, c_event.length) = error_reason(error, receivers);
        }
        Event::DatagramWritable { socket } => {
            c_event.kind = QUOIT_EVENT_DATAGRAM_WRITABLE;
            c_event.connection = socket.to_bits();
        }
        Event::DatagramPressure { socket } => {
            c_event.kind = QUOIT_EVENT_DATAGRAM_PRESSURE;
            c_event.connection = socket.to_bits();
        }
        Event::DatagramOpened { socket, token } => {
            c_event.kind = QUOIT_EVENT_DATAGRAM_OPENED;
            c_event.connection = socket.to_bits();
            c_event.token = token.0;
        }
        Event::DatagramClosed { socket, token, error } => {
            c_event.kind = QUOIT_EVENT_DATAGRAM_CLOSED;
            c_event.connection = socket.to_bits();
            c_event.token = token.0;
            c_event.error = error.map_or(0, negative);
        }
        Event::DatagramRefused {
            token,
            socket,
            refusal,
        } => {
            c_event.kind = QUOIT_EVENT_DATAGRAM_REFUSED;
            c_event.connection = socket.map_or(0, DatagramSocketId::to_bits);
            c_event.token = token.0;
            (c_event.reason, c_event.error) = refusal_reason(refusal);
        }
        other => unreachable!("{other:?} has no number in this ABI"),
    }
}

/// The reason, the error, and the bytes of the datagram that was to be sent, or of the receiver's address.
fn error_reason(error: DatagramError, receivers: &mut Receivers) -> (u16, i32, u32) {
    match error {
        DatagramError::Network(errno) => (QUOIT_DATAGRAM_ERROR_NETWORK, negative(errno), 0),
        DatagramError::Unreachable(told) => (
            QUOIT_DATAGRAM_ERROR_UNREACHABLE,
            negative(told.errno()),
            receivers.put(told.receiver()),
        ),
        DatagramError::TooLarge { size } => (QUOIT_DATAGRAM_ERROR_TOO_LARGE, -libc::EMSGSIZE, size),
        DatagramError::Send { errno, size } => (QUOIT_DATAGRAM_ERROR_SEND, negative(errno), size),
        DatagramError::ControlTruncated => (QUOIT_DATAGRAM_ERROR_CONTROL_TRUNCATED, 0, 0),
        DatagramError::Receive(errno) => (QUOIT_DATAGRAM_ERROR_RECEIVE, negative(errno), 0),
        other => unreachable!("{other:?} has no number in this ABI"),
    }
}
