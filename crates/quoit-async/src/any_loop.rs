//! The loop that a driver has.
//!
//! It is the real one, by its own type and its own methods. In the build of these sources that `quoit-sim` runs
//! (`quoit-async-sim`) it is any loop instead, as that one's stands on a simulated kernel; nothing else of the driver, the
//! links and the sockets differs there.

#[cfg(not(quoit_simulated))]
pub(crate) use real::{AnyLoop, admit, end_delivery};
#[cfg(quoit_simulated)]
pub(crate) use simulated::{AnyLoop, admit, end_delivery, is_in_turn};

#[cfg(not(quoit_simulated))]
mod real {
    use quoit::{Delivery, Event};

    pub(crate) use quoit::Loop as AnyLoop;

    /// As [`Delivery::admit`].
    #[inline]
    pub(crate) fn admit(event_loop: &mut AnyLoop, delivery: &mut Delivery, event: Event) -> Option<Event> {
        delivery.admit(event_loop, event)
    }

    /// As [`Delivery::end`].
    #[inline]
    pub(crate) fn end_delivery(event_loop: &mut AnyLoop, delivery: Delivery) {
        delivery.end(event_loop);
    }
}

#[cfg(quoit_simulated)]
mod simulated {
    use std::cell::Cell;
    use std::fmt;
    use std::io::IoSlice;
    use std::os::fd::{BorrowedFd, OwnedFd};
    use std::time::Duration;

    use quoit::internals::engine::Engine;
    use quoit::internals::sys::SocketSys;
    use quoit::{
        Address, AttachOptions, Command, Config, ConnectOptions, ConnectionId, Counters, DatagramCounters,
        DatagramSend, DatagramSocket, DatagramSocketError, DatagramSocketId, Delivery, DirectDatagramSender,
        DirectSender, Event, Events, FileRange, ListenError, ListenSocket, ListenerId, ListenerOptions, Loop,
        LoopIndex, NotPollable, Payload, Refusal, Token, TurnError,
    };

    pub(crate) type AnyLoop = Box<dyn Calls>;

    thread_local! {
        static IN_TURN: Cell<bool> = const { Cell::new(false) };
    }

    /// Whether this thread's loop is in its turn, in which no lock of a socket's is held.
    pub(crate) fn is_in_turn() -> bool {
        IN_TURN.get()
    }

    impl fmt::Debug for dyn Calls {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "Loop({:?})", self.index())
        }
    }

    impl<E: Engine + 'static, K: SocketSys + 'static> From<Loop<E, K>> for AnyLoop {
        fn from(event_loop: Loop<E, K>) -> Self {
            Box::new(event_loop)
        }
    }

    pub(crate) fn admit(event_loop: &mut AnyLoop, delivery: &mut Delivery, event: Event) -> Option<Event> {
        event_loop.admit(delivery, event)
    }

    pub(crate) fn end_delivery(event_loop: &mut AnyLoop, delivery: Delivery) {
        event_loop.end_delivery(delivery);
    }

    /// Declares the methods of a loop that are used here, and has each call the loop's own.
    macro_rules! calls {
        ($(fn $name:ident($this:ident: $own:ty $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;)*) => {
            /// What is used of a loop here.
            pub(crate) trait Calls {
                $(fn $name($this: $own $(, $argument: $type)*) $(-> $result)?;)*

                fn turn(
                    &mut self,
                    commands: [Command<'static>; 0],
                    events: &mut Events,
                    timeout: Option<Duration>,
                ) -> Result<usize, TurnError>;

                fn admit(&mut self, delivery: &mut Delivery, event: Event) -> Option<Event>;

                fn end_delivery(&mut self, delivery: Delivery);
            }

            impl<E: Engine, K: SocketSys> Calls for Loop<E, K> {
                $(
                    fn $name($this: $own $(, $argument: $type)*) $(-> $result)? {
                        Loop::$name($this $(, $argument)*)
                    }
                )*

                fn turn(
                    &mut self,
                    commands: [Command<'static>; 0],
                    events: &mut Events,
                    timeout: Option<Duration>,
                ) -> Result<usize, TurnError> {
                    IN_TURN.set(true);
                    let result = Loop::turn(self, commands, events, timeout);
                    IN_TURN.set(false);
                    result
                }

                fn admit(&mut self, delivery: &mut Delivery, event: Event) -> Option<Event> {
                    delivery.admit(self, event)
                }

                fn end_delivery(&mut self, delivery: Delivery) {
                    delivery.end(self);
                }
            }
        };
    }

    calls! {
        fn index(self: &Self) -> LoopIndex;
        fn config(self: &Self) -> &Config;
        fn counters(self: &Self) -> Counters;
        fn connections(self: &Self) -> u32;
        fn park_edge_triggered(self: &mut Self) -> Result<Option<Duration>, TurnError>;
        fn poll_descriptor(self: &Self) -> Result<BorrowedFd<'_>, NotPollable>;
        fn drain(self: &mut Self, within: Duration);

        fn listen_on(self: &mut Self, socket: ListenSocket, options: &ListenerOptions) -> Result<ListenerId, ListenError>;
        fn stop_listening(self: &mut Self, listener: ListenerId) -> Result<(), Refusal>;
        fn connect(self: &mut Self, address: &Address, options: &ConnectOptions, token: Token)
            -> Result<ConnectionId, Refusal>;
        fn connect_on(self: &mut Self, socket: OwnedFd, address: &Address, options: &ConnectOptions, token: Token)
            -> Result<ConnectionId, Refusal>;
        fn attach(self: &mut Self, descriptor: OwnedFd, options: &AttachOptions, token: Token)
            -> Result<ConnectionId, Refusal>;
        fn local_address(self: &Self, connection: ConnectionId) -> Option<Address>;
        fn peer_address(self: &Self, connection: ConnectionId) -> Option<Address>;
        fn descriptor(self: &Self, connection: ConnectionId) -> Option<BorrowedFd<'_>>;

        fn send(self: &mut Self, connection: ConnectionId, payload: Payload<'_>, token: Token) -> Result<(), Refusal>;
        fn try_send(self: &mut Self, connection: ConnectionId, bytes: &[u8]) -> Result<usize, Refusal>;
        fn try_send_gathered(self: &mut Self, connection: ConnectionId, pieces: &[IoSlice<'_>]) -> Result<usize, Refusal>;
        fn send_file(self: &mut Self, connection: ConnectionId, range: FileRange, token: Token) -> Result<(), Refusal>;
        fn direct_sender(self: &mut Self, connection: ConnectionId) -> Result<DirectSender, Refusal>;
        fn direct_datagram_sender(self: &mut Self, socket: DatagramSocketId) -> Result<DirectDatagramSender, Refusal>;
        fn queued(self: &Self, connection: ConnectionId) -> usize;
        fn may_lend(self: &mut Self, connection: ConnectionId) -> Result<(), Refusal>;
        fn shutdown(self: &mut Self, connection: ConnectionId) -> Result<(), Refusal>;
        fn close(self: &mut Self, connection: ConnectionId, deadline: Option<Duration>) -> Result<(), Refusal>;
        fn abort(self: &mut Self, connection: ConnectionId) -> Result<(), Refusal>;
        fn set_deadline(self: &mut Self, connection: ConnectionId, after: Option<Duration>) -> Result<(), Refusal>;
        fn set_named_timer(self: &mut Self, after: Duration, token: Token) -> Result<(), Refusal>;
        fn cancel_named_timer(self: &mut Self, token: Token) -> bool;

        fn open_datagram(self: &mut Self, socket: DatagramSocket, token: Token)
            -> Result<DatagramSocketId, DatagramSocketError>;
        fn datagram_counters(self: &mut Self, socket: DatagramSocketId) -> Option<DatagramCounters>;
        fn datagram_descriptor(self: &Self, socket: DatagramSocketId) -> Option<BorrowedFd<'_>>;
        fn send_datagram(self: &mut Self, socket: DatagramSocketId, datagram: DatagramSend<'_>) -> Result<(), Refusal>;
        fn is_datagram_full(self: &Self, socket: DatagramSocketId) -> bool;
        fn close_datagram(self: &mut Self, socket: DatagramSocketId) -> Result<(), Refusal>;
    }
}
