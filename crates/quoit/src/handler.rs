//! The event-driven driver: a trait with one method for each thing that can happen.

use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::datagram::{Datagram, Datagrams};
use crate::engine::Engine;
use crate::errno::Errno;
use crate::event::{CloseReason, DatagramError, Event, Events, Refusal};
use crate::event_loop::{Fate, Loop, TurnError};
use crate::id::{ConnectionId, DatagramSocketId, ListenerId, Token};
use crate::pool::Lease;
use crate::sys::SocketSys;

/// Events that the driver takes in one turn.
const EVENTS: usize = 1024;

/// What a server does when something happens. All methods are called on the loop's thread, one at a time, in
/// the order of [`crate::event`]'s table; none may block. They may call any method of the loop but
/// [`Loop::turn`]. Everything that they queue leaves after the turn's last call, each connection's in one piece; what
/// is all that a connection has to send can leave at once, by [`Loop::try_send`].
///
/// Every method has a default. A server of connections writes [`Handler::on_data`], one of datagrams
/// [`Handler::on_datagram`].
#[expect(unused_variables, reason = "the defaults ignore most of what they are told")]
pub trait Handler {
    /// A listener has a new connection.
    fn on_accepted(&mut self, event_loop: &mut Loop, connection: ConnectionId, listener: ListenerId) {}

    /// A listener made with [`Accept::Descriptors`](crate::Accept::Descriptors) has a new connection. Dropping the
    /// descriptor closes it, which is the default.
    fn on_accepted_descriptor(&mut self, event_loop: &mut Loop, descriptor: OwnedFd, listener: ListenerId) {}

    /// A connection is established, or attached.
    fn on_opened(&mut self, event_loop: &mut Loop, connection: ConnectionId, token: Token) {}

    /// Bytes were received. They stay valid until `data` is dropped; drop it soon, or copy. Default: discard them, and go
    /// on receiving.
    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {}

    /// The peer has ended its direction. Default: send what is queued, then close.
    fn on_end_of_stream(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        // It may be closing already, which is as good.
        let _ = event_loop.close(connection, None);
    }

    /// Lent memory is free, up to this token.
    fn on_sent(&mut self, event_loop: &mut Loop, connection: ConnectionId, token: Token) {}

    /// A file that was sent with [`OnShort::Tell`](crate::OnShort::Tell) was too short by so many bytes, or could not be read.
    fn on_file_short(
        &mut self,
        event_loop: &mut Loop,
        connection: ConnectionId,
        token: Token,
        missing: u64,
        error: Option<Errno>,
    ) {
    }

    /// The queue was full before; now there is room again.
    fn on_writable(&mut self, event_loop: &mut Loop, connection: ConnectionId) {}

    /// The socket takes no more, and what the peer sent before is still delivered, once the connection is not paused any more.
    /// `Closed` follows that. Default: abort a paused one, which may well have waited to send. Whoever wants what is left resumes
    /// it instead, now or later.
    fn on_send_failed(&mut self, event_loop: &mut Loop, connection: ConnectionId, error: Errno) {
        if event_loop.is_paused(connection) {
            // It may be ending already, which is as good.
            let _ = event_loop.abort(connection);
        }
    }

    /// Receiving waits for leases to be returned: one connection's, or all.
    fn on_pressure(&mut self, event_loop: &mut Loop, connection: Option<ConnectionId>) {}

    /// The connection's deadline has come. Default: abort it.
    fn on_deadline(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        // It may be ending already, which is as good.
        let _ = event_loop.abort(connection);
    }

    /// The connection is gone, and its id stale.
    fn on_closed(
        &mut self,
        event_loop: &mut Loop,
        connection: ConnectionId,
        token: Token,
        reason: CloseReason,
    ) {
    }

    /// A listener is gone: stopped, or failed.
    fn on_listener_closed(&mut self, event_loop: &mut Loop, listener: ListenerId, error: Option<Errno>) {}

    /// A listener that [is to tell](crate::ListenerOptions::tell_failures) could not accept. It is tried again by itself.
    fn on_accept_failed(&mut self, event_loop: &mut Loop, listener: ListenerId, error: Errno) {}

    /// A timer has fired.
    fn on_timer(&mut self, event_loop: &mut Loop, token: Token) {}

    /// Somebody called [`Remote::wake`](crate::Remote::wake).
    fn on_woken(&mut self, event_loop: &mut Loop) {}

    /// A posted command was refused.
    fn on_refused(
        &mut self,
        event_loop: &mut Loop,
        token: Token,
        connection: Option<ConnectionId>,
        refusal: Refusal,
    ) {
    }

    /// A datagram socket is open.
    fn on_datagram_opened(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, token: Token) {}

    /// A datagram was received. Its bytes are valid during the call.
    fn on_datagram(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, datagram: Datagram<'_>) {}

    /// A buffer with a datagram was received, or with several that the kernel had joined. Default: each is handed to
    /// [`Handler::on_datagram`]. Those who keep the memory, or send it on, write this one instead.
    fn on_datagrams(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, datagrams: Datagrams) {
        for datagram in &datagrams {
            self.on_datagram(event_loop, socket, datagram);
        }
    }

    /// What became of a datagram that was sent with a token.
    fn on_datagram_sent(
        &mut self,
        event_loop: &mut Loop,
        socket: DatagramSocketId,
        token: Token,
        result: Result<u32, Errno>,
    ) {
    }

    /// Something went wrong on a datagram socket, which goes on.
    fn on_datagram_error(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, error: DatagramError) {}

    /// The socket's queue was full before; now there is room again.
    fn on_datagram_writable(&mut self, event_loop: &mut Loop, socket: DatagramSocketId) {}

    /// All of the socket's slots are held by the handler: receiving waits for them.
    fn on_datagram_pressure(&mut self, event_loop: &mut Loop, socket: DatagramSocketId) {}

    /// A datagram socket is gone, and its id stale.
    fn on_datagram_closed(
        &mut self,
        event_loop: &mut Loop,
        socket: DatagramSocketId,
        token: Token,
        error: Option<Errno>,
    ) {
    }

    /// A posted command that concerns a datagram socket was refused.
    fn on_datagram_refused(
        &mut self,
        event_loop: &mut Loop,
        token: Token,
        socket: Option<DatagramSocketId>,
        refusal: Refusal,
    ) {
    }

    /// The server is to end: listeners are stopped. Close connections that are idle now, and the others when
    /// they have finished; what is left at the deadline is aborted. Default: wait for the connections to end by
    /// themselves.
    fn on_draining(&mut self, event_loop: &mut Loop) {}

    /// All events of a turn have been handled.
    fn on_turn_end(&mut self, event_loop: &mut Loop) {}
}

impl Loop {
    /// Runs turns and hands their events to `handler`, until the loop has drained ([`Loop::drain`], or
    /// [`Command::Drain`](crate::Command::Drain) from another thread).
    ///
    /// # Errors
    /// Those of [`Loop::turn`].
    pub fn run(&mut self, handler: &mut impl Handler) -> Result<(), TurnError> {
        let mut events = Events::with_capacity(EVENTS);
        while self.run_turn(handler, &mut events, None)? {}
        Ok(())
    }

    /// One turn of [`Loop::run`], for programs with a loop of their own. Returns false once the loop has
    /// drained.
    ///
    /// # Errors
    /// Those of [`Loop::turn`].
    pub fn run_turn(
        &mut self,
        handler: &mut impl Handler,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> Result<bool, TurnError> {
        let mut running = true;
        let mut delivery = Delivery::default();
        self.turn([], events, timeout)?;
        for event in events.drain() {
            let fate = self.fate_in_hand(&event);
            if fate != Fate::Delivered {
                delivery.keep(event, fate);
                continue;
            }
            match event {
                Event::Data { connection, data } => handler.on_data(self, connection, data),
                Event::Accepted { listener, connection } => handler.on_accepted(self, connection, listener),
                Event::AcceptedDescriptor { listener, descriptor } => {
                    handler.on_accepted_descriptor(self, descriptor, listener);
                }
                Event::Opened { connection, token } => handler.on_opened(self, connection, token),
                Event::EndOfStream { connection } => handler.on_end_of_stream(self, connection),
                Event::Sent { connection, token } => handler.on_sent(self, connection, token),
                Event::FileShort {
                    connection,
                    token,
                    missing,
                    error,
                } => {
                    handler.on_file_short(self, connection, token, missing, error);
                }
                Event::Writable { connection } => handler.on_writable(self, connection),
                Event::SendFailed { connection, error } => handler.on_send_failed(self, connection, error),
                Event::Pressure { connection } => handler.on_pressure(self, connection),
                Event::Deadline { connection } => handler.on_deadline(self, connection),
                Event::Closed {
                    connection,
                    token,
                    reason,
                } => {
                    handler.on_closed(self, connection, token, reason);
                }
                Event::ListenerClosed { listener, error } => {
                    handler.on_listener_closed(self, listener, error);
                }
                Event::AcceptFailed { listener, error } => handler.on_accept_failed(self, listener, error),
                Event::Timer { token } => handler.on_timer(self, token),
                Event::Woken => handler.on_woken(self),
                Event::Refused {
                    token,
                    connection,
                    refusal,
                } => {
                    handler.on_refused(self, token, connection, refusal);
                }
                Event::Datagrams { socket, datagrams } => handler.on_datagrams(self, socket, datagrams),
                Event::DatagramSent {
                    socket,
                    token,
                    result,
                } => {
                    handler.on_datagram_sent(self, socket, token, result);
                }
                Event::DatagramError { socket, error } => handler.on_datagram_error(self, socket, error),
                Event::DatagramWritable { socket } => handler.on_datagram_writable(self, socket),
                Event::DatagramPressure { socket } => handler.on_datagram_pressure(self, socket),
                Event::DatagramOpened { socket, token } => handler.on_datagram_opened(self, socket, token),
                Event::DatagramClosed { socket, token, error } => {
                    handler.on_datagram_closed(self, socket, token, error);
                }
                Event::DatagramRefused {
                    token,
                    socket,
                    refusal,
                } => {
                    handler.on_datagram_refused(self, token, socket, refusal);
                }
                Event::Draining => handler.on_draining(self),
                Event::Drained => running = false,
                // The id came with the event `Opened` or is known to who connects by a method.
                Event::Connecting { .. } => {}
            }
        }
        delivery.end(self);
        handler.on_turn_end(self);
        Ok(running)
    }
}

/// The handing out of one turn's events one by one, each of which may make later ones unwanted: what drivers that call
/// a handler have in common.
#[derive(Debug, Default)]
pub struct Delivery {
    // Boxed, as there is one in each turn, nearly always without anything.
    #[expect(
        clippy::box_collection,
        reason = "that nothing is held back is known at a glance"
    )]
    held_back: Option<Box<Vec<Event>>>,
}

impl Delivery {
    /// Returns the event if it is still to be handed out, given what the handler has done since the turn.
    // Inlined, so that an event is moved once less.
    #[inline]
    pub fn admit<E: Engine, K: SocketSys>(
        &mut self,
        event_loop: &mut Loop<E, K>,
        event: Event,
    ) -> Option<Event> {
        let fate = event_loop.fate_in_hand(&event);
        if fate == Fate::Delivered {
            return Some(event);
        }
        self.keep(event, fate);
        None
    }

    /// Keeps an event that is held back, and drops one that is not to be handed out.
    #[cold]
    fn keep(&mut self, event: Event, fate: Fate) {
        if fate == Fate::HeldBack {
            self.held_back.get_or_insert_default().push(event);
        }
    }

    /// All have been handed out: the loop takes back what a paused connection was not to have.
    #[inline(always)]
    pub fn end<E: Engine, K: SocketSys>(self, event_loop: &mut Loop<E, K>) {
        if let Some(mut held_back) = self.held_back {
            event_loop.take_back(&mut held_back);
        }
    }
}
