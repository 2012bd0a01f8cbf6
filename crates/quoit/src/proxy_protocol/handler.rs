//! Taking headers off before a handler hears of its connections.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{DEFAULT_LIMIT, Header, HeaderError, MOST_TEXT, decode};
use crate::counters::Figure;
use crate::datagram::{Datagram, Datagrams};
use crate::errno::Errno;
use crate::event::{CloseReason, DatagramError, Event, Refusal};
use crate::event_loop::Loop;
use crate::handler::{Delivery, Handler};
use crate::id::{ConnectionId, DatagramSocketId, ListenerId, Token};
use crate::pool::Lease;

/// A [`Handler`] that [`ProxyProtocol`] can wrap. Both methods have defaults.
#[expect(unused_variables, reason = "the defaults ignore most of what they are told")]
pub trait Proxied: Handler {
    /// A connection has come, and its header. It is called in place of [`Handler::on_accepted`], which is the default.
    fn on_proxied(
        &mut self,
        event_loop: &mut Loop,
        connection: ConnectionId,
        listener: ListenerId,
        header: &Header,
    ) {
        self.on_accepted(event_loop, connection, listener);
    }

    /// A connection ends without a header, and nothing else is said of it. Its peer, [`Loop::peer_address`], is the balancer,
    /// or whoever else has reached the listener.
    fn on_refused_header(&mut self, event_loop: &mut Loop, connection: ConnectionId, refused: Refused) {}
}

/// Why a connection is ended before its handler hears of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refused {
    /// What came first is no header. The connection is reset.
    Malformed(HeaderError),
    /// Not all of the header came in time. The connection is reset.
    Late,
    /// The peer ended its direction before all of the header had come. The connection is reset, unless nothing has come: so
    /// ends a check of a balancer's that only connects.
    Ended,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => error.fmt(f),
            Self::Late => f.write_str("the header of the PROXY protocol did not come in time"),
            Self::Ended => f.write_str("the peer ended before all of the PROXY protocol's header had come"),
        }
    }
}

impl std::error::Error for Refused {}

/// What a header may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProxyOptions {
    /// From accepting to the header's last byte. Default: 10 s. The text asks for at least 3 s, as a lost packet costs that.
    pub within: Duration,
    /// Bytes of a header of version 2 with its values, at least [`MOST_TEXT`]; as much is kept of one that comes in pieces.
    /// Default: [`DEFAULT_LIMIT`].
    pub limit: usize,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        Self {
            within: Duration::from_secs(10),
            limit: DEFAULT_LIMIT,
        }
    }
}

/// What became of the connections of [`ProxyProtocol`]s, to be read on any thread.
#[derive(Debug, Default)]
pub struct HeaderCounters {
    proxied: AtomicU64,
    local: AtomicU64,
    malformed: AtomicU64,
    late: AtomicU64,
    ended: AtomicU64,
}

impl HeaderCounters {
    /// Every figure with its name, its kind, its description and its value, in a fixed order.
    #[must_use]
    pub fn figures(&self) -> [(&'static str, Figure, &'static str, u64); 5] {
        let figure = |name, description, of: &AtomicU64| {
            (name, Figure::Counter, description, of.load(Ordering::Relaxed))
        };
        [
            figure(
                "proxy_protocol_proxied",
                "Connections whose header of the PROXY protocol named the client",
                &self.proxied,
            ),
            figure(
                "proxy_protocol_local",
                "Connections whose header named nobody: LOCAL, UNKNOWN, UNSPEC, or datagrams",
                &self.local,
            ),
            figure(
                "proxy_protocol_malformed",
                "Connections reset as what came first was no header, or one past the limit",
                &self.malformed,
            ),
            figure(
                "proxy_protocol_late",
                "Connections reset as their header did not come in time",
                &self.late,
            ),
            figure(
                "proxy_protocol_ended",
                "Connections that their peers ended before the header had come, checks of balancers included",
                &self.ended,
            ),
        ]
    }
}

/// A [`Handler`] for listeners that balancers with the PROXY protocol connect to.
///
/// Every connection that is accepted begins with a header. Until it has come, the handler inside hears nothing of the
/// connection: then [`Proxied::on_proxied`] is called, and the bytes behind the header follow as data, however they were cut. A
/// connection without a header is ended, and told to [`Proxied::on_refused_header`].
///
/// ```
/// use quoit::proxy_protocol::{Header, Proxied, ProxyOptions, ProxyProtocol};
/// use quoit::{ConnectionId, Handler, ListenerId, Loop, RuntimeConfig, Runtime};
///
/// struct Server;
///
/// impl Handler for Server {}
///
/// impl Proxied for Server {
///     fn on_proxied(&mut self, event_loop: &mut Loop, connection: ConnectionId, _: ListenerId, header: &Header) {
///         match &header.addresses {
///             Some(addresses) => println!("a client at {}", addresses.source),
///             None => println!("the balancer itself, at {:?}", event_loop.peer_address(connection)),
///         }
///     }
/// }
///
/// let runtime = Runtime::start(RuntimeConfig::default(), |_| ProxyProtocol::new(Server, ProxyOptions::default()))?;
/// # drop(runtime);
/// # Ok::<(), quoit::StartError>(())
/// ```
///
/// It is for all listeners of its loop: clients that come without a balancer need a runtime of their own. Connections that this
/// end makes ([`Loop::connect`]), that are attached or accepted as descriptors pass as they are, and so do datagrams.
///
/// While the header is awaited, the connection's deadline is the one of [`ProxyOptions::within`]; behind that it has none until the
/// handler sets one. When the loop drains, connections that are still without a header are closed.
pub struct ProxyProtocol<H> {
    handler: H,
    options: ProxyOptions,
    counters: Arc<HeaderCounters>,
    /// By the slot of the connection, those whose header has not come.
    waiting: Vec<Option<Box<Waiting>>>,
    /// What came behind the header of a connection that was paused at once. The loop takes it back at the end of the turn, when it
    /// has taken back what came after it: what is taken back later comes earlier.
    behind: Delivery,
}

/// A connection whose header has not come.
struct Waiting {
    connection: ConnectionId,
    listener: ListenerId,
    /// It was accepted paused, and the handler is to get it so.
    paused: bool,
    /// What of the header has come.
    bytes: Vec<u8>,
    /// It is being ended.
    refused: bool,
}

impl<H: Proxied> ProxyProtocol<H> {
    /// Wraps a handler.
    pub fn new(handler: H, options: ProxyOptions) -> Self {
        Self::with_counters(handler, options, Arc::default())
    }

    /// Wraps a handler, and counts there.
    pub fn with_counters(handler: H, options: ProxyOptions, counters: Arc<HeaderCounters>) -> Self {
        let limit = options.limit.max(MOST_TEXT);
        Self {
            handler,
            options: ProxyOptions { limit, ..options },
            counters,
            waiting: Vec::new(),
            behind: Delivery::default(),
        }
    }

    /// The handler inside.
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// The handler inside.
    pub fn handler_mut(&mut self) -> &mut H {
        &mut self.handler
    }

    /// What became of the connections.
    #[must_use]
    pub fn counters(&self) -> &Arc<HeaderCounters> {
        &self.counters
    }

    fn waiting(&mut self, connection: ConnectionId) -> Option<&mut Waiting> {
        self.waiting.get_mut(connection.slot().index())?.as_deref_mut()
    }

    /// More of what should be a header has come.
    fn receive(&mut self, event_loop: &mut Loop, connection: ConnectionId, mut data: Lease) {
        let limit = self.options.limit;
        let Some(waiting) = self.waiting(connection) else {
            return;
        };
        if waiting.refused {
            return;
        }
        // Mostly it comes in one piece, and is read where it is.
        let before = waiting.bytes.len();
        let decoded = if before == 0 {
            decode(&data, limit)
        } else {
            // What is behind the limit is no part of a header.
            let part = data.len().min(limit - before);
            waiting.bytes.extend_from_slice(&data[..part]);
            decode(&waiting.bytes, limit)
        };
        match decoded {
            Ok(Some((header, length))) => {
                data.advance(length - before);
                self.hand_over(event_loop, connection, &header, data);
            }
            Ok(None) => {
                if before == 0 {
                    waiting.bytes.extend_from_slice(&data);
                }
            }
            Err(error) => self.refuse(event_loop, connection, Refused::Malformed(error)),
        }
    }

    /// The connection is the handler's from here on.
    fn hand_over(&mut self, event_loop: &mut Loop, connection: ConnectionId, header: &Header, rest: Lease) {
        let Some(waiting) = self.waiting[connection.slot().index()].take() else {
            return;
        };
        let counter = match header.addresses {
            Some(_) => &self.counters.proxied,
            None => &self.counters.local,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        // Refusals of both mean that it is ending, which it tells by itself.
        let _ = event_loop.set_deadline(connection, None);
        if waiting.paused {
            let _ = event_loop.pause(connection);
        }
        self.handler
            .on_proxied(event_loop, connection, waiting.listener, header);
        if rest.is_empty() {
            return;
        }
        // As any event that is looked at when it is handed out: the handler may have paused or closed the connection.
        let rest = Event::Data {
            connection,
            data: rest,
        };
        if let Some(Event::Data { connection, data }) = self.behind.admit(event_loop, rest) {
            self.handler.on_data(event_loop, connection, data);
        }
    }

    fn refuse(&mut self, event_loop: &mut Loop, connection: ConnectionId, refused: Refused) {
        let Some(waiting) = self.waiting(connection) else {
            return;
        };
        if std::mem::replace(&mut waiting.refused, true) {
            return;
        }
        let said_nothing = waiting.bytes.is_empty();
        let counter = match refused {
            Refused::Malformed(_) => &self.counters.malformed,
            Refused::Late => &self.counters.late,
            Refused::Ended => &self.counters.ended,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.handler.on_refused_header(event_loop, connection, refused);
        // A refusal means that it is ending already.
        let _ = match refused {
            Refused::Ended if said_nothing => event_loop.close(connection, None),
            _ => event_loop.abort(connection),
        };
    }
}

impl<H: Proxied> Handler for ProxyProtocol<H> {
    fn on_accepted(&mut self, event_loop: &mut Loop, connection: ConnectionId, listener: ListenerId) {
        let index = connection.slot().index();
        if self.waiting.len() <= index {
            self.waiting.resize_with(index + 1, || None);
        }
        let paused = event_loop.is_paused(connection);
        self.waiting[index] = Some(Box::new(Waiting {
            connection,
            listener,
            paused,
            bytes: Vec::new(),
            refused: false,
        }));
        // Without a timer it could wait for ever; if it is ending already, it is as well.
        if event_loop
            .set_deadline(connection, Some(self.options.within))
            .is_err()
        {
            self.refuse(event_loop, connection, Refused::Late);
        } else if paused {
            let _ = event_loop.resume(connection);
        }
    }

    fn on_accepted_descriptor(&mut self, event_loop: &mut Loop, descriptor: OwnedFd, listener: ListenerId) {
        self.handler
            .on_accepted_descriptor(event_loop, descriptor, listener);
    }

    fn on_opened(&mut self, event_loop: &mut Loop, connection: ConnectionId, token: Token) {
        self.handler.on_opened(event_loop, connection, token);
    }

    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        if self.waiting(connection).is_some() {
            self.receive(event_loop, connection, data);
        } else {
            self.handler.on_data(event_loop, connection, data);
        }
    }

    fn on_end_of_stream(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        if self.waiting(connection).is_some() {
            self.refuse(event_loop, connection, Refused::Ended);
        } else {
            self.handler.on_end_of_stream(event_loop, connection);
        }
    }

    fn on_sent(&mut self, event_loop: &mut Loop, connection: ConnectionId, token: Token) {
        self.handler.on_sent(event_loop, connection, token);
    }

    fn on_file_short(
        &mut self,
        event_loop: &mut Loop,
        connection: ConnectionId,
        token: Token,
        missing: u64,
        error: Option<Errno>,
    ) {
        self.handler
            .on_file_short(event_loop, connection, token, missing, error);
    }

    fn on_writable(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        self.handler.on_writable(event_loop, connection);
    }

    fn on_send_failed(&mut self, event_loop: &mut Loop, connection: ConnectionId, error: Errno) {
        // Nothing was sent on one that waits, and what its peer has sent is still delivered.
        if self.waiting(connection).is_none() {
            self.handler.on_send_failed(event_loop, connection, error);
        }
    }

    fn on_pressure(&mut self, event_loop: &mut Loop, connection: Option<ConnectionId>) {
        if connection.is_none_or(|connection| self.waiting(connection).is_none()) {
            self.handler.on_pressure(event_loop, connection);
        }
    }

    fn on_deadline(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        if self.waiting(connection).is_some() {
            self.refuse(event_loop, connection, Refused::Late);
        } else {
            self.handler.on_deadline(event_loop, connection);
        }
    }

    fn on_closed(
        &mut self,
        event_loop: &mut Loop,
        connection: ConnectionId,
        token: Token,
        reason: CloseReason,
    ) {
        match self.waiting.get_mut(connection.slot().index()) {
            Some(waiting @ Some(_)) => *waiting = None,
            _ => self.handler.on_closed(event_loop, connection, token, reason),
        }
    }

    fn on_listener_closed(&mut self, event_loop: &mut Loop, listener: ListenerId, error: Option<Errno>) {
        self.handler.on_listener_closed(event_loop, listener, error);
    }

    fn on_accept_failed(&mut self, event_loop: &mut Loop, listener: ListenerId, error: Errno) {
        self.handler.on_accept_failed(event_loop, listener, error);
    }

    fn on_timer(&mut self, event_loop: &mut Loop, token: Token) {
        self.handler.on_timer(event_loop, token);
    }

    fn on_woken(&mut self, event_loop: &mut Loop) {
        self.handler.on_woken(event_loop);
    }

    fn on_refused(
        &mut self,
        event_loop: &mut Loop,
        token: Token,
        connection: Option<ConnectionId>,
        refusal: Refusal,
    ) {
        self.handler.on_refused(event_loop, token, connection, refusal);
    }

    fn on_datagram_opened(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, token: Token) {
        self.handler.on_datagram_opened(event_loop, socket, token);
    }

    fn on_datagram(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, datagram: Datagram<'_>) {
        self.handler.on_datagram(event_loop, socket, datagram);
    }

    fn on_datagrams(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, datagrams: Datagrams) {
        self.handler.on_datagrams(event_loop, socket, datagrams);
    }

    fn on_datagram_sent(
        &mut self,
        event_loop: &mut Loop,
        socket: DatagramSocketId,
        token: Token,
        result: Result<u32, Errno>,
    ) {
        self.handler.on_datagram_sent(event_loop, socket, token, result);
    }

    fn on_datagram_error(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, error: DatagramError) {
        self.handler.on_datagram_error(event_loop, socket, error);
    }

    fn on_datagram_writable(&mut self, event_loop: &mut Loop, socket: DatagramSocketId) {
        self.handler.on_datagram_writable(event_loop, socket);
    }

    fn on_datagram_pressure(&mut self, event_loop: &mut Loop, socket: DatagramSocketId) {
        self.handler.on_datagram_pressure(event_loop, socket);
    }

    fn on_datagram_closed(
        &mut self,
        event_loop: &mut Loop,
        socket: DatagramSocketId,
        token: Token,
        error: Option<Errno>,
    ) {
        self.handler.on_datagram_closed(event_loop, socket, token, error);
    }

    fn on_datagram_refused(
        &mut self,
        event_loop: &mut Loop,
        token: Token,
        socket: Option<DatagramSocketId>,
        refusal: Refusal,
    ) {
        self.handler
            .on_datagram_refused(event_loop, token, socket, refusal);
    }

    fn on_draining(&mut self, event_loop: &mut Loop) {
        for waiting in self.waiting.iter().flatten() {
            // A refusal means that it is ending already.
            let _ = event_loop.close(waiting.connection, None);
        }
        self.handler.on_draining(event_loop);
    }

    fn on_turn_end(&mut self, event_loop: &mut Loop) {
        std::mem::take(&mut self.behind).end(event_loop);
        self.handler.on_turn_end(event_loop);
    }
}

impl<H: fmt::Debug> fmt::Debug for ProxyProtocol<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyProtocol")
            .field("handler", &self.handler)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
